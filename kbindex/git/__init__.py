"""Everything that is asked of git and done in its work tree, hooks included."""
