"""The embedder ``ollama:MODEL``: the calls of its API, its names and its errors."""
