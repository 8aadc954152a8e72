"""What images are built from without a network: a Debian base and the wheels of the locks. Both are made once and kept in the cache."""

import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from muster_testing.go_programs import TESTS, MissingTool, cache_folder, find_installed

ROOT = TESTS.parent
BUILD = ROOT / "deploy" / "images" / "build.py"

#: What the Dockerfile installs where the base lacks it, and the `wget` of the images that have no program of their own to be probed with.
_PACKAGES = ("busybox-static", "ca-certificates", "libc6-dev", "python3", "python3-venv", "tcc")
_BUSYBOX = ("./bin/busybox", "./usr/bin/busybox")


def base_archive() -> Path:
    """Return the root file system of the base as a tar archive; its Debian release is this machine's."""
    release = platform.freedesktop_os_release()["VERSION_CODENAME"]

    def make(target: Path) -> None:
        program = find_installed("mmdebstrap")
        if program is None:
            raise MissingTool("mmdebstrap is not installed; install its system package")
        # Without --force-unsafe-io dpkg syncs every file, which takes minutes.
        options = ("--variant=minbase", "--dpkgopt=force-unsafe-io", f"--include={','.join(_PACKAGES)}")
        subprocess.run(
            [program, *options, "--format=tar", release, target], check=True, capture_output=True, text=True
        )

    digest = hashlib.sha256(" ".join((release, *_PACKAGES)).encode()).hexdigest()[:12]
    return _cached(f"base-{digest}.tar", make)


def wheelhouse() -> Path:
    """Return a folder with the wheels of all locks, for this machine's Python."""
    build = _build_program()
    digest = hashlib.sha256(sys.version.encode())
    for lock in build.locks():
        digest.update(lock.read_bytes())

    def make(target: Path) -> None:
        target.mkdir()
        subprocess.run([sys.executable, BUILD, "wheelhouse", target], check=True)

    return _cached(f"wheels-{digest.hexdigest()[:12]}", make)


def busybox() -> bytes:
    """Return a static busybox, of the base."""
    with tarfile.open(base_archive()) as archive:
        for name in _BUSYBOX:
            if name in archive.getnames() and (file := archive.extractfile(name)) is not None:
                return file.read()
    raise FileNotFoundError("the base has no busybox")


def image_names() -> tuple[str, ...]:
    """Return the names of the images that the build program knows."""
    return tuple(_build_program().IMAGES)


def _build_program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("muster_image_build", BUILD)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _cached(name: str, make: Callable[[Path], None]) -> Path:
    """Return a file or folder of the cache, made under another name first."""
    target = cache_folder() / "containers" / name
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{os.getpid()}-{name}")
        try:
            make(draft)
            draft.rename(target)
        finally:
            if draft.is_dir():
                shutil.rmtree(draft)
            draft.unlink(missing_ok=True)
    return target
