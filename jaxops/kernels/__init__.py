"""One computation in several programs, of which the platform chooses one. No operator, no message."""
