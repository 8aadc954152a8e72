"""The version of this installation: every instance states it in the API and in its spans."""

VERSION = "0.1.0"
"""The same as in every ``pyproject.toml``; a constant, because code that runs from a checkout has no package metadata."""
