"""Group the spans of each job under a heading if a trace contains several jobs of one document."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from muster._trace.spans import Span

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
