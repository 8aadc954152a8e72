"""A trace as a waterfall in the terminal: fetch it from a Jaeger query API, build its tree, draw it."""
