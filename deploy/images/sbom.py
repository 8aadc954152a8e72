"""Writes the bill of materials of an image, in CycloneDX's JSON: ``sbom.py ROOT NAME VERSION``.

It lists the Python packages by their installed metadata and the Debian packages by ``/var/lib/dpkg/status.d``, and is written to
``/usr/share/sbom/NAME.cdx.json`` of the image. It has no time and no serial number, so that the same image has the same file.
"""

import email
import json
import sys
from email.message import Message
from pathlib import Path

from install import metadata

_FOLDER = "usr/share/sbom"


def main(root: Path, name: str, version: str) -> None:
    """Write the bill of materials of the image ``name`` whose root file system is in ``root``."""
    components = [*(_python(package) for package in metadata(root)), *_debian(root)]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": name, "version": version}},
        "components": components,
    }
    file = root / _FOLDER / f"{name}.cdx.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _python(package: Message) -> dict[str, object]:
    name, version = str(package["Name"]), str(package["Version"])
    purl = f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"
    return _component(name, version, purl, _licence(package))


def _licence(package: Message) -> dict[str, object] | None:
    """Return the licence as an SPDX expression, or as the name that the package has for it."""
    if expression := package["License-Expression"]:
        return {"expression": str(expression)}
    classifiers = [str(each) for each in package.get_all("Classifier", ())]
    names = [each.rpartition(" :: ")[2] for each in classifiers if each.startswith("License :: ")]
    stated = str(package["License"] or "").strip().partition("\n")[0]
    name = names[0] if names else stated
    return {"license": {"name": name}} if name else None


def _debian(root: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for path in sorted((root / "var/lib/dpkg/status.d").iterdir()):
        record = email.message_from_string(path.read_text(encoding="utf-8"))
        name, version = str(record["Package"]), str(record["Version"])
        purl = f"pkg:deb/debian/{name}@{version}?arch={record['Architecture']}"
        found.append(_component(name, version, purl, None))
    return found


def _component(name: str, version: str, purl: str, licence: dict[str, object] | None) -> dict[str, object]:
    component: dict[str, object] = {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
    }
    return component if licence is None else {**component, "licenses": [licence]}


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
