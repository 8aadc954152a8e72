"""The page of ``muster explain``: the reason, what excludes nodes, the queue, and remedies."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from muster._cli import formatting
from muster._cli.formatting import numbers_not_in
from muster._cli.output import print_table, table
from muster_core.quantities import format_amount, listed, resource_label
from muster_rpc.convert import constraint_name, phase_from_proto
from muster_rpc.v1 import explanation_pb2

_AHEAD_NAMED = 5
_NODES_NAMED = 4


def print_explanation(console: Console, said: explanation_pb2.Explanation, now: float) -> None:
    """Print the page; ``now`` is in seconds since the epoch."""
    for line in _head(said, now):
        console.print(line, soft_wrap=True)
    for drawn in _tables(said):
        console.print()
        print_table(console, drawn)
    stands = [f"{label}: {what}" for label, what in standing(said, now)]
    for heading, lines in (("", stands), ("What helps:", [f"  - {one.message}" for one in said.remedies])):
        if lines:
            console.print()
        if lines and heading:
            console.print(Text(heading, style="bold"))
        for line in lines:
            console.print(Text(line), soft_wrap=True)


def _head(said: explanation_pb2.Explanation, now: float) -> Iterator[Text]:
    phase = phase_from_proto(said.phase)
    name = said.name or said.job_id
    reason = said.reason.message
    code = f" ({said.reason.code})" if said.reason.code and phase and said.reason.code != phase.value else ""
    yield Text.assemble(
        (name, "bold"), f" is {phase.value if phase else said.phase}", f": {reason}" if reason else "", code
    )
    more = numbers_not_in(_without_tables(said), reason)
    if more:
        yield Text(f"  {', '.join(more)}", style="dim")
    for note in said.notes:
        yield Text(f"  {note}")
    if said.HasField("recorded_at"):
        yield Text(
            f"  as of {formatting.moment(said.recorded_at)}, {formatting.since(said.recorded_at, now)} ago",
            style="yellow",
        )


def _without_tables(said: explanation_pb2.Explanation) -> dict[str, int]:
    """Return the numbers of the reason that no table of the page shows."""
    told = ("needed.", "free.", "short.", "nodes") if said.missing or said.filtered else ()
    return {name: number for name, number in said.reason.numbers.items() if not name.startswith(told)}


def _tables(said: explanation_pb2.Explanation) -> Iterator[Table]:
    if said.missing:
        rows = [
            (
                resource_label(one.resource),
                format_amount(one.resource, one.needed),
                format_amount(one.resource, one.free),
                format_amount(one.resource, one.needed - one.free),
                _of(one.nodes, said.nodes),
            )
            for one in said.missing
        ]
        headers = ("RESOURCE", "NEEDED", "FREE", "SHORT", "FREE ON NODES")
        yield table(headers, rows, right=headers[1:])
    if said.filtered:
        rows = [
            (_of(one.nodes, said.nodes), constraint_name(one.constraint), one.message)
            for one in said.filtered
        ]
        yield table(("NODES", "EXCLUDED BY", "WHY"), rows, right=("NODES",))
    if said.roles:
        rows = [
            (
                one.role,
                str(one.size),
                str(one.min),
                str(one.wanted),
                str(one.max),
                str(one.surplus),
                str(one.can_add),
            )
            for one in said.roles
        ]
        headers = ("ROLE", "HAS", "MIN", "ASKED", "MAX", "MAY LEAVE", "COULD GAIN NOW")
        yield table(headers, rows, right=headers[1:])


def standing(said: explanation_pb2.Explanation, now: float) -> Iterator[tuple[str, str]]:
    """Yield queue position and reservations as labels and values."""
    if said.position:
        ahead = list(said.ahead[:_AHEAD_NAMED])
        before = said.position - 1
        others = f" and {before - len(ahead)} more" if before > len(ahead) else ""
        after = f", after {', '.join(ahead)}{others}" if ahead else ""
        yield "Queue", f"{said.queue or '-'}, number {said.position}{after}"
    elif said.queue:
        yield "Queue", said.queue
    if said.HasField("not_before"):
        yield "Not before", _when(formatting.instant(said.not_before), now)
    if said.HasField("blocked_by"):
        yield f"Reserved for {said.blocked_by.name}", _reservation(said.blocked_by, now)
    if said.HasField("reservation"):
        yield "Reserved for it", _reservation(said.reservation, now)
    if said.HasField("expected_start"):
        start = formatting.instant(said.expected_start)
        when = _when(start, now) if start > now else "at any moment"
        yield "Expected start", f"{when}, {said.expected_from}"
    elif said.expected_from:
        yield "Expected start", said.expected_from


def _reservation(kept: explanation_pb2.Reservation, now: float) -> str:
    parts = [listed(kept.nodes, _NODES_NAMED)]
    if kept.HasField("reserved_at"):
        parts.append(f"for {formatting.since(kept.reserved_at, now)}")
    parts.append("which it may preempt" if kept.freed else "since it waited too long")
    return ", ".join(parts)


def _when(at: float, now: float) -> str:
    clock = formatting.clock_of(at)
    return f"{clock} (in {formatting.age(at - now)})" if at > now else f"{clock}"


def _of(number: int, whole: int) -> str:
    return f"{number} of {whole}"
