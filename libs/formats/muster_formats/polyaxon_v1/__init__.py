"""Polyaxon 1.x documents (``version: 1.1``)."""
