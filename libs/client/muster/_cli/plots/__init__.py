"""Curves for people: with characters in a terminal, and as a picture."""

from muster._cli.plots.figure import Curve, Figure
from muster._cli.plots.picture import picture
from muster._cli.plots.terminal import drawn

__all__ = ["Curve", "Figure", "drawn", "picture"]
