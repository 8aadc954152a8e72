"""``muster validate``: report every problem of documents."""

from __future__ import annotations

import click

from muster._cli import exits
from muster._cli.documents import read_document
from muster._cli.findings import ask, find, report
from muster._cli.state import State, shared_options

_EXAMPLES = """\b
Examples:
  muster validate job.yaml
  muster validate jobs/*.yaml -o json
  muster validate --online -n research job.yaml
  generate-job | muster validate -"""


@click.command(epilog=_EXAMPLES)
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
            findings = [ask(client, given) for given in documents]
    else:
        findings = [find(given, state.namespace) for given in documents]
    report(state, findings)
    if any(finding.refused for finding in findings):
        ctx.exit(exits.REFUSED)
