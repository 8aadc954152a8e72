"""Lists in the requested output format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import click
from google.protobuf.message import Message

from muster._cli.output import emit_all
from muster._cli.state import State

M = TypeVar("M", bound=Message)


def show_all(
    state: State,
    found: Sequence[M],
    *,
    name_of: Callable[[M], str],
    otherwise: str,
    tables: Callable[[Sequence[M]], None],
) -> None:
    """Print ``found`` by ``tables``, or the text ``otherwise`` if it is empty."""
    match state.output:
        case "name":
            for one in found:
                click.echo(name_of(one))
        case "table" if not found:
            state.note(otherwise)
        case "table":
            tables(found)
        case _:
            emit_all(found, state.output)
