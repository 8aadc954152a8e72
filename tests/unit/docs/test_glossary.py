"""The tree uses the terms of docs/glossary.md, and each class name once."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

_ORDINARY = """
line move copy hold holding force forced opening letter touch turns feed tail floor shell serving quiet spot hands standing fold
"""
ORDINARY = frozenset(_ORDINARY.split())
"""Words of the last column that are ordinary English or other tools' terms in prose: excluded as names of modules and classes only."""

COMPOUNDS = re.compile(
    "dead_?letters?|remote_?shell|shell_?words|command_?line|log_?line|on_?line|base_?line|pipe_?line",
    re.IGNORECASE,
)
"""Terms of the field that contain such a word."""

PERSONIFIED = re.compile(
    r"(?<![\"-])\b(nobody(?!:)|whoever|whom|whose turn|unless said|not said|is told|are told|stands where|has come to)\b",
    re.IGNORECASE,
)
"""Phrases that personify software or that a reader has to translate."""

_PAIRS = """
ContainerState ContainerStatus Node NodeSpec NodeStatus Pod PodSpec PodStatus Taint Terminated
"""
PAIRS = frozenset(_PAIRS.split())
"""Names of Kubernetes objects: the tests of the Kubernetes runtime decode them independently of it."""


def glossary() -> set[str]:
    rows = re.findall(r"^\|[^|]*\|[^|]*\|([^|]*)\|$", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    words = {word.strip() for row in rows for word in row.split(",")}
    return {word for word in words if word and word != "not" and not word.startswith("-")}


def sources(*folders: str) -> list[Path]:
    return [
        path
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not path.name.endswith(("_pb2.py", "_pb2_grpc.py")) and ".venv" not in path.parts
    ]


def pages() -> list[Path]:
    return [
        ROOT / "README.md",
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "proto").rglob("*.proto")),
    ]


def parts(name: str) -> set[str]:
    """The words of a snake-case or camel-case name, lower case, with and without a plural s."""
    words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", COMPOUNDS.sub("", name))}
    return words | {word.removesuffix("s") for word in words}


@pytest.mark.parametrize("path", sources("libs", "services"), ids=lambda path: str(path.relative_to(ROOT)))
def test_names_use_the_glossary(path: Path) -> None:
    banned = {word for word in glossary() if " " not in word}
    found: list[str] = []
    names = [path.stem] + [
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    for name in names:
        strict = name == path.stem or name[:1].isupper() or name[:2].lstrip("_")[:1].isupper()
        found += [name for word in parts(name) & banned if strict or word not in ORDINARY]
    assert found == []


@pytest.mark.parametrize(
    "path",
    sources("libs", "services", "tests", "examples") + pages(),
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_prose_uses_the_glossary(path: Path) -> None:
    if path.name in {"glossary.md", Path(__file__).name}:
        return
    banned = glossary() - ORDINARY
    words = re.compile(rf"\b({'|'.join(map(re.escape, sorted(banned)))})\b", re.IGNORECASE)
    lines = path.read_text().splitlines()
    assert [
        f"{number}: {line.strip()}"
        for number, line in enumerate(lines, 1)
        if words.search(line) or PERSONIFIED.search(line)
    ] == []


def test_a_class_name_exists_once() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in sources("libs", "services"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1 and name not in PAIRS} == {}
