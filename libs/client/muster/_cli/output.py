"""Output: JSON or YAML for programs; tables without frames and problems of documents for people."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from muster_core.models import Problem, Severity
from muster_formats import render_problems

if TYPE_CHECKING:
    from google.protobuf.message import Message

Cell = str | Text


def emit(message: Message, output: str) -> None:
    """Print one message."""
    emit_plain(_plain(message), output)


def emit_all(messages: Sequence[Message], output: str) -> None:
    """Print messages as one array."""
    emit_plain([_plain(message) for message in messages], output)


def emit_line(message: Message, output: str) -> None:
    """Print one message of a stream: a line of JSON, or a YAML document."""
    if output == "yaml":
        click.echo("---")
        emit_plain(_plain(message), output)
    else:
        click.echo(json.dumps(_plain(message), separators=(",", ":")))


def emit_plain(plain: object, output: str) -> None:
    """Print a JSON value."""
    if output == "yaml":
        import yaml  # noqa: PLC0415 (only for this format)

        click.echo(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True), nl=False)
    else:
        click.echo(json.dumps(plain, indent=2))


def wants_colour(console: Console) -> bool:
    """Return whether output that bypasses the console is coloured like the console's."""
    return console.is_terminal and not console.no_color


def print_problems(console: Console, problems: Sequence[Problem], *, text: str, source_name: str) -> None:
    """Print every problem to the console's file, errors first."""
    ordered = sorted(problems, key=lambda problem: problem.severity is not Severity.ERROR)
    shown = render_problems(ordered, text, source_name, colour=wants_colour(console))
    console.file.write(shown.rstrip("\n") + "\n")
    console.file.flush()


def counted(problems: Sequence[Problem]) -> str:
    """Return ``2 errors, 1 warning``."""
    errors = sum(1 for problem in problems if problem.severity is Severity.ERROR)
    numbers = ((errors, "error"), (len(problems) - errors, "warning"))
    return ", ".join(f"{n} {noun}{'' if n == 1 else 's'}" for n, noun in numbers if n) or "no problems"


def _plain(message: Message) -> dict[str, object]:
    from google.protobuf import json_format  # noqa: PLC0415 (commands without a server need no protobuf)

    return json_format.MessageToDict(message)


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    right: Collection[str] = (),
    wrapped: bool = False,
) -> Table:
    """Build a table; empty columns are dropped, and only the last column is cut to the terminal's width.

    Columns under the headers ``right`` are right-aligned numbers. With ``wrapped`` the last column continues on further
    lines.
    """
    kept = [i for i in range(len(headers)) if any(str(row[i]) for row in rows)]
    drawn = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 3, 0, 0))
    for position, i in enumerate(kept):
        last = position == len(kept) - 1
        drawn.add_column(
            headers[i],
            justify="right" if headers[i] in right else "left",
            no_wrap=not (last and wrapped),
            overflow="fold" if last and wrapped else "ellipsis",
            min_width=None if last else _width(i, headers, rows),
        )
    for row in rows:
        drawn.add_row(*(row[i] if isinstance(row[i], Text) else Text(str(row[i])) for i in kept))
    return drawn


def print_table(console: Console, drawn: Table) -> None:
    """Print a table without trailing blanks."""
    if console.is_terminal:
        console.print(drawn)
        return
    with console.capture() as captured:
        console.print(drawn)
    for line in captured.get().splitlines():
        console.print(Text(line.rstrip()), soft_wrap=True)


def _width(column: int, headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> int:
    return max(len(headers[column]), *(len(str(row[column])) for row in rows))
