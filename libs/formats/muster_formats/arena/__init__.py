"""Arena command lines as documents."""

PROGRAMS = ("arena", "muster")
"""Program names that start a command-line document."""
