"""Generate the gRPC stubs from ``proto/`` into ``muster_rpc.v1``.

The proto package is ``muster.v1``, but ``import muster`` is the client library: so the modules live in ``muster_rpc.v1`` and only
their imports are rewritten. Their descriptors keep the names that every other language sees.

Usage: ``python libs/rpc/generate.py [--check]``; with ``--check`` nothing is written, and the exit code is 1 when the committed
stubs differ.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "libs/rpc/muster_rpc/v1"


def generate() -> dict[str, str]:
    """File name -> content of every stub."""
    import grpc_tools  # noqa: PLC0415 (only developers have it)

    includes = Path(grpc_tools.__file__).parent / "_proto"
    protos = sorted((ROOT / "proto/muster/v1").glob("*.proto"))
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT / 'proto'}", f"-I{includes}"]
        command += [
            f"--{out}={folder}" for out in ("python_out", "grpc_python_out", "mypy_out", "mypy_grpc_out")
        ]
        command += [
            f"--plugin=protoc-gen-{name}={Path(sys.executable).parent / f'protoc-gen-{name}'}"
            for name in ("mypy", "mypy_grpc")
        ]
        subprocess.run([*command, *map(str, protos)], check=True)
        produced = Path(folder) / "muster/v1"
        files = {path.name: _moved(path.read_text()) for path in sorted(produced.iterdir())}
    files["__init__.py"] = (
        '"""Generated stubs of the proto package ``muster.v1``; see ``libs/rpc/generate.py``."""\n'
    )
    return files


def _moved(source: str) -> str:
    source = re.sub(r"^(from|import) muster\.v1\b", r"\1 muster_rpc.v1", source, flags=re.MULTILINE)
    return re.sub(r"\bmuster\.v1\.(\w+_pb2)\b", r"muster_rpc.v1.\1", source)


def main() -> int:
    """Write or check the stubs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    files = generate()
    present = {p.name: p.read_text() for p in TARGET.glob("*.py*") if p.is_file()} if TARGET.exists() else {}
    stale = sorted(name for name in files.keys() | present.keys() if files.get(name) != present.get(name))
    if check:
        for name in stale:
            sys.stderr.write(f"libs/rpc/muster_rpc/v1/{name} differs from proto/: run `make proto`\n")
        return 1 if stale else 0
    TARGET.mkdir(parents=True, exist_ok=True)
    for name in stale:
        if name in files:
            (TARGET / name).write_text(files[name])
        else:
            (TARGET / name).unlink()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
