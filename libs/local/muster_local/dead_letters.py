"""The command `muster dead-letters`: list, show, replay and discard events that could not be handled."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import click
import msgspec

from muster_local.directory import DataDirectory, default_directory
from muster_local.endpoints import read_endpoints

if TYPE_CHECKING:
    from muster_bus import DeadLetter, DeadLetters

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_BUS_VARIABLE = "MUSTER_BUS_URL"
_CONNECT_S = 5.0
_NS = 1_000_000_000
_REASON_WIDTH = 60


class BrokerTarget(msgspec.Struct, frozen=True):
    """The broker to use, resolved on demand, so that `--help` needs no broker."""

    bus: str | None
    data: Path

    def url(self) -> str:
        """Return the broker's URL; end the command if there is none."""
        running = read_endpoints(DataDirectory(self.data).endpoints)
        url = self.bus or (running.bus_url if running else None)
        if url is None:
            raise click.ClickException(
                f"`muster up` does not run in {self.data}: start it, or name a broker with --bus"
            )
        return url


def _set_target(context: click.Context, parameter: click.Parameter, value: str | Path | None) -> None:
    """Store an option's value for this command and its subcommand."""
    known = context.find_object(BrokerTarget) or BrokerTarget(
        bus=os.environ.get(_BUS_VARIABLE), data=default_directory(os.environ)
    )
    context.obj = known if value is None else msgspec.structs.replace(known, **{parameter.name or "": value})


def _broker_options(command: Callable[P, R]) -> Callable[P, R]:
    """Add the options that select the broker, which the group and its subcommands accept."""
    for option in (
        click.option(
            "--bus",
            metavar="URL",
            callback=_set_target,
            expose_value=False,
            help=f"The broker's URL.  [{_BUS_VARIABLE}, or the broker of the `muster up` that runs in the data directory]",
        ),
        click.option(
            "--data",
            type=click.Path(file_okay=False, path_type=Path),
            callback=_set_target,
            expose_value=False,
            help="The data directory of that `muster up`.  [$XDG_STATE_HOME/muster, or ~/.local/state/muster]",
        ),
    ):
        command = option(command)
    return command


@click.group(name="dead-letters")
@_broker_options
def dead_letters() -> None:
    """Events that could not be handled.

    They do not block later events. Once the cause is fixed, replay an event: only the consumer that failed handles it
    again.
    """


@dead_letters.command(name="list")
@_broker_options
@click.pass_obj
def list_dead_letters(target: BrokerTarget) -> None:
    """List all dead letters, oldest first."""
    found = _call(target, lambda dead: dead.list())
    if not found:
        click.echo("There are no dead letters.")
        return
    rows = [("N", "FAILED AT", "CONSUMER", "MESSAGE", "REASON")]
    rows += [
        (str(one.sequence), _when(one.at_ns), one.consumer, one.subject, _short(one.reason)) for one in found
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        click.echo("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


@dead_letters.command(name="show")
@click.argument("number", metavar="N", type=click.IntRange(1))
@_broker_options
@click.pass_obj
def show_dead_letter(target: BrokerTarget, number: int) -> None:
    """Show one dead letter: its origin, headers, payload, and why it failed."""
    found = _require(_call(target, lambda dead: dead.get(number)), number)
    rows = [
        ("number", str(found.sequence)),
        ("failed at", f"{_when(found.at_ns)} by {found.consumer}, delivery {found.delivered}"),
        ("reason", found.reason),
        ("message", f"{found.subject} ({found.stream} {found.stream_sequence}, {_when(found.timestamp_ns)})"),
        *((f"header {name}", value) for name, value in sorted(found.headers.items())),
    ]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        click.echo(f"{name:<{width}}  {value}")
    click.echo(f"\n{_payload(found)}")


@dead_letters.command(name="replay")
@click.argument("number", metavar="N", type=click.IntRange(1))
@_broker_options
@click.pass_obj
def replay_dead_letter(target: BrokerTarget, number: int) -> None:
    """Let the consumer that failed handle the event again; the dead letter is removed on success."""
    _call(target, lambda dead: dead.replay(number))
    click.echo(f"Handled dead letter {number}.")


@dead_letters.command(name="discard")
@click.argument("number", metavar="N", type=click.IntRange(1))
@_broker_options
@click.pass_obj
def discard_dead_letter(target: BrokerTarget, number: int) -> None:
    """Remove a dead letter for good; its event is never handled."""

    async def discard(dead: "DeadLetters") -> None:
        _require(await dead.get(number), number)
        await dead.discard(number)

    _call(target, discard)
    click.echo(f"Discarded dead letter {number}.")


def _call(target: BrokerTarget, call: Callable[["DeadLetters"], Awaitable[T]]) -> T:
    """Run `call` against the broker, and convert errors to messages."""
    from muster_bus import Bus, BusNotFound, BusSettings, BusUnavailable, DeadLetters, ReplayFailed  # noqa: PLC0415
    from muster_events.catalogue import DEAD_STREAM  # noqa: PLC0415
    from muster_events.subjects import DEAD_PREFIX  # noqa: PLC0415

    url = target.url()

    async def ask() -> T:
        try:
            async with asyncio.timeout(_CONNECT_S):
                bus = await Bus.connect(BusSettings(url=url), name="dead-letters")
        except TimeoutError:
            raise click.ClickException(f"cannot reach the broker at {url}: is `muster up` running?") from None
        try:
            return await call(DeadLetters(bus, stream=DEAD_STREAM, prefix=DEAD_PREFIX))
        finally:
            await bus.close()

    try:
        return asyncio.run(ask())
    except BusNotFound as error:
        raise click.ClickException(error.description) from error
    except ReplayFailed as error:
        raise click.ClickException(f"the event failed again, and its dead letter is kept: {error}") from error
    except BusUnavailable as error:
        raise click.ClickException(
            f"no answer: {error}; the service that consumes the event may not be running"
        ) from error


def _require(dead_letter: "DeadLetter | None", number: int) -> "DeadLetter":
    if dead_letter is None:
        raise click.ClickException(f"there is no dead letter {number}")
    return dead_letter


def _when(nanoseconds: int) -> str:
    return datetime.fromtimestamp(nanoseconds / _NS, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _short(reason: str) -> str:
    line = " ".join(reason.split())
    return line if len(line) <= _REASON_WIDTH else line[: _REASON_WIDTH - 1] + "…"


def _payload(dead_letter: "DeadLetter") -> str:
    if not dead_letter.whole:
        return "(the payload was too large to store and is no longer in its stream)"
    try:
        return msgspec.json.format(dead_letter.data).decode()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return repr(dead_letter.data)
