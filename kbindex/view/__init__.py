"""The local view of what is staged: what is kept of it, whether it may be believed, lookups."""
