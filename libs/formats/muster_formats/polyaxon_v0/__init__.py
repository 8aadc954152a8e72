"""Polyaxon 0.x: documents with ``version: 1``."""
