"""Settings, and the recipe of an index that follows from them."""
