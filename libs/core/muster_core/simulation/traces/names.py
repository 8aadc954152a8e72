"""The names of the formats of traces, for those who only want to name them."""

from __future__ import annotations

OWN = "muster"
PHILLY_JSON = "philly-json"

FORMATS = (OWN, "tiresias", "muri", "pollux", "philly", "openb", PHILLY_JSON)
"""Every format."""
