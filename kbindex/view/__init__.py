"""The local view of what is staged: the one place with SQL over it."""
