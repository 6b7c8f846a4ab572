"""One module a verb; each reads top to bottom and ties core and edges together."""
