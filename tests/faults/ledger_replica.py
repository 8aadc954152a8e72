"""A replica that records its own start and end in a ledger, which no part of Muster reads or writes.

    python -I -S ledger_replica.py LEDGER SECONDS [exit=CODE] [ignore-term] [fork=COUNT] [flood=MIB]

Runs for SECONDS (`inf`: until SIGTERM). Each record is one JSON line, appended at once and synced, so that the ledger is complete
although the replica, Muster or the broker is killed. Only the standard library is imported: many of these start at once.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType

TERMINATED = 143
_CHUNK = b"x" * 65_535 + b"\n"


def record(ledger: str, what: str, **fields: object) -> None:
    """Append one line, and return once it is on the disk."""
    folder = os.path.dirname(os.environ.get("MUSTER_PROGRESS_FILE", ""))  # noqa: PTH120 - pathlib is slow to import
    line = {
        "what": what,
        "at": time.monotonic(),
        "job_id": os.environ["MUSTER_JOB_ID"],
        "role": os.environ["MUSTER_ROLE"],
        "index": int(os.environ["MUSTER_INDEX"]),
        "attempt": int(os.environ["MUSTER_ATTEMPT"]),
        "generation": int(os.environ["MUSTER_GENERATION"]),
        "restart": int(folder.rpartition(".")[2] or 0),
        "node": _node(folder),
        "pid": os.getpid(),
        **fields,
    }
    descriptor = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, json.dumps(line).encode() + b"\n")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def main(ledger: str, seconds: str, *flags: str) -> int:
    """Run as the flags say; return the exit code."""
    options: dict[str, str] = {}
    for flag in flags:
        name, _, value = flag.partition("=")
        options[name] = value
    record(ledger, "start")
    signal.signal(signal.SIGTERM, _on_sigterm(ledger, ignore="ignore-term" in options))
    for _ in range(int(options.get("fork", 0))):
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
    for _ in range(int(options.get("flood", 0)) * 16):
        sys.stdout.buffer.write(_CHUNK)
    deadline = time.monotonic() + float(seconds)
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, 3600))
    code = int(options.get("exit", 0))
    record(ledger, "end", exit_code=code)
    return code


def _on_sigterm(ledger: str, *, ignore: bool) -> Callable[[int, FrameType | None], None]:
    def end(_: int, __: FrameType | None) -> None:
        if not ignore:
            record(ledger, "end", exit_code=TERMINATED)
            os._exit(TERMINATED)

    return end


def _node(folder: str) -> str:
    try:
        with open(f"{folder}/spec.json") as spec:  # noqa: PTH123 - pathlib is slow to import
            return str(json.load(spec)["node"])
    except (OSError, ValueError, KeyError):
        return ""


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
