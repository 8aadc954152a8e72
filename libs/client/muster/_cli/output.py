"""Output for programs: API messages as canonical JSON, or as YAML."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click
from google.protobuf import json_format
from google.protobuf.message import Message


def emit(message: Message, output: str) -> None:
    """Print one message."""
    emit_plain(json_format.MessageToDict(message), output)


def emit_all(messages: Sequence[Message], output: str) -> None:
    """Print messages as one array."""
    emit_plain([json_format.MessageToDict(message) for message in messages], output)


def emit_line(message: Message, output: str) -> None:
    """Print one message of a stream: a line of JSON, or a YAML document."""
    if output == "yaml":
        click.echo("---")
        emit_plain(json_format.MessageToDict(message), output)
    else:
        click.echo(json.dumps(json_format.MessageToDict(message), separators=(",", ":")))


def emit_plain(plain: object, output: str) -> None:
    """Print a JSON value."""
    if output == "yaml":
        import yaml  # noqa: PLC0415 (only for this format)

        click.echo(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True), nl=False)
    else:
        click.echo(json.dumps(plain, indent=2))
