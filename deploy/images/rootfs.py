"""Assembles the root file system of an image: Debian's Python interpreter, the libraries that it needs, and chosen programs.

    rootfs.py TARGET [PACKAGE ...]

The files are those of the Debian packages that are installed where it runs. Without a ``PACKAGE`` the image has no shell, no package
manager and no program but the interpreter; the programs of each ``PACKAGE`` are added, and with one the whole standard library. Each
package of which a file is taken is recorded in ``/var/lib/dpkg/status.d``, where scanners of images look for it, with its licence in
``/usr/share/doc``.
"""

import compileall
import os
import py_compile
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

USER_ID = 10001
PROBE = "/usr/bin/muster-probe"

_PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
_LIBRARY = f"/usr/lib/{_PYTHON}"
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
_MERGED = ("bin", "sbin", "lib", "lib64")
_PROGRAM_FOLDERS = ("/bin/", "/usr/bin/")

#: Packages of the interpreter.
_INTERPRETER = (f"{_PYTHON}-minimal", f"lib{_PYTHON}-minimal", f"lib{_PYTHON}-stdlib")
#: Libraries that wheels expect of every system; glibc loads the first when a thread ends.
_LIBRARIES = ("libgcc_s.so.1", "libstdc++.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libm.so.6")
#: Parts of the standard library that no service imports, relative to its folder.
_UNUSED = re.compile(
    r"(test|idlelib|ensurepip|lib2to3|distutils|tkinter|turtledemo|pydoc_data|venv|curses|dbm|xmlrpc|config-.*)/"
    r"|(turtle|antigravity|this|imaplib|nntplib|poplib|telnetlib|smtpd|mailbox|pydoc|doctest)\.py"
    r"|lib-dynload/(_curses|_curses_panel|_dbm|_tkinter|readline|nis|ossaudiodev|audioop|_crypt|_test.*|_xx.*|_ctypes_test|xx.*)\."
)
_ACCOUNTS = {
    "etc/passwd": f"root:x:0:0:root:/root:/sbin/nologin\nmuster:x:{USER_ID}:{USER_ID}:muster:/var/lib/muster:/sbin/nologin\n",
    "etc/group": f"root:x:0:\nmuster:x:{USER_ID}:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}


class Root:
    """The root file system under ``target``."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._packages: set[str] = set()
        for folder in _MERGED:
            (target / "usr" / folder).mkdir(parents=True, exist_ok=True)
            (target / folder).symlink_to(f"usr/{folder}")
        for folder, mode in (("tmp", 0o1777), ("root", 0o700), ("var/lib/muster", 0o755)):
            (target / folder).mkdir(parents=True)
            (target / folder).chmod(mode)
        os.chown(target / "var/lib/muster", USER_ID, USER_ID)
        for name, text in _ACCOUNTS.items():
            self._inside(f"/{name}").write_text(text)

    def add(self, path: str, package: str = "") -> None:
        """Copy a file or a symbolic link, with what the link leads to, to the same path; by default its package is looked up."""
        source = Path(path)
        # The folders of Debian's merged /usr are links; the file's own name may be one that matters.
        real = source.parent.resolve() / source.name
        target = self._inside(str(real))
        if target.is_symlink() or target.exists():
            return
        self._packages.add(package or _owner(path, str(real)))
        if source.is_symlink():
            target.symlink_to(source.readlink())
            self.add(str(source.resolve()))
        else:
            shutil.copy2(source, target)

    def add_certificates(self) -> None:
        """Copy the bundle of certificate authorities, which its package generates."""
        self._packages.add("ca-certificates")
        shutil.copy2(_CERTIFICATES, self._inside(_CERTIFICATES))

    def add_libraries(self) -> None:
        """Copy the shared libraries that the files need, which need none that is missing."""
        for library in _LIBRARIES:
            self.add(_library_path(library))
        files = [path for path in self._target.rglob("*") if path.is_file() and not path.is_symlink()]
        for path in files:
            for library in _needed(path):
                self.add(library)

    def record_packages(self) -> None:
        """Write the records and the licences of the packages whose files were copied."""
        for package in sorted(self._packages):
            name = package.partition(":")[0]
            self._inside(f"/var/lib/dpkg/status.d/{name}").write_text(
                _output("dpkg-query", "--status", package)
            )
            licence = Path("/usr/share/doc", name, "copyright")
            if licence.exists():
                shutil.copyfile(licence.resolve(), self._inside(str(licence)))

    def link(self, path: str, to: str) -> None:
        """Make ``path`` a symbolic link."""
        self._inside(path).symlink_to(to)

    def _inside(self, path: str) -> Path:
        inside = self._target / path.lstrip("/")
        inside.parent.mkdir(parents=True, exist_ok=True)
        return inside


def main(target: Path, packages: list[str]) -> None:
    """Assemble the root file system in the folder ``target``, which must not exist."""
    root = Root(target)
    for package in _INTERPRETER:
        for path in _files(package):
            module = path.removeprefix(f"{_LIBRARY}/")
            if path == f"/usr/bin/{_PYTHON}" or (module != path and (packages or not _UNUSED.match(module))):
                root.add(path, package)
    for package in packages:
        for path in _files(package):
            if path.startswith(_PROGRAM_FOLDERS):
                root.add(path, package)
    root.link("/usr/bin/python3", _PYTHON)
    root.link("/usr/bin/python", _PYTHON)
    root.add_libraries()
    root.add_certificates()
    root.record_packages()
    shutil.copy2(PROBE, target / PROBE.lstrip("/"))
    for path in target.rglob("__pycache__"):
        shutil.rmtree(path)
    compileall.compile_dir(
        target / _LIBRARY.lstrip("/"),
        stripdir=str(target),
        quiet=2,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )


def _files(package: str) -> Iterator[str]:
    """Yield the paths of a package that are files or links to files."""
    for path in _output("dpkg-query", "--listfiles", package).splitlines():
        if Path(path).is_file():
            yield path


def _owner(*paths: str) -> str:
    """Return the package that has one of the paths, which may be listed with or without /usr."""
    names = [
        *paths,
        *(path.removeprefix("/usr") for path in paths),
        *(str(Path(path).resolve()) for path in paths),
    ]
    found = subprocess.run(["dpkg-query", "--search", *names], capture_output=True, text=True, check=False)
    lines = [line for line in found.stdout.splitlines() if not line.startswith("diversion ")]
    if not lines:
        raise SystemExit(f"{paths[0]} belongs to no package")
    return lines[0].split(": ")[0].split(", ")[0]


def _library_path(name: str) -> str:
    found = re.search(rf"\s{re.escape(name)} .*=> (\S+)", _output("/sbin/ldconfig", "--print-cache"))
    if found is None:
        raise SystemExit(f"{name} is not installed")
    return found[1]


def _needed(path: Path) -> Iterable[str]:
    """Return the paths of the shared libraries of a program or a library; none for other files."""
    with path.open("rb") as file:
        if file.read(4) != b"\x7fELF":
            return ()
    found = subprocess.run(["ldd", path], capture_output=True, text=True, check=False)
    if "not found" in found.stdout:
        raise SystemExit(f"{path} lacks a library:\n{found.stdout}")
    return re.findall(r"(/\S+) \(0x", found.stdout)


def _output(*command: str) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
