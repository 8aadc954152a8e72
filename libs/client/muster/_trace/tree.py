"""Build trees of spans: children below their parents by start time, one tree for each job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from muster._trace.jobs import with_headings
from muster._trace.spans import Span


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


class Forest(msgspec.Struct, frozen=True):
    """A trace as rows in drawing order. Times are those of the whole trace, in nanoseconds."""

    rows: tuple[Row, ...]
    roots: int
    orphans: int
    start_ns: int
    end_ns: int


def plant(spans: Sequence[Span]) -> Forest:
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
    return Forest(
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
