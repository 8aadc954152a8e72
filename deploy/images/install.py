"""Installs the packages of one image into its root file system.

    install.py packages ROOT LOCK ...       the packages of locks, by their hashes
    install.py member ROOT WHEELS NAME [ALONE ...]
                                            a member of the workspace, with the members that it needs, and others alone

The first goes to ``/usr/local/lib``, the second to ``/usr/lib/python3``, so that a change of Muster changes a small layer only. Both are
compiled, and without tests, sources of compiled modules and programs. ``member`` fails if a package is missing that a member or a
package needs.
"""

import compileall
import email
import py_compile
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from email.message import Message
from pathlib import Path

_PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
PACKAGES = f"usr/local/lib/{_PYTHON}/dist-packages"
MEMBERS = "usr/lib/python3/dist-packages"

_UNUSED_FOLDERS = {"tests", "test", "bin", "include"}
_UNUSED_SUFFIXES = {".c", ".cpp", ".h", ".pxd", ".pyx", ".pyi", ".a", ".lib"}
#: Packages whose folders named ``tests`` and so on are imported by others of them.
_WHOLE = {"numpy", "scipy", "sklearn", "joblib"}

#: The part of the Kubernetes client that reads credentials; its models and APIs take 120 MB and are not imported.
_KUBERNETES = {"aio/client/configuration.py", "aio/client/exceptions.py", "aio/client/rest.py"}
_KUBERNETES_FOLDERS = ("aio/config/", "aio/utils/")
_KUBERNETES_INITS: Mapping[str, str] = {
    "__init__.py": "",
    "aio/__init__.py": "",
    "aio/client/__init__.py": "from kubernetes.aio.client.configuration import Configuration\n\nApiClient = None\n",
    "aio/utils/__init__.py": "",
}


def install_packages(root: Path, locks: Sequence[str]) -> None:
    """Install the packages of locks without their dependencies, which the locks have."""
    target = root / PACKAGES
    target.mkdir(parents=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--no-deps", "--require-hashes"]
    subprocess.run([*pip, "--target", target, *(f"--requirement={lock}" for lock in locks)], check=True)
    if (target / "kubernetes").exists():
        _reduce_kubernetes(target / "kubernetes")
    for package in target.iterdir():
        if package.name in _UNUSED_FOLDERS:
            shutil.rmtree(package)
        elif package.is_dir() and package.name not in _WHOLE:
            _remove_unused(package)
    _compile(root, target)


def install_member(root: Path, wheels: Path, name: str, alone: Collection[str]) -> None:
    """Install a member and the members that it needs, and of ``alone`` only the members themselves."""
    target = root / MEMBERS
    target.mkdir(parents=True)
    by_name = {_normal(path.name.partition("-")[0]): path for path in wheels.glob("*.whl")}
    waiting, done = [name, *alone], set[str]()
    while waiting:
        each = waiting.pop()
        if each in done or each not in by_name:
            continue
        done.add(each)
        with zipfile.ZipFile(by_name[each]) as wheel:
            wheel.extractall(target)
        if each not in alone:
            waiting += _requirements(_metadata_of(target, each))
    _require_complete(root, alone)
    _compile(root, target)


def metadata(root: Path) -> Iterator[Message]:
    """Yield the metadata of every package and member of a root file system."""
    for folder in (root / PACKAGES, root / MEMBERS):
        for path in sorted(folder.glob("*.dist-info/METADATA")):
            yield email.message_from_string(path.read_text(encoding="utf-8"))


def _metadata_of(folder: Path, name: str) -> Message:
    found = [path for path in folder.glob("*.dist-info") if _normal(path.name.partition("-")[0]) == name]
    return email.message_from_string((found[0] / "METADATA").read_text(encoding="utf-8"))


def _requirements(package: Message) -> Iterable[str]:
    """Return the names of the packages that a package always needs; those with a condition are left out."""
    for requirement in package.get_all("Requires-Dist", ()):
        if ";" not in requirement and (found := re.match(r"[A-Za-z0-9._-]+", requirement)):
            yield _normal(found[0])


def _require_complete(root: Path, alone: Collection[str]) -> None:
    installed = {_normal(str(package["Name"])): package for package in metadata(root)}
    missing = {
        f"{name} needs {need}"
        for name, package in installed.items()
        for need in _requirements(package)
        if need not in installed and name not in alone
    }
    if missing:
        raise SystemExit("packages are missing from the lock; run make lock: " + ", ".join(sorted(missing)))


def _reduce_kubernetes(package: Path) -> None:
    for path in [path for path in package.rglob("*") if path.is_file()]:
        name = str(path.relative_to(package))
        if name not in _KUBERNETES and not name.startswith(_KUBERNETES_FOLDERS):
            path.unlink()
    for name, text in _KUBERNETES_INITS.items():
        note = "# Reduced: this image has only the part of the Kubernetes client that reads credentials.\n"
        (package / name).write_text(note + text)
    _remove_empty(package)


def _remove_unused(package: Path) -> None:
    for path in [*package.rglob("*")]:
        if path.is_dir() and path.name in _UNUSED_FOLDERS:
            shutil.rmtree(path)
        elif path.is_file() and path.suffix in _UNUSED_SUFFIXES:
            path.unlink()
    _remove_empty(package)


def _remove_empty(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()


def _compile(root: Path, target: Path) -> None:
    compileall.compile_dir(
        target,
        stripdir=str(root),
        quiet=2,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["packages", root, *locks]:
            install_packages(Path(root), locks)
        case ["member", root, wheels, name, *alone]:
            install_member(Path(root), Path(wheels), name, alone)
        case _:
            raise SystemExit(__doc__)
