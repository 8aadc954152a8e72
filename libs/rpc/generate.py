"""Generate the Python of ``proto/``, and lint ``proto/``.

The proto package is ``muster.v1``, but ``import muster`` is the client library: the modules live in ``muster_rpc.v1`` and only their
imports are rewritten. Their descriptors keep the names that every other language sees. The other ``PACKAGES`` work the same way.

Usage: ``python libs/rpc/generate.py [--check | --go FOLDER]``; with ``--check`` nothing is written, ``buf lint`` runs, and the exit code is
1 when the committed files differ or the lint fails. With ``--go`` the Go client goes to ``FOLDER/gen``, by ``proto/buf.gen.yaml``:
protoc-gen-go and protoc-gen-go-grpc must be on the path.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROTO = ROOT / "proto"


@dataclass(frozen=True)
class Package:
    """A proto package ``proto`` and the Python package ``python`` generated from it below ``base``, with or without gRPC stubs."""

    proto: str
    python: str
    base: str
    services: bool

    @property
    def source(self) -> Path:
        """The folder of its protos."""
        return PROTO / self.proto.replace(".", "/")

    @property
    def target(self) -> Path:
        """The folder of its modules."""
        return ROOT / self.base / self.python.replace(".", "/")


PACKAGES = (
    Package(proto="muster.v1", python="muster_rpc.v1", base="libs/rpc", services=True),
    Package(proto="muster.internal.v1", python="muster_rpc.internal.v1", base="libs/rpc", services=True),
    Package(
        proto="muster.kubernetes.v1",
        python="muster_runtimes.kubernetes.v1",
        base="libs/runtimes",
        services=False,
    ),
)


def googleapis() -> Path:
    """The folder that has ``google/api/*.proto``: they come with googleapis-common-protos, so nothing is downloaded."""
    from google.api import field_behavior_pb2  # noqa: PLC0415 (only developers have it)

    return Path(field_behavior_pb2.__file__).parents[2]


@contextmanager
def workspace() -> Generator[Path]:
    """A temporary buf workspace: a copy of ``proto/`` beside the protos of Google that it imports."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        shutil.copytree(PROTO, root, dirs_exist_ok=True)
        (root / "google/api").mkdir(parents=True)
        shutil.copy(googleapis() / "google/api/field_behavior.proto", root / "google/api")
        yield root


def buf(*arguments: str) -> int:
    """Run buf on ``proto/``. Returns its exit code."""
    program = Path(sys.executable).parent / "buf"
    with workspace() as root:
        return subprocess.run([program, *arguments], cwd=root, check=False).returncode


def generate(package: Package) -> dict[str, str]:
    """File name -> content of every module of a package."""
    import grpc_tools  # noqa: PLC0415 (only developers have it)

    includes = Path(grpc_tools.__file__).parent / "_proto"
    outs = ["python_out", "mypy_out"]
    if package.services:
        outs += ["grpc_python_out", "mypy_grpc_out"]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "grpc_tools.protoc"]
        command += [f"-I{path}" for path in (PROTO, includes, googleapis())]
        command += [f"--{out}={'quiet:' * out.startswith('mypy')}{folder}" for out in outs]
        command += [
            f"--plugin=protoc-gen-{name}={Path(sys.executable).parent / f'protoc-gen-{name}'}"
            for name in ("mypy", "mypy_grpc")
        ]
        subprocess.run([*command, *map(str, sorted(package.source.glob("*.proto")))], check=True)
        produced = Path(folder) / package.proto.replace(".", "/")
        files = {path.name: _moved(path.read_text()) for path in sorted(produced.iterdir())}
    kind = "stubs" if package.services else "messages"
    files["__init__.py"] = (
        f'"""Generated {kind} of the proto package ``{package.proto}``; see ``libs/rpc/generate.py``."""\n'
    )
    return files


def _moved(source: str) -> str:
    for package in PACKAGES:
        proto = re.escape(package.proto)
        source = re.sub(
            rf"^(from|import) {proto}(?=[ .])", rf"\1 {package.python}", source, flags=re.MULTILINE
        )
        source = re.sub(rf"(?<![\w.]){proto}\.(\w+_pb2)\b", rf"{package.python}.\1", source)
    return source


def _stale(package: Package, files: dict[str, str]) -> list[str]:
    target = package.target
    present = {p.name: p.read_text() for p in target.glob("*.py*") if p.is_file()} if target.exists() else {}
    return sorted(name for name in files.keys() | present.keys() if files.get(name) != present.get(name))


def main() -> int:
    """Write or check the modules."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--go", type=Path, metavar="FOLDER")
    arguments = parser.parse_args()
    if arguments.go:
        return buf("generate", "--path", "muster/v1", "-o", str(arguments.go.resolve()))
    check: bool = arguments.check
    failed = check and buf("lint") != 0
    for package in PACKAGES:
        files = generate(package)
        for name in _stale(package, files):
            path = package.target / name
            if check:
                failed = True
                sys.stderr.write(f"{path.relative_to(ROOT)} differs from proto/: run `make proto`\n")
            elif name in files:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(files[name])
            else:
                path.unlink()
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
