"""The embedder ``openai:MODEL``: any server with OpenAI's ``/v1/embeddings``."""
