"""A document → its chunks, and for each what exactly the embedder is shown."""
