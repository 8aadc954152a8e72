"""A reader is imported when there is something for it to read, and the list of what is known says what the readers say."""

import importlib
import subprocess
import sys

from muster_formats.format import Format, Heading
from muster_formats.registry import KNOWN, all_formats

_READS_A_TFJOB = """
import sys
from muster_formats.reading import read_document
parsed = read_document("apiVersion: kubeflow.org/v1\\nkind: TFJob")
assert parsed.problems
print(" ".join(name for name in sys.modules if name.startswith("muster_formats.")))
"""


def headings(of: tuple[Heading, ...] | tuple[Format, ...]) -> set[tuple[str, str, str, bool]]:
    return {(one.version_key, one.version, one.kind, one.taken) for one in of}


def test_what_is_known_is_what_the_readers_say_of_themselves() -> None:
    assert headings(all_formats()) == headings(KNOWN)


def test_no_reader_has_a_kind_that_is_not_known() -> None:
    modules = {known.module for known in KNOWN}
    read: list[Format] = []
    for module in modules:
        read += importlib.import_module(f"muster_formats.{module}").FORMATS
    assert headings(tuple(read)) == headings(KNOWN)
    assert len(read) == len(KNOWN)


def test_reading_one_kind_imports_no_reader_of_another() -> None:
    said = subprocess.run(
        [sys.executable, "-c", _READS_A_TFJOB], check=True, capture_output=True, text=True, timeout=60
    ).stdout.split()
    packages = {name.split(".")[1] for name in said}
    assert "kubeflow" in packages
    assert not packages & {"polyaxon_v0", "polyaxon_v1", "trainjob", "batch", "export", "typed"}
    assert "muster_formats.arena.document" not in said
