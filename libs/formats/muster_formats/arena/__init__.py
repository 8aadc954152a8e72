"""Arena's command line."""

PROGRAMS = ("arena", "muster")
"""The words that such a document begins with."""
