"""The images of a deployment: those of Muster are built, those of NATS, Jaeger and Prometheus are made of programs of this machine.

The latter have the names that ``compose.yaml`` has, so that it is tested as it is. They contain one program, its libraries, and busybox as
``wget`` for health checks, as the published images do.
"""

import io
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import msgspec

from muster_bus.server import find_server
from muster_testing.containers.base import BUILD, ROOT, base_archive, busybox, wheelhouse
from muster_testing.containers.engine import Engine
from muster_testing.containers.tools import JAEGER
from muster_testing.go_programs import find_installed

TAG = "test"
SOURCE = "https://muster.example/source"
LICENCES = "Apache-2.0"
BASE = "muster-base:test"

_PUBLISHED = re.compile(r"^\s+image: ((?:nats|jaegertracing|prom)\S+)$", re.MULTILINE)


class BuiltImages(msgspec.Struct, frozen=True, kw_only=True):
    """The engine with all images, and whether Prometheus is among them."""

    engine: Engine
    has_prometheus: bool


def build_muster(engine: Engine, *names: str) -> None:
    """Build images of Muster, or all, without a network."""
    if not engine.has_image(BASE):
        engine.run("import", "-", BASE, stdin=base_archive())
    subprocess.run(
        [
            *(sys.executable, BUILD, "images", "--base", BASE, "--wheelhouse", wheelhouse(), "--tag", TAG),
            *("--source", SOURCE, "--licences", LICENCES, "--offline", *names),
        ],
        env=engine.environment,
        check=True,
    )


def derive_image(engine: Engine, name: str, dockerfile: str) -> None:
    """Build an image from another one and nothing else, without a network."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "Dockerfile")
        file.write_text(dockerfile)
        engine.run("build", "--quiet", "--network", "none", "--tag", name, "-", stdin=file)


def provide_published(engine: Engine) -> bool:
    """Make the published images that ``compose.yaml`` names, unless the engine has them; return whether Prometheus is among them."""
    programs = {
        "nats": find_server(),
        "jaegertracing/jaeger": JAEGER.require("jaeger"),
        "prom/prometheus": find_installed("prometheus"),
    }
    has_prometheus = True
    for image in _PUBLISHED.findall((ROOT / "compose.yaml").read_text()):
        program = programs[image.partition(":")[0]]
        if engine.has_image(image):
            continue
        if program is None:
            has_prometheus = False
            continue
        with tempfile.TemporaryDirectory() as folder:
            archive = Path(folder, "image.tar")
            _write_archive(archive, Path(program))
            entry = f'ENTRYPOINT ["/bin/{Path(program).name}"]'
            engine.run("import", "--change", entry, "-", image, stdin=archive)
    return has_prometheus


def _write_archive(file: Path, program: Path) -> None:
    with tarfile.open(file, "w") as archive:
        for folder in ("tmp", "etc", "proc", "sys", "dev", "data", "prometheus"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            archive.addfile(entry)
        _add(archive, f"bin/{program.name}", program.read_bytes())
        _add(archive, "bin/wget", busybox())
        for library in _libraries(program):
            _add(archive, str(library).lstrip("/"), library.read_bytes())


def _libraries(program: Path) -> list[Path]:
    found = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
    return [Path(path) for path in re.findall(r"(/\S+) \(0x", found.stdout)]


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o755
    archive.addfile(entry, io.BytesIO(content))
