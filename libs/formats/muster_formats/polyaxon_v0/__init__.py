"""Polyaxon 0.x documents (``version: 1``)."""
