"""Shared by all commands: server options, output, and clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console

    from muster._sync_client import Client
    from muster.aio import AsyncClient

FORMATS = ("table", "json", "yaml", "name")
RETRY_TIMEOUT_S = 5.0
STREAM_RETRY_TIMEOUT_S = 60.0

_WIDE = 10_000

P = ParamSpec("P")
R = TypeVar("R")


class State:
    """The options that all commands share. ``interrupt_note`` is printed on Ctrl-C: what continues, and how to see it."""

    def __init__(self) -> None:
        self.server: str | None = None
        self.namespace = ""
        self.output = "table"
        self.retry_timeout_s: float | None = None
        self.interrupt_note = ""
        self._out: Console | None = None
        self._err: Console | None = None

    @property
    def out(self) -> Console:
        """Standard output; unlimited width in a pipe, so that nothing is cut."""
        if self._out is None:
            self._out = _console(stderr=False)
        return self._out

    @property
    def err(self) -> Console:
        """Standard error."""
        if self._err is None:
            self._err = _console(stderr=True)
        return self._err

    @property
    def for_programs(self) -> bool:
        """Whether a program reads the output."""
        return self.output != "table"

    def client(self) -> Client:
        """Return a client that reports an unavailable server quickly."""
        from muster._sync_client import Client  # noqa: PLC0415 (imports gRPC)

        return Client(
            self.server, namespace=self.namespace, retry_timeout_s=self.retry_timeout_s or RETRY_TIMEOUT_S
        )

    def stream_client(self) -> Client:
        """Return a client for watches that waits longer for a server to return."""
        from muster._sync_client import Client  # noqa: PLC0415 (imports gRPC)

        retry_timeout_s = self.retry_timeout_s or STREAM_RETRY_TIMEOUT_S
        return Client(self.server, namespace=self.namespace, retry_timeout_s=retry_timeout_s)

    def async_stream_client(self) -> AsyncClient:
        """Return the patient asyncio client; call it within the event loop."""
        from muster.aio import AsyncClient  # noqa: PLC0415 (imports gRPC)

        retry_timeout_s = self.retry_timeout_s or STREAM_RETRY_TIMEOUT_S
        return AsyncClient(self.server, namespace=self.namespace, retry_timeout_s=retry_timeout_s)

    def note(self, text: str) -> None:
        """Print a message beside the answer, on standard error."""
        self.err.print(text, style="dim", soft_wrap=True)


def _console(*, stderr: bool) -> Console:
    from muster._cli.console import PrintableConsole  # noqa: PLC0415 (imports rich, which is slow)

    console = PrintableConsole(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _WIDE
    return console


def shared_options(command: Callable[P, R]) -> Callable[P, R]:
    """Add the shared options to a command; they may precede or follow its name."""

    def keep(ctx: click.Context, param: click.Parameter, value: str | float | None) -> None:
        if value is not None and param.name:
            setattr(ctx.ensure_object(State), param.name, value)

    for option in (
        click.option(
            "--timeout",
            "retry_timeout_s",
            type=click.FloatRange(0, min_open=True),
            metavar="SECONDS",
            help=f"How long to retry while the server is unavailable.  [{RETRY_TIMEOUT_S:g}; {STREAM_RETRY_TIMEOUT_S:g} for watches]",
            expose_value=False,
            callback=keep,
        ),
        click.option(
            "-o",
            "--output",
            type=click.Choice(FORMATS),
            help="table is for people; name prints references for other commands.  [table]",
            expose_value=False,
            callback=keep,
        ),
        click.option(
            "-n",
            "--namespace",
            metavar="NAME",
            help="The namespace of names, and of documents that name none.",
            expose_value=False,
            callback=keep,
        ),
        click.option(
            "--server",
            metavar="HOST:PORT",
            help="The server.  [MUSTER_SERVER, or 127.0.0.1:8700]",
            expose_value=False,
            callback=keep,
        ),
    ):
        command = option(command)
    return command
