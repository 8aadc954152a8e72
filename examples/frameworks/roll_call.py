"""A roll call: one replica waits for all others, each sends its name, and all receive the list.

The simplest program that works only if every replica's environment is right: the address of the first, the number of
replicas, and its own identity. Each framework's example derives these in the framework's own way.
"""

import json
import os
import socket
import time

PATIENCE_S = 60.0


def roll_call(address: tuple[str, int], *, size: int, leads: bool, name: str) -> list[str]:
    """Return the names of all ``size`` replicas, sorted; the one that ``leads`` waits at ``address`` (host, port).

    Raises ``RuntimeError`` if two have the same name, ``TimeoutError`` if one does not come.
    """
    names = _lead(address, size, name) if leads else _join(address, name)
    if len(set(names)) != size:
        raise RuntimeError(f"expected {size} replicas, got: {', '.join(names)}")
    return names


def finish(names: list[str], expected: list[str]) -> int:
    """Print the names and return the exit code."""
    print(f"{os.environ['MUSTER_ROLE']}-{os.environ['MUSTER_INDEX']} met {', '.join(names)}", flush=True)
    if names == sorted(expected):
        return 0
    print(f"expected {', '.join(sorted(expected))}", flush=True)
    return 1


def _lead(address: tuple[str, int], size: int, name: str) -> list[str]:
    with socket.create_server(address) as server:
        server.settimeout(PATIENCE_S)
        callers = [server.accept()[0] for _ in range(size - 1)]
    lines = [caller.makefile("rw") for caller in callers]
    names = sorted([name, *(line.readline().strip() for line in lines)])
    for line, caller in zip(lines, callers, strict=True):
        line.write(json.dumps(names) + "\n")
        line.close()
        caller.close()
    return names


def _join(address: tuple[str, int], name: str) -> list[str]:
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            caller = socket.create_connection(address, timeout=PATIENCE_S)
            break
        except ConnectionRefusedError as error:
            # All replicas start at once: the first may not listen yet.
            if time.monotonic() > until:
                raise TimeoutError(f"no listener at {address}") from error
            time.sleep(0.05)
    with caller, caller.makefile("rw") as line:
        line.write(f"{name}\n")
        line.flush()
        return [str(name) for name in json.loads(line.readline())]
