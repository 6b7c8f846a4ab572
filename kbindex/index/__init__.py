"""Making the committed index and proving it: build, resolve, verify, audit."""
