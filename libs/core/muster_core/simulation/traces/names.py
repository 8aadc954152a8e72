"""The names of trace formats, importable without the readers."""

from __future__ import annotations

OWN = "muster"
PHILLY_JSON = "philly-json"

FORMATS = (OWN, "tiresias", "muri", "pollux", "philly", "openb", PHILLY_JSON)
"""Every format."""
