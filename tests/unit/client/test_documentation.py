"""The page about the command says what the command does."""

from __future__ import annotations

from pathlib import Path

import click

from muster._cli import exit_codes
from muster._cli.app import app

PAGE = (Path(__file__).resolve().parents[3] / "docs/cli.md").read_text()


def test_every_exit_code_is_documented_as_it_is():
    for code, meaning in exit_codes.TABLE:
        assert f"| {code} | {meaning} |" in PAGE


def test_every_command_and_its_options_are_documented():
    context = click.Context(app)
    for name in (
        "submit",
        "validate",
        "convert",
        "fields",
        "apply",
        "defaults",
        "list",
        "get",
        "watch",
        "logs",
        "exec",
        "port-forward",
        "explain",
        "scale",
        "cancel",
        "delete",
        "trace",
    ):
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{name} "))
        command = app.get_command(context, name)
        assert command is not None
        shared = {"server", "namespace", "output", "retry_timeout_s"}
        for parameter in command.get_params(context):
            if (
                isinstance(parameter, click.Option)
                and "--help" not in parameter.opts
                and parameter.name not in shared
            ):
                assert any(option in row for option in parameter.opts), (name, parameter.name)
