"""A question → the passages that answer it, by words and by meaning."""
