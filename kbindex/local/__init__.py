"""The local state of a clone, never committed: small files, databases, locks, the cache."""
