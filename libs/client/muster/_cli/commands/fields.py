"""``muster fields``: the fields of a format, in the manner of ``kubectl explain``."""

from __future__ import annotations

import click
import msgspec

from muster._cli.state import State, shared_options
from muster._cli.tables import print_table, table
from muster_formats.fields import FieldDescription, FieldRow, UnknownFieldError, describe_field

_EXAMPLES = """\b
Examples:
  muster fields tfjob
  muster fields tfjob spec.tfReplicaSpecs.Worker
  muster fields native spec.elastic -o json"""


@click.command(epilog=_EXAMPLES)
@click.argument("format_name", metavar="FORMAT")
@click.argument("path", metavar="[PATH]", default="")
@click.option("-r", "--recursive", is_flag=True, help="Include the fields of all levels below.")
@shared_options
@click.pass_obj
def fields(state: State, format_name: str, path: str, recursive: bool) -> None:
    """Describe the fields of a format: type, effect, meaning. Needs no server.

    FORMAT is for example native, tfjob, batchjob, polyaxon-0/experiment, arena/tfjob or queue. PATH is a field path.
    """
    try:
        described = describe_field(format_name, path, recursive=recursive)
    except UnknownFieldError as error:
        raise click.UsageError(str(error)) from None
    match state.output:
        case "table":
            _print(state, described)
        case "name":
            for row in described.fields:
                click.echo(row.path)
        case output:
            from muster._cli.output import emit_plain  # noqa: PLC0415 (imports protobuf)

            emit_plain(msgspec.to_builtins(described), output)


def _print(state: State, described: FieldDescription) -> None:
    field = described.field
    click.echo(f"FORMAT  {described.format}")
    if field.path:
        click.echo(f"FIELD   {field.path} <{field.type}>")
        click.echo(f"EFFECT  {field.effect.value}")
    click.echo(f"        {_text(field)}")
    if described.fields:
        click.echo()
        prefix = f"{field.path}." if field.path else ""
        rows = [
            (row.path.removeprefix(prefix), row.type, row.effect.value, _text(row))
            for row in described.fields
        ]
        print_table(state.out, table(("FIELD", "TYPE", "EFFECT", "DESCRIPTION"), rows, wrapped=True))


def _text(row: FieldRow) -> str:
    """What a field is, and why it has no or only part of its effect."""
    why = f"{row.why[0].upper()}{row.why[1:]}." if row.why else ""
    return " ".join(part for part in (row.doc, why) if part)
