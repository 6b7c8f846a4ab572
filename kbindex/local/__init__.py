"""Local state of a clone, never committed: small files, SQLite files, locks, the cache."""
