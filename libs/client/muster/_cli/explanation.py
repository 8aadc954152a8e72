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


def print_explanation(console: Console, explanation: explanation_pb2.Explanation, now: float) -> None:
    """Print the page; ``now`` is in seconds since the epoch."""
    for line in _head(explanation, now):
        console.print(line, soft_wrap=True)
    for drawn in _tables(explanation):
        console.print()
        print_table(console, drawn)
    stands = [f"{label}: {what}" for label, what in standing(explanation, now)]
    for heading, lines in (
        ("", stands),
        ("What helps:", [f"  - {one.message}" for one in explanation.remedies]),
    ):
        if lines:
            console.print()
        if lines and heading:
            console.print(Text(heading, style="bold"))
        for line in lines:
            console.print(Text(line), soft_wrap=True)


def _head(explanation: explanation_pb2.Explanation, now: float) -> Iterator[Text]:
    phase = phase_from_proto(explanation.phase)
    name = explanation.name or explanation.job_id
    reason = explanation.reason.message
    code = (
        f" ({explanation.reason.code})"
        if explanation.reason.code and phase and explanation.reason.code != phase.value
        else ""
    )
    yield Text.assemble(
        (name, "bold"),
        f" is {phase.value if phase else explanation.phase}",
        f": {reason}" if reason else "",
        code,
    )
    more = numbers_not_in(_without_tables(explanation), reason)
    if more:
        yield Text(f"  {', '.join(more)}", style="dim")
    for note in explanation.notes:
        yield Text(f"  {note}")
    if explanation.HasField("recorded_at"):
        yield Text(
            f"  as of {formatting.moment(explanation.recorded_at)}, {formatting.since(explanation.recorded_at, now)} ago",
            style="yellow",
        )


def _without_tables(explanation: explanation_pb2.Explanation) -> dict[str, int]:
    """Return the numbers of the reason that no table of the page shows."""
    shown = ("needed.", "free.", "short.", "nodes") if explanation.missing or explanation.filtered else ()
    return {name: number for name, number in explanation.reason.numbers.items() if not name.startswith(shown)}


def _tables(explanation: explanation_pb2.Explanation) -> Iterator[Table]:
    if explanation.missing:
        rows = [
            (
                resource_label(one.resource),
                format_amount(one.resource, one.needed),
                format_amount(one.resource, one.free),
                format_amount(one.resource, one.needed - one.free),
                _of(one.nodes, explanation.nodes),
            )
            for one in explanation.missing
        ]
        headers = ("RESOURCE", "NEEDED", "FREE", "SHORT", "FREE ON NODES")
        yield table(headers, rows, right=headers[1:])
    if explanation.filtered:
        rows = [
            (_of(one.nodes, explanation.nodes), constraint_name(one.constraint), one.message)
            for one in explanation.filtered
        ]
        yield table(("NODES", "EXCLUDED BY", "WHY"), rows, right=("NODES",))
    if explanation.roles:
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
            for one in explanation.roles
        ]
        headers = ("ROLE", "HAS", "MIN", "ASKED", "MAX", "MAY LEAVE", "COULD GAIN NOW")
        yield table(headers, rows, right=headers[1:])


def standing(explanation: explanation_pb2.Explanation, now: float) -> Iterator[tuple[str, str]]:
    """Yield queue position and reservations as labels and values."""
    if explanation.position:
        ahead = list(explanation.ahead[:_AHEAD_NAMED])
        before = explanation.position - 1
        others = f" and {before - len(ahead)} more" if before > len(ahead) else ""
        after = f", after {', '.join(ahead)}{others}" if ahead else ""
        yield "Queue", f"{explanation.queue or '-'}, number {explanation.position}{after}"
    elif explanation.queue:
        yield "Queue", explanation.queue
    if explanation.HasField("not_before"):
        yield "Not before", _when(formatting.instant(explanation.not_before), now)
    if explanation.HasField("blocked_by"):
        yield f"Reserved for {explanation.blocked_by.name}", _reservation(explanation.blocked_by, now)
    if explanation.HasField("reservation"):
        yield "Reserved for it", _reservation(explanation.reservation, now)
    if explanation.HasField("expected_start"):
        start = formatting.instant(explanation.expected_start)
        when = _when(start, now) if start > now else "at any moment"
        yield "Expected start", f"{when}, {explanation.expected_from}"
    elif explanation.expected_from:
        yield "Expected start", explanation.expected_from


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
