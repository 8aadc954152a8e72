"""What is supervised, in words: a program, and the two ways in which supervision ends."""

from collections.abc import Mapping

import msgspec


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A program to keep running.

    `argv` starts with an absolute path. `env` is its whole environment. `grace_s` is the time between SIGTERM and
    SIGKILL. An end with `fatal_exit` is one that a restart cannot cure. `kept_fds` are inherited. `niceness` above 0 gives way
    to others.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    grace_s: float = 7.0
    fatal_exit: int | None = None
    kept_fds: tuple[int, ...] = ()
    niceness: int = 0


class LocalError(Exception):
    """Something about this machine that the user can mend; the message says what and how."""


class ProgramRefused(LocalError):
    """A program ended in a way that a restart cannot cure; `words` are the last lines that it wrote."""

    def __init__(self, name: str, exit_code: int, words: str) -> None:
        super().__init__(
            f"{name} refused to start (exit code {exit_code})" + (f":\n{words}" if words else "")
        )
        self.name = name
        self.exit_code = exit_code
        self.words = words


class NotReady(LocalError):
    """Some programs did not get ready in time."""

    def __init__(self, names: list[str], seconds: float) -> None:
        super().__init__(
            f"not ready within {seconds:g} s: {', '.join(names)}; the log above or `muster.log` in the data folder "
            "says why"
        )
        self.names = names
