"""How good is a search? Question files, measures, and what changed between two trees."""
