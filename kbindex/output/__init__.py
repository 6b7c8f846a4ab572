"""Output for terminals and programs: text, JSON, GitHub annotations, SARIF."""
