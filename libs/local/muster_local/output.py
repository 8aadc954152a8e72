"""The output of `muster up`: log lines for the terminal, and the summaries at the start and at the end."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import msgspec

from muster_core.text import printable
from muster_local.log_lines import LogLine
from muster_local.processes import SUPERVISOR
from muster_local.programs import BROKER, DEFAULT_PORT, SERVICES, SINK, local_address

_RANK = {"debug": 0, "info": 1, "warning": 2, "error": 3}
_QUIET_SOURCES = frozenset({BROKER})
_PLUMBING = frozenset({"instance", "logger", "trace_id", "span_id"})
_WIDTH = 14

_RESET = "\x1b[0m"
_DIM = "\x1b[2m"
_YELLOW = "\x1b[33m"
_RED = "\x1b[31m"
_COLOURS: Mapping[str, str] = {
    name: f"\x1b[38;5;{colour}m"
    for name, colour in zip(
        (*SERVICES, SINK, BROKER, SUPERVISOR), (39, 141, 208, 78, 205, 44, 245, 245, 255), strict=True
    )
}
_LEVEL_COLOURS = {"warning": _YELLOW, "error": _RED}


def wants_colour(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Return whether to use colours on `stream`: it is a terminal, and NO_COLOR is not set."""
    return not environ.get("NO_COLOR") and environ.get("TERM") != "dumb" and stream.isatty()


class LogView:
    """Writes log lines to a stream.

    A closed stream, such as a terminal that was closed, is ignored.

    Args:
        stream: where to write.
        colour: use colours.
        verbose: write every line with all its fields; otherwise the broker's lines appear from warnings on, and the
            fields for tracing and the logger's name are left out.
    """

    def __init__(self, stream: TextIO, *, colour: bool, verbose: bool = False) -> None:
        self._stream = stream
        self._colour = colour
        self._verbose = verbose

    def show(self, line: LogLine) -> None:
        """Write a line, unless it is filtered out."""
        if self._verbose or line.source not in _QUIET_SOURCES or _RANK.get(line.level, 1) > _RANK["info"]:
            self.write(self.render(line))

    def write(self, text: str) -> None:
        """Write text unchanged, followed by a newline."""
        with suppress(OSError, ValueError):
            self._stream.write(text + "\n")
            self._stream.flush()

    def render(self, line: LogLine) -> str:
        """Return the text of a log line; a stack trace follows on lines of its own."""
        head = f"{self._paint(f'{line.at:%H:%M:%S}', _DIM)} {self._paint(f'{line.source:<{_WIDTH}}', _colour_of(line.source))} "
        last_output = self._paint(printable(line.message), _LEVEL_COLOURS.get(line.level, ""))
        if line.level in _LEVEL_COLOURS and not self._colour:
            last_output = f"{line.level.upper()} {last_output}"
        pairs = "".join(
            self._paint(f" {name}={_value(value)}", _DIM)
            for name, value in line.fields.items()
            if self._verbose or name not in _PLUMBING
        )
        trace = "".join(
            f"\n{head}{self._paint('  ' + printable(row), _DIM)}" for row in line.exception.splitlines()
        )
        return f"{head}{last_output}{pairs}{trace}"

    def _paint(self, text: str, colour: str) -> str:
        return f"{colour}{text}{_RESET}" if self._colour and colour else text


def _colour_of(source: str) -> str:
    """The colour of a program; additional instances (`scheduler-2`) have the colour of the first."""
    return _COLOURS.get(source) or _COLOURS.get(source.rpartition("-")[0], "")


def _value(value: object) -> str:
    if isinstance(value, str):
        text = printable(value)
        return repr(text) if text == "" or any(mark in text for mark in " ='\"") else text
    if isinstance(value, float):
        return f"{value:g}"
    return printable(msgspec.json.encode(value).decode())


_COLUMNS = 2


def ready_summary(
    *, seconds: float, address: str, bus_url: str, traces: str | None, metrics: Mapping[str, str], data: Path
) -> str:
    """Return the summary of a started system: the time taken, the addresses, and the next command to type."""
    rows = [("gateway", f"{address} (gRPC)"), ("broker", bus_url)]
    if traces is not None:
        rows.append(("traces", traces))
    rows.append(("data", str(data)))
    width = max(len(name) for name in metrics)
    cells = [f"{name:<{width}}  http://{where}/metrics" for name, where in metrics.items()]
    longest = max(len(cell) for cell in cells)
    table = [
        "   ".join(f"{cell:<{longest}}" for cell in cells[n : n + _COLUMNS]).rstrip()
        for n in range(0, len(cells), _COLUMNS)
    ]
    server = "" if address == local_address(DEFAULT_PORT) else f"--server {address} "
    return "\n".join(
        [
            "",
            f"Muster is ready after {seconds:.1f} s.",
            *(f"  {name:<8} {value}" for name, value in rows),
            *(f"  {'metrics' if n == 0 else '':<8} {row}" for n, row in enumerate(table)),
            f"Next: muster {server}submit -f examples/digits/tfjob.yaml --follow      Stop: Ctrl-C",
            "",
        ]
    )


def stop_summary(*, running: int) -> str:
    """Return the last line, with the number of replicas that are left running."""
    if not running:
        return "Muster has stopped."
    replicas = "1 replica continues; it" if running == 1 else f"{running} replicas continue; they"
    return (
        f"Muster has stopped. {replicas} will be found again by the next `muster up` with this data directory "
        "(`muster up --stop-jobs` ends the jobs on a stop, `--fresh` ends them before a start)."
    )
