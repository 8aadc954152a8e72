"""The user's terminal while a command elsewhere has it: every key goes there, and so does its size.

One thread reads keys and hears of new sizes, so that the answers can be waited for meanwhile.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType

from muster._live import Execution
from muster._messages import Size

_PIECE_BYTES = 32 * 1024
_SIGNALLED = 128
_LEAVES = (signal.SIGTERM, signal.SIGHUP)
_FALLBACK = Size(24, 80)


def has_terminal() -> bool:
    """Whether standard input is a terminal; it may have been closed."""
    return sys.stdin is not None and sys.stdin.isatty()


def size_of_terminal() -> Size:
    """How large the terminal of standard input is."""
    with suppress(OSError):
        size = os.get_terminal_size(sys.stdin.fileno())
        return Size(size.lines, size.columns)
    return _FALLBACK


@contextmanager
def raw_terminal() -> Generator[None]:
    """Keys are not interpreted while this is entered, Ctrl-C included; on leaving the terminal is as it was."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def leave(signum: int, frame: FrameType | None) -> None:
        del frame
        raise SystemExit(_SIGNALLED + signum)

    previous = {signum: signal.signal(signum, leave) for signum in _LEAVES}
    try:
        tty.setraw(descriptor)
        yield
    finally:
        # One that was closed meanwhile needs nothing any more.
        with suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        for signum, handler in previous.items():
            signal.signal(signum, handler)


@contextmanager
def passing_on(execution: Execution, *, stdin: bool, sizes: bool) -> Generator[None]:
    """Standard input, and new sizes of the terminal, go to a command while this is entered."""
    heard, tell = os.pipe()
    os.set_blocking(tell, False)
    thread = threading.Thread(target=_pass_on, args=(execution, heard, stdin), daemon=True)
    thread.start()
    try:
        with _on_resize(lambda: os.write(tell, b"s")) if sizes else _nothing():
            yield
    finally:
        # Closed, it ends the thread, unless that waits for the command to take what was typed.
        os.close(tell)


@contextmanager
def _on_resize(tell: Callable[[], object]) -> Generator[None]:
    def changed(signum: int, frame: FrameType | None) -> None:
        del signum, frame
        with suppress(BlockingIOError):
            tell()

    previous = signal.signal(signal.SIGWINCH, changed)
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, previous)


@contextmanager
def _nothing() -> Generator[None]:
    yield


def _pass_on(execution: Execution, heard: int, stdin: bool) -> None:
    keys = sys.stdin.fileno() if stdin and sys.stdin is not None else None
    try:
        if stdin and keys is None:
            execution.end_input()
        while True:
            sources = [heard] if keys is None else [heard, keys]
            ready, _, _ = select.select(sources, [], [])
            if heard in ready:
                if not os.read(heard, _PIECE_BYTES):
                    return
                execution.resize(size_of_terminal())
            if keys is not None and keys in ready:
                if data := _read(keys):
                    execution.write(data)
                else:
                    execution.end_input()
                    keys = None
    finally:
        os.close(heard)


def _read(keys: int) -> bytes:
    try:
        return os.read(keys, _PIECE_BYTES)
    except OSError:
        # A terminal that was closed says so in this way.
        return b""
