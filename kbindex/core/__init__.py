"""What passes between modules, what a user can be told, and what is safe to print or to name."""
