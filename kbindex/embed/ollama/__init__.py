"""The embedder ``ollama:MODEL``, and which servers may be sent text."""
