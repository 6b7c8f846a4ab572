"""What is printed: on a terminal, as JSON, GitHub annotations or SARIF."""
