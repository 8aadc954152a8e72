"""Bounded, safe reading of YAML and JSON, which keeps where every key and value stands.

Whoever can submit a document could otherwise stop the validator with a few kilobytes: so bytes, depth and values are bounded before
anything is built, aliases are counted as what they expand to, and the parser's events are read one at a time, so that reading stops
where a bound is passed. Only what JSON can say is taken. Whatever the input, the answer is nodes or problems, never an exception.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from muster_core.models.problem_codes import Code
from muster_formats.problems import Problems, Spot
from muster_formats.yaml_builder import Bound, Builder, Node

MAX_BYTES = 512 * 1024
"""The largest document, in bytes of UTF-8."""

LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
"""What ends a line, for YAML."""

_SURROGATES = re.compile(
    r"(?P<before>(?<!\\)(?:\\\\)*)\\u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})"
)
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, kw_only=True)
class Source:
    """The parts of a document that hold something, and its text; ``text`` is empty where the bytes are none."""

    text: str
    parts: tuple[Node, ...]


def _joined(pair: re.Match[str]) -> str:
    """One character for the two escapes that JSON writes it with; YAML knows no such pairs."""
    high, low = int(pair["high"], 16), int(pair["low"], 16)
    return pair["before"] + chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))


def read_source(document: str | bytes, problems: Problems) -> Source:
    """Read YAML or JSON. What is wrong goes to ``problems``; then the parts may be incomplete or none."""
    text = read_text(document, problems)
    return Source(text=text or "", parts=() if text is None else read_parts(text, problems))


def read_text(document: str | bytes, problems: Problems) -> str | None:
    """The text of a document, or ``None`` after saying why there is none: too many bytes, no UTF-8, characters of no text file."""
    text = _text(document, problems)
    if text is not None and (forbidden := _FORBIDDEN.search(text)):
        problems.add(
            Code.CONTROL_CHARACTER,
            _spot_of(text, forbidden.start()),
            f"the character U+{ord(forbidden.group()):04X} stands in no text file",
            fix="remove it, or write it as an escape in double quotes",
        )
        return None
    return text


def read_parts(text: str, problems: Problems) -> tuple[Node, ...]:
    """The parts of a text in YAML or JSON that hold something."""
    builder = Builder(problems)
    try:
        for event in _events(_SURROGATES.sub(_joined, text)):
            builder.take(event)
    except Bound as bound:
        problems.add(
            bound.code,
            Spot(path="", line=bound.line, column=bound.column),
            bound.message,
            allowed=bound.allowed,
        )
    except yaml.YAMLError as error:
        _not_yaml(error, text, problems)
    if not builder.parts and not problems.refused:
        problems.add(Code.EMPTY_DOCUMENT, Spot(path="", line=1, column=1), "the document holds nothing")
    return tuple(builder.parts)


def _text(document: str | bytes, problems: Problems) -> str | None:
    start = Spot(path="", line=1, column=1)
    if len(document) > MAX_BYTES:
        _too_large(problems, start)
        return None
    try:
        raw = document.encode() if isinstance(document, str) else document
    except UnicodeEncodeError as error:
        problems.add(
            Code.NOT_UTF8,
            _spot_of(str(document), error.start),
            "the text holds half of a surrogate pair",
            allowed="UTF-8",
        )
        return None
    if len(raw) > MAX_BYTES:
        _too_large(problems, start)
        return None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8-sig")
        problems.add(
            Code.NOT_UTF8,
            _spot_of(before, len(before)),
            f"byte 0x{raw[error.start]:02X} is no UTF-8",
            allowed="UTF-8",
            fix="save the file as UTF-8",
        )
        return None


def _too_large(problems: Problems, start: Spot) -> None:
    problems.add(
        Code.TOO_LARGE, start, "the document is too large", allowed=f"at most {MAX_BYTES // 1024} KiB"
    )


def _events(text: str) -> Iterator[yaml.Event]:
    yield from yaml.parse(text, Loader=_Loader)


def _not_yaml(error: yaml.YAMLError, text: str, problems: Problems) -> None:
    line, column, words = 1, 1, "the text is neither YAML nor JSON"
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark
        if mark is None or (error.context_mark and mark.index >= len(text.rstrip())):
            mark = error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        context = f" {error.context}" if error.context else ""
        words = f"not YAML: {error.problem or 'unreadable'}{context}"
    problems.add(Code.NOT_YAML, Spot(path="", line=line, column=column), words, fix=_remedy(words))


def _remedy(words: str) -> str:
    if "\\t" in words or "start any token" in words:
        return "indent with spaces, not tabs; put texts that start with @, ` or % in quotes"
    if "flow" in words:
        return "close the bracket or brace, or put a comma before this"
    if "mapping values are not allowed" in words:
        return "put a text that holds ': ' in quotes, or correct the indentation"
    return "correct the indentation or the quotes near this line"


def _spot_of(text: str, index: int) -> Spot:
    last, line = 0, 1
    for found in LINE_BREAK.finditer(text, 0, index):
        last, line = found.end(), line + 1
    return Spot(path="", line=line, column=index - last + 1)
