"""Builds the images, and downloads the packages that they need.

    build.py images [--base IMAGE] [--wheelhouse FOLDER] [--tag TAG] [--source URL] [--licences SPDX] [--offline] [NAME ...]
    build.py wheelhouse FOLDER

``images`` runs ``docker build`` (or ``$DOCKER``) once for each target of the Dockerfile, or for each NAME, and tags the result
``muster/NAME:TAG``. ``wheelhouse`` downloads the wheels of all locks for the Python that runs it, which must have the minor version of the
base's. With a base that has all packages that the Dockerfile names, and a wheelhouse, ``--offline`` builds without a network.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SERVICES = ("gateway", "spec-validator", "scheduler", "scaler", "status-tracker", "pod-launcher")
IMAGES = (*SERVICES, "provision", "pod-launcher-process")

_FOLDER = "deploy/images"
_WHEELHOUSE = f"{_FOLDER}/wheelhouse"
_CONTEXT = (_FOLDER, "libs", "services", "examples")
_LEFT_OUT = ("__pycache__", "*.egg-info", "wheelhouse")


def locks() -> list[Path]:
    """Return the locks of all images."""
    services = [ROOT / "services" / service / "requirements.lock" for service in SERVICES]
    own = [ROOT / _FOLDER / name for name in ("build.lock", "provision.lock")]
    return [*services, *own, ROOT / "examples" / "digits" / "requirements.lock"]


def download(folder: Path) -> None:
    """Download the wheels of all locks, by their hashes, into ``folder``."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    for lock in locks():
        subprocess.run([*pip, "--only-binary=:all:", "--dest", folder, "--requirement", lock], check=True)


def build(arguments: argparse.Namespace) -> None:
    """Build the images."""
    with tempfile.TemporaryDirectory(prefix="muster-images-") as temporary:
        context = ROOT
        if arguments.wheelhouse is not None:
            context = Path(temporary)
            _fill(context, arguments.wheelhouse)
        for name in arguments.names or IMAGES:
            print(f"building muster/{name}:{arguments.tag}", flush=True)  # noqa: T201 - this is a command
            subprocess.run(
                _command(name, arguments, context),
                env={"DOCKER_BUILDKIT": "1", **os.environ},
                check=True,
            )


def _fill(context: Path, wheelhouse: Path) -> None:
    """Make a build context of the files that the Dockerfile copies, with the wheels of another folder."""
    for folder in _CONTEXT:
        shutil.copytree(ROOT / folder, context / folder, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    (context / _WHEELHOUSE).mkdir()
    for wheel in wheelhouse.glob("*.whl"):
        shutil.copy2(wheel, context / _WHEELHOUSE)


def _command(name: str, arguments: argparse.Namespace, context: Path) -> Sequence[str]:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    values = {
        "BASE": arguments.base,
        "VERSION": version,
        "REVISION": _revision(),
        "SOURCE": arguments.source,
        "LICENSES": arguments.licences,
    }
    return [
        *(os.environ.get("DOCKER", "docker"), "build", "--quiet", "--target", name),
        *("--tag", f"muster/{name}:{arguments.tag}", "--file", str(context / _FOLDER / "Dockerfile")),
        *(f"--build-arg={key}={value}" for key, value in values.items() if value),
        *(("--network", "none") if arguments.offline else ()),
        str(context),
    ]


def _revision() -> str:
    """Return the commit of the sources, with ``-dirty`` if they differ from it; empty without git."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip()


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    images = commands.add_parser("images", help="build the images")
    images.add_argument("--base", help="the image to build in, Debian; default: see the Dockerfile")
    images.add_argument("--wheelhouse", type=Path, help=f"a folder of wheels; default: {_WHEELHOUSE}")
    images.add_argument("--tag", default="latest", help="the tag; default: latest")
    images.add_argument("--source", default="", help="the URL of the sources, for the labels")
    images.add_argument("--licences", default="", help="the licence, an SPDX expression, for the labels")
    images.add_argument("--offline", action="store_true", help="build without a network")
    images.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(IMAGES)}; default: all")
    wheelhouse = commands.add_parser("wheelhouse", help="download the wheels of all locks")
    wheelhouse.add_argument("folder", type=Path, nargs="?", default=ROOT / _WHEELHOUSE)
    parsed = parser.parse_args(arguments)
    if parsed.command == "images" and (unknown := set(parsed.names) - set(IMAGES)):
        parser.error(f"no such image: {', '.join(sorted(unknown))}; choose from {', '.join(IMAGES)}")
    return parsed


def main(arguments: Sequence[str]) -> None:
    """Run a command."""
    parsed = _parse(arguments)
    if parsed.command == "wheelhouse":
        download(parsed.folder)
    else:
        build(parsed)


if __name__ == "__main__":
    main(sys.argv[1:])
