"""``muster convert``: write a document in another format."""

from __future__ import annotations

import click

from muster._cli import exits
from muster._cli.documents import read_document
from muster._cli.findings import Finding, find, show_problems
from muster._cli.problems import counted, print_problems
from muster._cli.state import State
from muster_formats.export.conversion import TARGETS
from muster_formats.export.conversion import convert as write_as

_EXAMPLES = """\b
Examples:
  muster convert polyaxonfile.yml -o native
  muster convert train.sh -o tfjob > tfjob.yaml"""


@click.command(epilog=_EXAMPLES)
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
    finding = find(read_document(file), namespace)
    show_problems(state, finding)
    if finding.refused:
        _refuse(ctx, state, finding, counted(finding.problems))
    converted = write_as(finding.jobs, target)
    if converted.losses:
        print_problems(state.err, converted.losses, text="", source_name=finding.given.name)
    if converted.rejected:
        _refuse(ctx, state, finding, f"it cannot be written as {TARGETS[target].title}")
    click.echo(converted.text, nl=False)


def _refuse(ctx: click.Context, state: State, finding: Finding, why: str) -> None:
    state.err.print(f"muster: {finding.given.name} is refused: {why}", soft_wrap=True)
    ctx.exit(exits.REFUSED)
