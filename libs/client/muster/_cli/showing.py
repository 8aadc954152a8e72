"""Answers of many, in the form that was asked for."""

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
    """Show what was ``found``; people get ``tables``, and the words ``otherwise`` where there is nothing."""
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
