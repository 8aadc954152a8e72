"""Polyaxon today: documents with ``version: 1.1``."""
