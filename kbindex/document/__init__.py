"""Documents: parsing, chunk boundaries, the text that is embedded for each chunk, anchors."""
