"""Images without a registry: an OCI archive with the Python that runs the tests, for containerd.

Nothing is downloaded or built: the interpreter, its standard library, a shell and a few commands are copied with their shared libraries, at
the same paths as on this machine, so that the virtual environment can be mounted at its own path.
"""

import hashlib
import io
import json
import os
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from muster_testing.cluster.tools import find

#: The image for pods; its tag is not ``latest``, so that no registry is contacted.
PYTHON_IMAGE = "localhost/muster-python:1"
#: The pause image, with the same files.
PAUSE_IMAGE = "localhost/muster-pause:1"

_COMMANDS = ("sh", "cat", "echo", "env", "false", "hostname", "ls", "sleep", "true")
_EXCLUDED = {
    *("test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3"),
    *("site-packages", "dist-packages", "__pycache__"),
}
#: Architecture names of images, by the kernel's names.
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_PATH = "/usr/local/bin:/usr/bin:/bin"


def write_archive(file: Path) -> None:
    """Write both images into one OCI archive for ``ctr images import``."""
    layer = _layer()
    layer_digest = hashlib.sha256(layer).hexdigest()
    blobs: dict[str, bytes] = {layer_digest: layer}
    manifests: list[Mapping[str, object]] = []
    for name, entrypoint in ((PYTHON_IMAGE, None), (PAUSE_IMAGE, [_on_path("sleep"), "infinity"])):
        config = _json(
            {
                "architecture": _ARCHITECTURES.get(os.uname().machine, os.uname().machine),
                "os": "linux",
                "config": {
                    "Env": [f"PATH={_PATH}"],
                    "Entrypoint": entrypoint,
                    "Cmd": None if entrypoint else ["python3"],
                },
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
            }
        )
        manifest = _json(
            {
                "schemaVersion": 2,
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": _keep(blobs, config, "application/vnd.oci.image.config.v1+json"),
                "layers": [_keep(blobs, layer, "application/vnd.oci.image.layer.v1.tar")],
            }
        )
        described = _keep(blobs, manifest, "application/vnd.oci.image.manifest.v1+json")
        manifests.append({**described, "annotations": {"io.containerd.image.name": name}})
    with tarfile.open(file, "w") as archive:
        _add(archive, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _add(archive, "index.json", _json({"schemaVersion": 2, "manifests": manifests}))
        for digest, content in blobs.items():
            _add(archive, f"blobs/sha256/{digest}", content)


def _layer() -> bytes:
    """Return the files of the image as a reproducible tar archive."""
    buffer = io.BytesIO()
    seen: set[str] = set()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in ("tmp", "etc", "proc", "sys", "dev", "root", "var/tmp"):
            _add_folder(archive, name, mode=0o1777 if name.endswith("tmp") else 0o755)
        _add(
            archive,
            "etc/passwd",
            b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
        )
        _add(archive, "etc/group", b"root:x:0:\nnogroup:x:65534:\n")
        _add(archive, "etc/nsswitch.conf", b"hosts: files dns\n")
        for path in sorted({*_files()}):
            inside = str(path).lstrip("/")
            if inside not in seen:
                seen.add(inside)
                _add(archive, inside, path.read_bytes(), mode=path.stat().st_mode & 0o777)
        for command in _COMMANDS:
            _add_copy_on_path(archive, command, seen)
        python = _interpreter()
        for name in ("python3", "python"):
            _add_link(archive, f"usr/local/bin/{name}", str(python))
    return buffer.getvalue()


def _files() -> Iterator[Path]:
    """Yield the paths of the image's files, which are the same on this machine."""
    python = _interpreter()
    library = Path(sysconfig.get_path("stdlib"))
    modules = [
        path for path in library.rglob("*") if path.is_file() and not _is_excluded(path.relative_to(library))
    ]
    programs = [python, *(Path(_on_path(command)) for command in _COMMANDS)]
    yield from modules
    yield python
    yield from _libraries([*programs, *(path for path in modules if path.suffix == ".so")])


def _is_excluded(path: Path) -> bool:
    return bool(_EXCLUDED & set(path.parts)) or path.parts[0].startswith("config-")


def _interpreter() -> Path:
    return Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"


def _libraries(programs: Iterable[Path]) -> Iterator[Path]:
    """Yield the shared libraries of programs, and the loader, by the names that the loader searches for."""
    answer = subprocess.run(
        ["ldd", *map(str, programs)],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.defpath},
        timeout=120,
    )
    for line in answer.stdout.splitlines():
        paths = [word for word in line.split() if word.startswith("/") and not word.endswith(":")]
        yield from (Path(path) for path in paths)


def _on_path(command: str) -> str:
    found = find(command)
    if found is None:
        raise FileNotFoundError(command)
    return str(found)


def _add_copy_on_path(archive: tarfile.TarFile, command: str, seen: set[str]) -> None:
    """Copy a program to ``/bin``, because its path on this machine may be a chain of links."""
    path = Path(_on_path(command))
    for inside in {f"bin/{command}", str(path).lstrip("/")} - seen:
        seen.add(inside)
        _add(archive, inside, path.read_bytes(), mode=0o755)


def _add(archive: tarfile.TarFile, name: str, content: bytes, *, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def _add_folder(archive: tarfile.TarFile, name: str, *, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    archive.addfile(entry)


def _add_link(archive: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    archive.addfile(entry)


def _keep(blobs: dict[str, bytes], content: bytes, media_type: str) -> dict[str, object]:
    digest = hashlib.sha256(content).hexdigest()
    blobs[digest] = content
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


def _json(content: Mapping[str, object]) -> bytes:
    return json.dumps(content, sort_keys=True).encode()
