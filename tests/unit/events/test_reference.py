"""The generated documents: current, complete and well formed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from muster_events.catalogue import BUCKETS, CONSUMERS, EVENTS, STREAMS
from muster_events.reference import asyncapi, markdown

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """The AsyncAPI document."""
    return json.loads(asyncapi())


def references() -> set[str]:
    """Every ``$ref`` of the document."""
    return set(re.findall(r'"\$ref": "([^"]*)"', asyncapi().decode()))


def test_the_documents_are_current() -> None:
    script = ROOT / "libs/events/generate.py"

    checked = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, timeout=60, check=False
    )

    assert (checked.returncode, checked.stderr) == (0, "")


def test_every_reference_resolves(document: dict[str, Any]) -> None:
    found = references()
    assert found

    for reference in found:
        value: Any = document
        assert reference.startswith("#/")
        for part in reference[2:].split("/"):
            assert part in value, reference
            value = value[part]


def test_every_event_has_a_channel_a_message_a_schema_and_its_operations(document: dict[str, Any]) -> None:
    assert document["asyncapi"] == "3.0.0"
    for spec in EVENTS:
        channel = document["channels"][spec.name]
        assert channel["address"] == spec.subject
        assert set(channel["parameters"]) == {p[1:-1] for p in spec.subject.split(".") if p[0] == "{"}
        assert spec.name in document["components"]["messages"]
        schema = document["components"]["schemas"][spec.name]
        assert schema["properties"]["event"] == {"enum": [spec.name]}
        senders = [
            name
            for name, operation in document["operations"].items()
            if operation["action"] == "send" and operation["channel"]["$ref"] == f"#/channels/{spec.name}"
        ]
        assert senders == [f"{spec.writer}.sends.{spec.name}"]
        for reader in spec.readers:
            assert f"{reader}.receives.{spec.name}" in document["operations"]


def test_nothing_is_described_that_no_event_uses(document: dict[str, Any]) -> None:
    used = {reference.rpartition("/")[2] for reference in references()}

    assert set(document["components"]["schemas"]) <= used


def test_the_page_names_every_event_stream_durable_and_bucket() -> None:
    page = markdown()

    for spec in EVENTS:
        assert f"### {spec.name}\n" in page
        assert f"| `{spec.name}` | {spec.writer} | {', '.join(spec.readers)} |" in page
    for name in (*(s.name for s in STREAMS), *(d.consumer for d in CONSUMERS), *(b.name for b in BUCKETS)):
        assert f"\n| {name} |" in page


def test_the_tables_of_the_page_are_whole() -> None:
    """A bar within a cell would shift the columns."""
    lines = markdown().splitlines()
    for before, line in pairwise(lines):
        if before.startswith("|") and line.startswith("|"):
            assert before.count("|") == line.count("|"), line


def test_the_page_shows_docstrings_without_module_names() -> None:
    assert "muster_core." not in markdown()
