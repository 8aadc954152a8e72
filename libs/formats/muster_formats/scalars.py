"""What a plain YAML scalar means: null, a boolean, a number or a text, and nothing else.

Stricter than YAML 1.1, whose ``no``, ``010``, ``1:30`` and ``2024-01-01`` surprise everybody: those stay text here. What JSON can
say means the same.
"""

from __future__ import annotations

import math
import re

Scalar = str | int | float | bool | None
"""A JSON scalar."""

_MAX_DIGITS = 64
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)|[-+]?Infinity|NaN", re.ASCII)


class NumberError(ValueError):
    """A number that no JSON reader can hold."""


def resolve(text: str) -> Scalar:
    """The meaning of a plain (unquoted) scalar. Raises ``NumberError`` for NaN, infinities and numbers of more than 64 digits."""
    if text in _NULL:
        return None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    if _NOT_FINITE.fullmatch(text):
        raise NumberError("a number is finite")
    if not _FLOAT.fullmatch(text):
        return text
    if len(text) > _MAX_DIGITS:
        raise NumberError("a number has at most 64 digits")
    if _INT.fullmatch(text):
        return int(text)
    number = float(text)
    if not math.isfinite(number):
        raise NumberError("a number is finite")
    return number
