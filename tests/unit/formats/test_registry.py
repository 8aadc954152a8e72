"""A reader is imported when there is something for it to read, and the list of what is known says what the readers say."""

import importlib
import subprocess
import sys

from muster_formats.registry import REGISTRY, Format, FormatKey, all_formats

_READS_A_TFJOB = """
import sys
from muster_formats import read_document
parsed = read_document("apiVersion: kubeflow.org/v1\\nkind: TFJob")
assert parsed.problems
print(" ".join(name for name in sys.modules if name.startswith("muster_formats.")))
"""


def headings(of: tuple[FormatKey, ...] | tuple[Format, ...]) -> set[tuple[str, str, str, bool]]:
    return {(one.version_key, one.version, one.kind, one.supported) for one in of}


def test_what_is_known_is_what_the_readers_say_of_themselves() -> None:
    assert headings(all_formats()) == headings(REGISTRY)


def test_no_reader_has_a_kind_that_is_not_known() -> None:
    modules = {known.module for known in REGISTRY}
    read: list[Format] = []
    for module in modules:
        read += importlib.import_module(f"muster_formats.{module}").FORMATS
    assert headings(tuple(read)) == headings(REGISTRY)
    assert len(read) == len(REGISTRY)


def test_reading_one_kind_imports_no_reader_of_another() -> None:
    said = subprocess.run(
        [sys.executable, "-c", _READS_A_TFJOB], check=True, capture_output=True, text=True, timeout=60
    ).stdout.split()
    packages = {name.split(".")[1] for name in said}
    assert "kubeflow" in packages
    assert not packages & {"polyaxon_v0", "polyaxon_v1", "trainjob", "batch", "export", "typed"}
    assert "muster_formats.arena.document" not in said
