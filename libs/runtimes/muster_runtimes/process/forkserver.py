"""The launcher's end of the fork server: asks for shims, and hears what became of them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

_SHIM = Path(__file__).with_name("shim.py")
_END_PATIENCE_S = 5.0


class ForkServer:
    """One child process that forks shims; started when first needed, and again if it was killed.

    It lives in a session of its own, so that a terminal's Ctrl-C or the end of the launcher's process group does not reach
    the shims through it. ``heard(name, problem)`` is called for every answer, ``problem`` being empty where the folder tells, and
    ``died()`` where it ended by itself: what it had not answered yet, it will not.
    """

    def __init__(self, *, root: Path, heard: Callable[[str, str], None], died: Callable[[], None]) -> None:
        self._root = root
        self._heard = heard
        self._died = died
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""

    def ask(self, name: str) -> None:
        """Have a shim forked for the replica folder ``name`` (relative to the root). Needs a running event loop."""
        for _ in range(2):
            process = self._process or self._start()
            assert process.stdin is not None
            try:
                os.write(process.stdin.fileno(), f"{name}\n".encode())
            except BrokenPipeError:
                self.close()
            else:
                return
        raise ChildProcessError("the fork server ends as soon as it starts")

    def close(self) -> None:
        """End the server; shims and replicas go on."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        loop = asyncio.get_running_loop()
        loop.remove_reader(process.stdout.fileno())
        process.stdin.close()
        process.stdout.close()
        try:
            process.wait(_END_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-X", "utf8", str(_SHIM), str(self._root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            bufsize=0,
            start_new_session=True,
        )
        assert process.stdout is not None
        asyncio.get_running_loop().add_reader(process.stdout.fileno(), self._read, process)
        self._process = process
        self._rest = b""
        return process

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        data = os.read(process.stdout.fileno(), 65536)
        if not data:
            self.close()
            self._died()
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            name, _, problem = line.decode().partition("\t")
            self._heard(name, problem)
