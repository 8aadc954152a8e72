"""The spans of a trace as trees, grouped by job, and drawn as a waterfall."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

import msgspec
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from muster._trace.spans import Span, TraceEvent

_ID, _NAME = "muster.job_id", "muster.job"


def job_of(span: Span) -> str:
    """Return the job id of the span, or an empty text."""
    return span.attributes.get(_ID, "")


def with_headings(spans: Sequence[Span]) -> list[Span]:
    """Return the spans, with a heading for each job if there are several, spanning all spans of the job.

    A heading is a span without a service. Spans with a lost parent are placed under their job's heading too.
    """
    jobs = list(dict.fromkeys(job_of(span) for span in spans if job_of(span)))
    if len(jobs) < 2:
        return list(spans)
    by_id = {span.span_id: span for span in spans}
    moved: dict[str, str] = {}
    headings: list[Span] = []
    for job in jobs:
        topmost = [
            span
            for span in spans
            if job_of(span) == job and (span.parent_id not in by_id or job_of(by_id[span.parent_id]) != job)
        ]
        heading = _heading(job, [span for span in spans if job_of(span) == job])
        above = next((span.parent_id for span in topmost if span.parent_id in by_id), "")
        headings.append(msgspec.structs.replace(heading, parent_id=above))
        moved |= {span.span_id: heading.span_id for span in topmost}
    gathered = [
        msgspec.structs.replace(span, parent_id=moved[span.span_id]) if span.span_id in moved else span
        for span in spans
    ]
    return sorted([*gathered, *headings], key=lambda span: span.start_ns)


def _heading(job: str, its: Sequence[Span]) -> Span:
    name = next((span.attributes[_NAME] for span in its if span.attributes.get(_NAME)), job)
    return Span(
        trace_id=its[0].trace_id,
        span_id=f"job {job}",
        parent_id="",
        name=f"job {name}",
        service="",
        start_ns=min(span.start_ns for span in its),
        end_ns=max(span.end_ns for span in its),
        attributes={"muster.job_id": job},
    )


class Row(msgspec.Struct, frozen=True):
    """A span in its place: ``guides`` is drawn before its name; ``orphan``: its parent is not in the trace.

    The heading of a job is a row too; its span has no service.
    """

    span: Span
    guides: str
    orphan: bool = False

    @property
    def is_heading(self) -> bool:
        """Whether the row is the heading of a job."""
        return not self.span.service


class SpanTrees(msgspec.Struct, frozen=True):
    """A trace as rows in drawing order. Times are those of the whole trace, in nanoseconds."""

    rows: tuple[Row, ...]
    roots: int
    orphans: int
    start_ns: int
    end_ns: int


def build_trees(spans: Sequence[Span]) -> SpanTrees:
    """Build the trees; there is at least one span. Spans that are each other's ancestors count as orphans."""
    known = {span.span_id for span in spans}
    lost = {span.span_id for span in spans if span.parent_id and span.parent_id not in known}
    shown = with_headings(spans)
    ids = {span.span_id for span in shown}
    children: dict[str, list[Span]] = {}
    for span in shown:
        children.setdefault(span.parent_id if span.parent_id in ids else "", []).append(span)
    rows: list[Row] = []
    drawn: set[str] = set()
    for top in children.get("", []):
        rows += _rows(top, children, drawn, lost)
    for span in shown:
        if span.span_id not in drawn:
            rows += _rows(span, children, drawn, lost | {span.span_id})
    orphans = sum(1 for row in rows if row.orphan)
    return SpanTrees(
        rows=tuple(rows),
        roots=sum(1 for span in spans if not span.parent_id),
        orphans=orphans,
        start_ns=min(span.start_ns for span in spans),
        end_ns=max(span.end_ns for span in spans),
    )


def _rows(top: Span, children: dict[str, list[Span]], drawn: set[str], lost: set[str]) -> Iterator[Row]:
    drawn.add(top.span_id)
    yield Row(top, "", top.span_id in lost)
    yield from _beneath(top, "", children, drawn, lost)


def _beneath(
    parent: Span, indent: str, children: dict[str, list[Span]], drawn: set[str], lost: set[str]
) -> Iterator[Row]:
    fresh = [span for span in children.get(parent.span_id, []) if span.span_id not in drawn]
    for span in fresh:
        last = span is fresh[-1]
        drawn.add(span.span_id)
        yield Row(span, f"{indent}{'└─ ' if last else '├─ '}", span.span_id in lost)
        yield from _beneath(span, f"{indent}{'   ' if last else '│  '}", children, drawn, lost)


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
_LEAST_BAR = 12
_COLUMNS_FOR_DETAILS = 40
_MOST_BAR = 60
_MOST_NAME = 44


def draw(trees: SpanTrees, *, width: int) -> Iterator[Text]:
    """Return the lines of the picture, headers first; no line exceeds ``width`` cells."""
    services = {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(_services(trees))}
    names = [f"{row.guides}{'? ' if row.orphan else ''}{row.span.name}" for row in trees.rows]
    name_width = min(max(cell_len(name) for name in names), _MOST_NAME)
    service_width = max(len(name) for name in services)
    offsets = [length(row.span.start_ns - trees.start_ns) for row in trees.rows]
    lengths = [length(row.span.end_ns - row.span.start_ns) for row in trees.rows]
    start_width = max(len("START"), *(len(text) + 1 for text in offsets))
    length_width = max(len("LENGTH"), *(len(text) for text in lengths))
    fixed = name_width + service_width + start_width + length_width + 8
    columns = width - fixed
    bar = max(_LEAST_BAR, min(_MOST_BAR, columns * 3 // 5 if columns >= _COLUMNS_FOR_DETAILS else columns))
    heads = f"{'SPAN':<{name_width}}  {'SERVICE':<{service_width}}  {'START':>{start_width}}  {'LENGTH':>{length_width}}"
    yield _cut(Text(heads, style="bold"), width)
    for row, name, offset, took in zip(trees.rows, names, offsets, lengths, strict=True):
        colour = services.get(row.span.service, "bold")
        line = Text.assemble(
            (set_cell_size(name, name_width), "red" if row.span.failed else "bold" if row.is_heading else ""),
            "  ",
            (f"{row.span.service:<{service_width}}", colour),
            f"  {'+' + offset:>{start_width}}  {took:>{length_width}}  ",
            (_bar(row.span, trees, bar), colour),
            "  ",
            (_about(row) if columns >= _COLUMNS_FOR_DETAILS else "", "red" if row.span.failed else "dim"),
        )
        line.rstrip()
        yield _cut(line, width)


def notes(trees: SpanTrees, *, width: int) -> Iterator[str]:
    """Return the events and links of the spans as lines below the picture, none wider than ``width``.

    An event that several spans have is listed with the first of them.
    """
    events: dict[tuple[int, str, str], Span] = {}
    for row in trees.rows:
        for event in row.span.events:
            events.setdefault((event.at_ns, event.name, _event_details(event)), row.span)
    if events:
        yield from ("", "EVENTS")
    for (at_ns, name, details), span in sorted(events.items(), key=lambda one: one[0][0]):
        offset = "+" + length(at_ns - trees.start_ns)
        title = span.name if name == span.name else f"{span.name}: {name}"
        yield from _wrapped(f"{offset:>8}  ", f"{title}: {details}", width)
    links = [(link, row.span) for row in trees.rows for link in row.span.links]
    if links:
        yield from ("", "LINKS")
    for link, span in links:
        target = " ".join(
            filter(None, (link.attributes.get("muster.link"), link.attributes.get("muster.job")))
        )
        text = f"{span.name} -> {target or f'span {link.span_id}'}"
        elsewhere = link.trace_id != span.trace_id
        yield from _wrapped("  ", f"{text}: muster trace {link.trace_id}" if elsewhere else text, width)


def _event_details(event: TraceEvent) -> str:
    told = event.attributes
    kind = told.get("exception.type") or told.get("muster.code", "")
    message = told.get("exception.message") or told.get("muster.reason", "")
    others = [
        f"{name.removeprefix(_PREFIX)}={value}"
        for name, value in told.items()
        if name.startswith(_PREFIX) and name not in {"muster.code", "muster.reason"}
    ]
    return " ".join(filter(None, (kind, message, f"({', '.join(others)})" if others else "")))


def _wrapped(first: str, text: str, width: int) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_on_hyphens=False,
    )


def summary(trees: SpanTrees, trace_id: str) -> str:
    """Return a summary; a trace that is not one tree says so."""
    services = len(_services(trees))
    parts = [
        f"trace {trace_id}: {length(trees.end_ns - trees.start_ns)}",
        f"{sum(1 for row in trees.rows if not row.is_heading)} spans of {services} service{'' if services == 1 else 's'}",
    ]
    jobs = sum(1 for row in trees.rows if row.is_heading)
    if jobs:
        parts.append(f"{jobs} jobs")
    if trees.roots != 1:
        parts.append(f"{trees.roots} roots" if trees.roots else "no root")
    if trees.orphans:
        parts.append(f"{trees.orphans} marked ? whose parent has not arrived or is lost")
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


def _services(trees: SpanTrees) -> list[str]:
    return list(dict.fromkeys(row.span.service for row in trees.rows if not row.is_heading))


def _bar(span: Span, trees: SpanTrees, width: int) -> str:
    """Return a bar from the span's start to its end, to an eighth of a cell; never invisible."""
    whole = max(1, trees.end_ns - trees.start_ns)
    eighths = width * 8
    start = (span.start_ns - trees.start_ns) * eighths // whole
    end = max(start + 1, (span.end_ns - trees.start_ns) * eighths // whole)
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
