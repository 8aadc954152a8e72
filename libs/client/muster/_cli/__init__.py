"""The ``muster`` command. Modules are imported when needed, so that ``--help`` and completion answer at once."""

from __future__ import annotations


def main() -> None:
    """Run the command with this process's arguments and exit with its code."""
    from muster._cli.app import app  # noqa: PLC0415 (see above)

    app(prog_name="muster")
