"""A fake service, which logs that it is ready; its first argument is its behaviour.

serve: runs until SIGTERM. stubborn: ignores SIGTERM. crash: exits with code 1. refuse: exits with code 2.
parent FILE: starts a process in another session, writes its pid to FILE, and serves.
"""

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path


def log(message: str, **fields: object) -> None:
    line = {"ts": datetime.now(UTC).isoformat(), "level": "info", "msg": message, **fields}
    sys.stderr.write(json.dumps(line) + "\n")
    sys.stderr.flush()


def main(behaviour: str, *arguments: str) -> int:
    if behaviour == "refuse":
        sys.stderr.write("1 setting cannot be used:\n  MUSTER_BUS_URL='x': must be a URL\n")
        return 2
    if behaviour == "crash":
        sys.stderr.write("Traceback: it broke\n")
        return 1
    stops = {signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    if behaviour == "parent":
        detached = subprocess.Popen(
            ["/bin/sleep", "60"], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        Path(arguments[0]).write_text(str(detached.pid))
    log("ready", pid=os.getpid(), address=os.environ.get("MUSTER_GRPC_ADDRESS", ""))
    while True:
        signal.sigwait(stops)
        if behaviour != "stubborn":
            break
    log("drained")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
