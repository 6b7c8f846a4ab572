"""A repository with its configuration and local folders, and the listing of one tree."""
