"""Draw a trace: indented names, service, start, length, description, and a bar to scale."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from muster._trace.spans import Span
from muster._trace.tree import Forest, Row

_SHOWN = (
    "replica",
    "role",
    "node",
    "gpus",
    "attempt",
    "generation",
    "replicas",
    "size",
    "target",
    "reason",
    "outcome",
    "exit_code",
    "signal",
)
_PREFIX = "muster."
_COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "red", "bright_cyan", "bright_green")
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LEAST_BAR = 20
_ROOM_FOR_DETAILS = 40
_MOST_BAR = 60
_MOST_NAME = 44


def draw(forest: Forest, *, width: int) -> Iterator[Text]:
    """Return the lines of the picture, headers first; no line exceeds ``width`` cells."""
    services = {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(_services(forest))}
    names = [f"{row.guides}{'? ' if row.orphan else ''}{row.span.name}" for row in forest.rows]
    name_width = min(max(cell_len(name) for name in names), _MOST_NAME)
    service_width = max(len(name) for name in services)
    offsets = [length(row.span.start_ns - forest.start_ns) for row in forest.rows]
    lengths = [length(row.span.end_ns - row.span.start_ns) for row in forest.rows]
    start_width = max(len("START"), *(len(text) + 1 for text in offsets))
    length_width = max(len("LENGTH"), *(len(text) for text in lengths))
    fixed = name_width + service_width + start_width + length_width + 8
    room = width - fixed
    bar = max(_LEAST_BAR, min(_MOST_BAR, room * 3 // 5 if room >= _ROOM_FOR_DETAILS else room))
    heads = f"{'SPAN':<{name_width}}  {'SERVICE':<{service_width}}  {'START':>{start_width}}  {'LENGTH':>{length_width}}"
    yield _cut(Text(heads, style="bold"), width)
    for row, name, offset, took in zip(forest.rows, names, offsets, lengths, strict=True):
        colour = services.get(row.span.service, "bold")
        line = Text.assemble(
            (set_cell_size(name, name_width), "red" if row.span.failed else "bold" if row.is_heading else ""),
            "  ",
            (f"{row.span.service:<{service_width}}", colour),
            f"  {'+' + offset:>{start_width}}  {took:>{length_width}}  ",
            (_bar(row.span, forest, bar), colour),
            "  ",
            (_about(row) if room >= _ROOM_FOR_DETAILS else "", "red" if row.span.failed else "dim"),
        )
        line.rstrip()
        yield _cut(line, width)


def summary(forest: Forest, trace_id: str) -> str:
    """Return a summary; a trace that is not one tree says so."""
    services = len(_services(forest))
    parts = [
        f"trace {trace_id}: {length(forest.end_ns - forest.start_ns)}",
        f"{sum(1 for row in forest.rows if not row.is_heading)} spans of {services} service{'' if services == 1 else 's'}",
    ]
    jobs = sum(1 for row in forest.rows if row.is_heading)
    if jobs:
        parts.append(f"{jobs} jobs")
    if forest.roots != 1:
        parts.append(f"{forest.roots} roots" if forest.roots else "no root")
    if forest.orphans:
        parts.append(f"{forest.orphans} marked ? whose parent has not ended or is lost")
    return ", ".join(parts)


def length(nanoseconds: int) -> str:
    """Return a duration with three digits: ``0s``, ``850µs``, ``12.3ms``, ``4.21s``, ``3m12s``."""
    if nanoseconds <= 0:
        return "0s"
    micros = nanoseconds / 1e3
    for bound, divisor, unit in ((1e3, 1, "µs"), (1e6, 1e3, "ms"), (6e7, 1e6, "s")):
        value = micros / divisor
        if micros < bound * 0.9995:
            return f"{value:.0f}{unit}" if value >= 99.95 or divisor == 1 else f"{value:.3g}{unit}"
    seconds = round(micros / 1e6)
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02d}s"
    return f"{seconds // 3600}h{seconds % 3600 // 60:02d}m"


def _services(forest: Forest) -> list[str]:
    return list(dict.fromkeys(row.span.service for row in forest.rows if not row.is_heading))


def _bar(span: Span, forest: Forest, width: int) -> str:
    """Return a bar from the span's start to its end, to an eighth of a cell; never invisible."""
    whole = max(1, forest.end_ns - forest.start_ns)
    eighths = width * 8
    start = (span.start_ns - forest.start_ns) * eighths // whole
    end = max(start + 1, (span.end_ns - forest.start_ns) * eighths // whole)
    first = min(start // 8, width - 1)
    filled = max(1, end - first * 8)
    full, part = divmod(filled, 8)
    return set_cell_size(" " * first + "█" * full + (_EIGHTHS[part] if part else ""), width)


def _about(row: Row) -> str:
    named = {key.removeprefix(_PREFIX): value for key, value in row.span.attributes.items()}
    parts = [
        f"{key}={named[key]}" for key in _SHOWN if named.get(key) and named[key] not in row.span.name.split()
    ]
    if row.span.error:
        parts.append(row.span.error)
    return " ".join(parts)


def _cut(line: Text, width: int) -> Text:
    line.truncate(width, overflow="ellipsis")
    return line
