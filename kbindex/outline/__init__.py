"""Outlines: what the regions of a document are, whether that is true, and what has changed."""
