"""Generate the Python of ``proto/``: the stubs of our own API, and the messages of others that a service reads.

The proto package is ``muster.v1``, but ``import muster`` is the client library: so the modules live in ``muster_rpc.v1`` and only
their imports are rewritten. Their descriptors keep the names that every other language sees. It is the same with the rest of ``PACKAGES``.

Usage: ``python libs/rpc/generate.py [--check]``; with ``--check`` nothing is written, and the exit code is 1 when the committed
files differ.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Package:
    """A proto package ``proto``, the Python package ``python`` that is made of it below the folder ``base``, with gRPC stubs or without."""

    proto: str
    python: str
    base: str
    services: bool

    @property
    def source(self) -> Path:
        """Where its protos are."""
        return ROOT / "proto" / self.proto.replace(".", "/")

    @property
    def target(self) -> Path:
        """Where its modules are."""
        return ROOT / self.base / self.python.replace(".", "/")


PACKAGES = (
    Package(proto="muster.v1", python="muster_rpc.v1", base="libs/rpc", services=True),
    Package(
        proto="muster.kubernetes.v1",
        python="muster_runtimes.kubernetes.v1",
        base="libs/runtimes",
        services=False,
    ),
)


def generate(package: Package) -> dict[str, str]:
    """File name -> content of every module of a package."""
    import grpc_tools  # noqa: PLC0415 (only developers have it)

    includes = Path(grpc_tools.__file__).parent / "_proto"
    outs = ["python_out", "mypy_out"]
    if package.services:
        outs += ["grpc_python_out", "mypy_grpc_out"]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT / 'proto'}", f"-I{includes}"]
        command += [f"--{out}={folder}" for out in outs]
        command += [
            f"--plugin=protoc-gen-{name}={Path(sys.executable).parent / f'protoc-gen-{name}'}"
            for name in ("mypy", "mypy_grpc")
        ]
        subprocess.run([*command, *map(str, sorted(package.source.glob("*.proto")))], check=True)
        produced = Path(folder) / package.proto.replace(".", "/")
        files = {path.name: _moved(path.read_text(), package) for path in sorted(produced.iterdir())}
    what = "stubs" if package.services else "messages"
    files["__init__.py"] = (
        f'"""Generated {what} of the proto package ``{package.proto}``; see ``libs/rpc/generate.py``."""\n'
    )
    return files


def _moved(source: str, package: Package) -> str:
    proto = re.escape(package.proto)
    source = re.sub(rf"^(from|import) {proto}\b", rf"\1 {package.python}", source, flags=re.MULTILINE)
    return re.sub(rf"\b{proto}\.(\w+_pb2)\b", rf"{package.python}.\1", source)


def _stale(package: Package, files: dict[str, str]) -> list[str]:
    target = package.target
    present = {p.name: p.read_text() for p in target.glob("*.py*") if p.is_file()} if target.exists() else {}
    return sorted(name for name in files.keys() | present.keys() if files.get(name) != present.get(name))


def main() -> int:
    """Write or check the modules."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    differ = False
    for package in PACKAGES:
        files = generate(package)
        for name in _stale(package, files):
            path = package.target / name
            differ = True
            if check:
                sys.stderr.write(f"{path.relative_to(ROOT)} differs from proto/: run `make proto`\n")
            elif name in files:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(files[name])
            else:
                path.unlink()
    return 1 if check and differ else 0


if __name__ == "__main__":
    raise SystemExit(main())
