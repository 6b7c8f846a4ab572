"""What an index is made with: the settings, and the recipe that follows from them."""
