"""Types that modules exchange, errors for users, names and texts that are safe to use."""
