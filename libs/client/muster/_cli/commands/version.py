"""``muster version``: versions of the command and the server."""

from __future__ import annotations

import json
from importlib.metadata import version as installed_version

import click

from muster._cli.state import State, shared_options


@click.command()
@click.option("--client", "client_only", is_flag=True, help="Only the version of the command.")
@shared_options
@click.pass_obj
def version(state: State, client_only: bool) -> None:
    """Print the versions of the command and of the server."""
    own = installed_version("muster")
    if state.output == "table":
        click.echo(f"muster {own}")
    if client_only:
        if state.output != "table":
            click.echo(json.dumps({"client": own}))
        return
    with state.client() as client:
        answer = client.cluster()
        if state.output == "table":
            click.echo(f"server {answer.version} at {client.address}")
        else:
            click.echo(json.dumps({"client": own, "server": answer.version, "address": client.address}))
