"""The user's terminal while a remote command uses it: keys and size are forwarded.

One thread reads keys and size changes, so that output can be awaited meanwhile.
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

from muster._messages import Size
from muster._sync_client import Execution

_PIECE_BYTES = 32 * 1024
_SIGNALLED = 128
_LEAVES = (signal.SIGTERM, signal.SIGHUP)
_FALLBACK = Size(24, 80)


def has_terminal() -> bool:
    """Return whether standard input is an open terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


def size_of_terminal() -> Size:
    """Return the size of the terminal of standard input."""
    with suppress(OSError):
        size = os.get_terminal_size(sys.stdin.fileno())
        return Size(size.lines, size.columns)
    return _FALLBACK


@contextmanager
def raw_terminal() -> Generator[None]:
    """Pass keys uninterpreted, Ctrl-C included, and restore the terminal on exit."""
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
        # A terminal that was closed meanwhile needs no restoring.
        with suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        for signum, handler in previous.items():
            signal.signal(signum, handler)


@contextmanager
def forwarded_input(execution: Execution, *, stdin: bool, sizes: bool) -> Generator[None]:
    """Forward standard input and terminal sizes to a command while entered."""
    wakeup_reader, tell = os.pipe()
    os.set_blocking(tell, False)
    thread = threading.Thread(target=_pass_on, args=(execution, wakeup_reader, stdin), daemon=True)
    thread.start()
    try:
        with _on_resize(lambda: os.write(tell, b"s")) if sizes else _nothing():
            yield
    finally:
        # Closing it ends the thread, unless the thread waits for the command to take input.
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


def _pass_on(execution: Execution, wakeup_reader: int, stdin: bool) -> None:
    keys = sys.stdin.fileno() if stdin and sys.stdin is not None else None
    try:
        if stdin and keys is None:
            execution.end_input()
        while True:
            sources = [wakeup_reader] if keys is None else [wakeup_reader, keys]
            ready, _, _ = select.select(sources, [], [])
            if wakeup_reader in ready:
                if not os.read(wakeup_reader, _PIECE_BYTES):
                    return
                execution.resize(size_of_terminal())
            if keys is not None and keys in ready:
                if data := _read(keys):
                    execution.write(data)
                else:
                    execution.end_input()
                    keys = None
    finally:
        os.close(wakeup_reader)


def _read(keys: int) -> bytes:
    try:
        return os.read(keys, _PIECE_BYTES)
    except OSError:
        # A closed terminal reports this error.
        return b""
