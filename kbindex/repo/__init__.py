"""The repository at hand: its configuration, its folders, and which files a tree of it holds."""
