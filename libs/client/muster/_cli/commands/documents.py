"""Commands that need no server: ``muster validate``, ``convert`` and ``fields``."""

from __future__ import annotations

import click
import msgspec

from muster._cli import exit_codes
from muster._cli.documents import (
    ValidatedDocument,
    print_document_problems,
    read_document,
    report,
    validate_offline,
    validate_online,
)
from muster._cli.options import State, shared_options
from muster._cli.output import counted, print_problems, print_table, table
from muster_formats.export.conversion import TARGETS, convert as write_as
from muster_formats.fields import FieldDescription, FieldRow, UnknownFieldError, describe_field

_VALIDATE_EXAMPLES = """\b
Examples:
  muster validate job.yaml
  muster validate jobs/*.yaml -o json
  muster validate --online -n research job.yaml
  generate-job | muster validate -"""


@click.command(epilog=_VALIDATE_EXAMPLES)
@click.argument("files", nargs=-1, metavar="FILE|-...")
@click.option("-f", "--file", "more", multiple=True, metavar="FILE|-", help="A document; the same as FILE.")
@click.option(
    "--online",
    is_flag=True,
    help="Ask the server, which applies the platform defaults; implied by --server.  [offline]",
)
@shared_options
@click.pass_obj
@click.pass_context
def validate(
    ctx: click.Context, state: State, *, files: tuple[str, ...], more: tuple[str, ...], online: bool
) -> None:
    """Report every problem of documents in any format. Exits 3 if one of them would be rejected."""
    names = (*files, *more)
    if not names:
        raise click.UsageError("name a file, or - for standard input")
    documents = [read_document(name) for name in names]
    if online or state.server:
        with state.client() as client:
            validated_documents = [validate_online(client, given) for given in documents]
    else:
        validated_documents = [validate_offline(given, state.namespace) for given in documents]
    report(state, validated_documents)
    if any(validated.refused for validated in validated_documents):
        ctx.exit(exit_codes.REFUSED)


_CONVERT_EXAMPLES = """\b
Examples:
  muster convert polyaxonfile.yml -o native
  muster convert train.sh -o tfjob > tfjob.yaml"""


@click.command(epilog=_CONVERT_EXAMPLES)
@click.argument("file", metavar="FILE|-")
@click.option(
    "-o",
    "--output",
    "target",
    type=click.Choice(tuple(TARGETS)),
    default="native",
    help="The target format.  [native]",
)
@click.option(
    "-n", "--namespace", default="", metavar="NAME", help="The namespace of documents that name none."
)
@click.pass_obj
@click.pass_context
def convert(ctx: click.Context, state: State, *, file: str, target: str, namespace: str) -> None:
    """Write a document of any format in another format, offline.

    Lossy conversions are reported; if the job would change its meaning, nothing is written and the exit code is 3.
    """
    validated = validate_offline(read_document(file), namespace)
    print_document_problems(state, validated)
    if validated.refused:
        _refuse(ctx, state, validated, counted(validated.problems))
    converted = write_as(validated.jobs, target)
    if converted.losses:
        print_problems(state.err, converted.losses, text="", source_name=validated.given.name)
    if converted.rejected:
        _refuse(ctx, state, validated, f"it cannot be written as {TARGETS[target].title}")
    click.echo(converted.text, nl=False)


def _refuse(ctx: click.Context, state: State, validated: ValidatedDocument, why: str) -> None:
    state.err.print(f"muster: {validated.given.name} is refused: {why}", soft_wrap=True)
    ctx.exit(exit_codes.REFUSED)


_FIELDS_EXAMPLES = """\b
Examples:
  muster fields tfjob
  muster fields tfjob spec.tfReplicaSpecs.Worker
  muster fields native spec.elastic -o json"""


@click.command(epilog=_FIELDS_EXAMPLES)
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
