"""Parse traces. The format is recognised by its column names; ambiguity is an error."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from muster_core.models import Problem
from muster_core.simulation.traces import own, philly_json, published
from muster_core.simulation.traces.cells import Cells
from muster_core.simulation.traces.model import Trace, TraceJob
from muster_core.simulation.traces.names import FORMATS, OWN, PHILLY_JSON

ReadRow = Callable[[Cells, int], TraceJob | None]


class TableFormat(msgspec.Struct, frozen=True, kw_only=True):
    """A tabular format: required columns, optional columns, and a row reader."""

    name: str
    required: frozenset[str]
    known: frozenset[str]
    read: ReadRow


_TABLES = (
    TableFormat(name=OWN, required=own.REQUIRED, known=own.KNOWN, read=own.read),
    TableFormat(
        name="tiresias",
        required=published.TIRESIAS,
        known=published.TIRESIAS_KNOWN,
        read=published.read_tiresias,
    ),
    TableFormat(name="muri", required=published.MURI, known=published.MURI_KNOWN, read=published.read_muri),
    TableFormat(
        name="pollux", required=published.POLLUX, known=published.POLLUX_KNOWN, read=published.read_pollux
    ),
    TableFormat(
        name="philly",
        required=published.PHILLY_CSV,
        known=published.PHILLY_CSV_KNOWN,
        read=published.read_philly,
    ),
    TableFormat(
        name="openb", required=published.OPENB, known=published.OPENB_KNOWN, read=published.read_openb
    ),
)


def read_trace(text: str, *, format_name: str = "") -> Trace:
    """Parse a trace; ``format_name`` (one of ``FORMATS``) overrides recognition by columns.

    The first arrival is time 0. Repeated names get a number.
    """
    if format_name == PHILLY_JSON or (not format_name and text.lstrip()[:1] == "["):
        trace = philly_json.read(text)
    else:
        trace = _read_table(text, format_name)
    return msgspec.structs.replace(trace, jobs=_in_order(trace.jobs))


def _read_table(text: str, format_name: str) -> Trace:
    reader = csv.DictReader(io.StringIO(text), restval="")
    columns = [column.strip() for column in reader.fieldnames or ()]
    reader.fieldnames = columns
    table = _chosen(columns, format_name)
    if isinstance(table, Problem):
        return Trace(format=format_name, problems=(table,))
    cells = Cells()
    for column in columns:
        if column not in table.known:
            cells.turn_to(1, {})
            cells.note(column, f"{table.name} has no column {column!r}: it is ignored")
    jobs: list[TraceJob] = []
    try:
        for row in reader:
            cells.turn_to(reader.line_num, row)
            job = table.read(cells, reader.line_num)
            if job is not None and not cells.failed:
                jobs.append(job)
    except csv.Error as error:
        cells.turn_to(reader.line_num, {})
        cells.wrong("", f"this is not a table: {error}")
    if not jobs and not cells.problems:
        cells.turn_to(1, {})
        cells.wrong("", "there are no jobs in it")
    return Trace(format=table.name, jobs=tuple(jobs), problems=tuple(cells.problems))


def _chosen(columns: Sequence[str], format_name: str) -> TableFormat | Problem:
    given = set(columns)
    if format_name:
        table = next((one for one in _TABLES if one.name == format_name), None)
        if table is None:
            return _problem(f"there is no format {format_name}", fix=f"use one of {', '.join(FORMATS)}")
        missing = sorted(table.required - given)
        if missing:
            return _problem(f"{format_name} has the columns {', '.join(missing)}, which are missing here")
        return table
    fitting = [one for one in _TABLES if one.required <= given]
    fitting = [one for one in fitting if not any(one.required < other.required for other in fitting)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        names = ", ".join(one.name for one in fitting)
        return _problem(f"the columns match several formats: {names}", fix="choose one with --format")
    nearest = min(_TABLES, key=lambda one: (len(one.required - given), one.name != OWN))
    missing = ", ".join(sorted(nearest.required - given))
    named = ", ".join(columns[:20]) or "none"
    return _problem(
        f"the columns ({named}) match no known format",
        fix=f"nearest is {nearest.name}, which has {missing} as well",
    )


def _problem(message: str, *, fix: str = "") -> Problem:
    return Problem(code="UnknownFormat", path="", message=message, line=1, column=1, fix=fix)


def _in_order(jobs: Iterable[TraceJob]) -> tuple[TraceJob, ...]:
    ordered = sorted(jobs, key=lambda job: job.submit_us)
    first = ordered[0].submit_us if ordered else 0
    used: dict[str, int] = {}
    return tuple(
        msgspec.structs.replace(job, submit_us=job.submit_us - first, name=_unique(job.name, used))
        for job in ordered
    )


def _unique(name: str, used: dict[str, int]) -> str:
    times = used.get(name, 0)
    used[name] = times + 1
    return _unique(f"{name}-{times + 1}", used) if times else name


def columns_of() -> Mapping[str, tuple[frozenset[str], frozenset[str]]]:
    """Return by tabular format its required columns, and all columns it reads."""
    return {table.name: (table.required, table.known) for table in _TABLES}
