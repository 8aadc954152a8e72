"""Log lines of the programs, parsed: JSON of the services, the broker's format, and anything else."""

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import cast

import msgspec

_LONGEST = 1 << 20
_CHUNK = 1 << 16
_BROKER_LINE = re.compile(
    r"\[\d+\] (?P<at>\d{4}/\d\d/\d\d \d\d:\d\d:\d\d)\.\d+ \[(?P<level>[A-Z]{3})\] (?P<message>.*)"
)
_BROKER_LEVELS = {
    "DBG": "debug",
    "TRC": "debug",
    "INF": "info",
    "WRN": "warning",
    "ERR": "error",
    "FTL": "error",
}
_KNOWN = ("ts", "level", "service", "msg", "exception")


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a program's output.

    `at` is local time. `level` is debug, info, warning or error. `structured` is False if the line is not in the format
    of the program's logs, such as a stack trace or a message of the interpreter.
    """

    source: str
    at: datetime
    level: str
    message: str
    fields: dict[str, object] = {}
    exception: str = ""
    structured: bool = True


async def read_lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield the lines of `reader` without their ends; a line above 1 MiB is split."""
    rest = b""
    while chunk := await reader.read(_CHUNK):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line
        if len(rest) > _LONGEST:
            yield rest
            rest = b""
    if rest:
        yield rest


def parse_line(source: str, raw: bytes) -> LogLine:
    """Parse one line of the program `source`; a line in an unknown format becomes an unstructured message."""
    text = raw.decode("utf-8", "replace").rstrip()
    if text.startswith("{"):
        try:
            return _service_line(source, msgspec.json.decode(text, type=dict[str, object]))
        except (msgspec.DecodeError, ValueError):
            return _other_line(source, text)
    if matched := _BROKER_LINE.fullmatch(text):
        return LogLine(
            source=source,
            at=datetime.strptime(matched["at"], "%Y/%m/%d %H:%M:%S").astimezone(),
            level=_BROKER_LEVELS.get(matched["level"], "info"),
            message=matched["message"],
        )
    return _other_line(source, text)


def supervisor_line(source: str, level: str, message: str, **fields: object) -> LogLine:
    """Return a log line of the supervisor itself."""
    return LogLine(source=source, at=_now(), level=level, message=message, fields=fields)


def _service_line(source: str, record: dict[str, object]) -> LogLine:
    ts = record.get("ts")
    return LogLine(
        source=source,
        at=datetime.fromisoformat(ts).astimezone() if isinstance(ts, str) else _now(),
        level=str(record.get("level", "info")),
        message=str(record.get("msg", "")),
        fields={name: value for name, value in record.items() if name not in _KNOWN},
        exception=cast("str", record.get("exception") or ""),
    )


def _other_line(source: str, text: str) -> LogLine:
    return LogLine(source=source, at=_now(), level="info", message=text, structured=False)


def _now() -> datetime:
    return datetime.now(UTC).astimezone()
