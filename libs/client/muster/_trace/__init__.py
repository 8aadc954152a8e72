"""A trace as a waterfall in the terminal: read it from a Jaeger query API, put it together to a tree, draw it."""
