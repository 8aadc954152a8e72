"""Which documents the gateway has to ask about before it makes them durable: all that may hold several jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster_formats import parse
from muster_gateway.submission import may_be_several

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = sorted(
    path
    for folder in (ROOT / "tests" / "golden" / "formats", ROOT / "examples")
    for path in folder.rglob("*")
    if path.is_file() and path.suffix in {".yaml", ".yml", ".json", ".txt", ".sh", ".arena", ""}
)


@pytest.mark.parametrize("path", DOCUMENTS, ids=[str(path.relative_to(ROOT)) for path in DOCUMENTS])
def test_no_document_of_several_jobs_is_taken_for_one(path: Path) -> None:
    text = path.read_text()

    assert may_be_several(text) or len(parse(text, name=path.stem).jobs) <= 1


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\n---\nb: 2\n",
        "version: 1\nkind: experiment\nbuild: {image: x}\n",
        'version: 1\nkind: experiment\n"\\x62uild": {image: x}\n',
        '{"version": 1, "kind": "experiment", "\\u0062uild": {}}',
        "arena submit tfjob --name=a --tensorboard --image=b",
    ],
)
def test_what_may_be_several_is_asked_about(text: str) -> None:
    assert may_be_several(text)


@pytest.mark.parametrize("path", ["examples/hello/hello.yaml", "examples/digits/tfjob.yaml"])
def test_a_job_alone_costs_no_question(path: str) -> None:
    assert not may_be_several((ROOT / path).read_text())
