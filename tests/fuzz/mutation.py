"""Mutated documents: valid ones with errors inserted, as text and as trees. A seed reproduces each."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import yaml

ROOT = Path(__file__).parents[2]

_NASTY: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 1.5, -0.1, 2**31, 2**63, -(2**63) - 1, 10**400, float("nan"), float("inf"),
    1e308, "", " ", "0", "-1",
    "1e3", "1.5", "NaN", ".inf", "500m", "1Gi", "9999999999999Ei", "0.0000000001", "1h30m", "-5s", "Never",
    "never", "Always", "worker",
    "x" * 70, "x" * 5000, "Größe", "\u202e\u200b", "\x1b[31mred", "a\0b", "💥", "null", "true", "~", "=", "<<",
    "*a", "&a", "!!python/object", "{{ x }}",
    "{{", "$(MUSTER_PORT)", "$(", "../../etc/passwd", "'; rm -rf /", "a.b/c", "a/b/c", "-", "--", "a=b",
    "2025-01-01", "0o17", "0x1f", "1_000", "12:30:45",
    [], {}, [None], [[]], {"": ""}, {"a": {}}, [1, "a", None], {"requests": {"cpu": -1}}, {"index": 0},
    [{"index": 0}, {"index": 0}], {"limits": 3},
)  # fmt: skip

_TOKENS = (
    "---\n", "...\n", "&a ", "*a ", "!!binary ", "!!float ", "? ", ": ", "- ", "|\n", ">-\n", "\t", "\r", "\x85",
    "\u2028", "\ufeff", "#", "'", '"', "{", "}",
    "[", "]", ",", "%YAML 1.2\n", "%TAG ! x\n", "<<: *a\n", "\n\n", "  ", "@", "`", "\\", "\x00", "\x07",
    "9" * 400, "a: &a [*a]\n", "--", "=", "$(", ";", "|", "\\\n",
)  # fmt: skip

Mutate = Callable[[str, random.Random, Sequence[str]], "str | bytes"]


def corpus() -> list[str]:
    """Return every document of the project: examples, good and bad, and golden ones of each format."""
    folders = (ROOT / "examples", ROOT / "tests" / "golden" / "formats")
    found = [
        path
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.suffix in _SUFFIXES and not path.name.endswith(".expected.yaml")
    ]
    texts = [path.read_bytes().decode(errors="ignore") for path in found]
    return [text for text in texts if len(text) < _LARGEST]


_SUFFIXES = frozenset({".yaml", ".yml", ".json", ".arena", ".sh", ".txt"})
_LARGEST = 40_000


def document(seed: str, texts: Sequence[str]) -> str | bytes:
    """Return the document of a seed: one to four mutations of a text."""
    draw = random.Random(seed)
    made: str | bytes = draw.choice(texts)
    for _ in range(draw.choice((0, 1, 1, 1, 2, 2, 3, 4))):
        if isinstance(made, bytes):
            break
        made = draw.choice(_MUTATIONS)(made, draw, texts)
    return made


def _tree(text: str, draw: random.Random, texts: Sequence[str]) -> str:
    try:
        root = list(yaml.load_all(text, Loader=_Loader))
    except (yaml.YAMLError, ValueError, RecursionError):
        return _cut(text, draw, texts)
    try:
        for _ in range(draw.randint(1, 3)):
            places = list(_places(root))
            if places:
                draw.choice(_CHANGES)(*draw.choice(places), draw, places)
        if draw.random() < 0.2 and len(root) == 1:
            return json.dumps(root[0])
        return yaml.dump_all(root, Dumper=_Dumper, sort_keys=False, allow_unicode=draw.random() < 0.5)
    except (yaml.YAMLError, TypeError, ValueError, RecursionError):
        return _cut(text, draw, texts)


class _Loader(yaml.CSafeLoader):
    """Tags are not the point here: values that cannot be constructed stay texts."""


class _Dumper(yaml.CSafeDumper):
    """Write what the loader read."""


Parent = dict[Any, Any] | list[Any]
Places = Sequence[tuple[Parent, Any]]


def _places(node: object) -> Iterator[tuple[Parent, Any]]:
    if isinstance(node, dict):
        mapping = cast("dict[Any, Any]", node)
        for key, value in list(mapping.items()):
            yield mapping, key
            yield from _places(value)
    elif isinstance(node, list):
        elements = cast("list[Any]", node)
        for index, value in enumerate(elements):
            yield elements, index
            yield from _places(value)


def _replace(parent: Parent, key: Any, draw: random.Random, _: Places) -> None:
    parent[key] = draw.choice(_NASTY)


def _swap(parent: Parent, key: Any, draw: random.Random, places: Places) -> None:
    other, its_key = draw.choice(places)
    value = json.loads(json.dumps(_value(other, its_key), default=str))
    if _present(parent, key):
        parent[key] = value


def _remove(parent: Parent, key: Any, draw: random.Random, _: Places) -> None:
    if _present(parent, key):
        del parent[key]


def _rename(parent: Parent, key: Any, draw: random.Random, places: Places) -> None:
    if not isinstance(parent, dict) or key not in parent:
        return
    names = [str(name) for mapping, name in places if isinstance(mapping, dict)]
    misspelt = str(key)[:-1] + draw.choice("sxe_")
    new = draw.choice((misspelt, str(key).upper(), draw.choice(names), draw.choice(_NASTY[10:40]), "a" * 300))
    parent[new if isinstance(new, str | int | float | bool | None) else "k"] = parent.pop(key)


def _add(parent: Parent, key: Any, draw: random.Random, places: Places) -> None:
    if isinstance(parent, list):
        parent.extend([draw.choice(_NASTY)] * draw.choice((1, 2, 300)))
        return
    names = [name for mapping, name in places if isinstance(mapping, dict)]
    parent[draw.choice(names)] = draw.choice(_NASTY)


def _deepen(parent: Parent, key: Any, draw: random.Random, _: Places) -> None:
    if not _present(parent, key):
        return
    value = parent[key]
    for _step in range(draw.choice((1, 2, 30, 60))):
        value = [value] if draw.random() < 0.5 else {"spec": value}
    parent[key] = value


def _as_text(parent: Parent, key: Any, draw: random.Random, _: Places) -> None:
    if _present(parent, key) and isinstance(parent[key], int | float | str):
        text = str(parent[key])
        parent[key] = draw.choice(
            (text, f" {text}", f"{text}\n", f"-{text}", f"{text}{text}", text.swapcase(), text[:-1])
        )


def _present(parent: Parent, key: Any) -> bool:
    return key in parent if isinstance(parent, dict) else key < len(parent)


def _value(parent: Parent, key: Any) -> Any:
    return parent[key] if _present(parent, key) else None


_CHANGES = (_replace, _replace, _swap, _remove, _rename, _add, _deepen, _as_text)


def _insert(text: str, draw: random.Random, _: Sequence[str]) -> str:
    at = draw.randint(0, len(text))
    return text[:at] + draw.choice(_TOKENS) * draw.choice((1, 1, 1, 2, 50)) + text[at:]


def _cut(text: str, draw: random.Random, _: Sequence[str]) -> str:
    start = draw.randint(0, len(text))
    return text[:start] + text[start + draw.choice((1, 1, 5, 40, 400)) :]


def _repeat(text: str, draw: random.Random, _: Sequence[str]) -> str:
    lines = text.splitlines(keepends=True) or [""]
    start = draw.randrange(len(lines))
    block = lines[start : start + draw.choice((1, 2, 10))]
    return "".join([*lines[:start], *block * draw.choice((2, 2, 3, 200)), *lines[start:]])[:600_000]


def _splice(text: str, draw: random.Random, texts: Sequence[str]) -> str:
    other = draw.choice(texts)
    if draw.random() < 0.5:
        return f"{text}\n---\n{other}"
    return text[: draw.randint(0, len(text))] + other[draw.randint(0, len(other)) :]


def _indent(text: str, draw: random.Random, _: Sequence[str]) -> str:
    lines = text.splitlines(keepends=True) or [""]
    at = draw.randrange(len(lines))
    lines[at] = draw.choice((f" {lines[at]}", f"\t{lines[at]}", lines[at].lstrip(), f"    {lines[at]}"))
    return "".join(lines)


def _encoded(text: str, draw: random.Random, _: Sequence[str]) -> bytes:
    data = bytearray(text.encode(draw.choice(("utf-8", "utf-16", "latin-1")), errors="replace"))
    for _step in range(draw.randint(1, 4)):
        if data:
            data[draw.randrange(len(data))] = draw.randrange(256)
    return bytes(data)


def _value_in_line(text: str, draw: random.Random, _: Sequence[str]) -> str:
    lines = text.splitlines(keepends=True)
    valued = [at for at, line in enumerate(lines) if ": " in line]
    if not valued:
        return text
    at = draw.choice(valued)
    key = lines[at].split(": ", 1)[0]
    lines[at] = f"{key}: {draw.choice(_NASTY)}\n"
    return "".join(lines)


def _word(text: str, draw: random.Random, texts: Sequence[str]) -> str:
    words = text.split(" ")
    others = draw.choice(texts).split()
    at = draw.randrange(len(words))
    words[at] = draw.choice(
        (str(draw.choice(_NASTY)), *(draw.choice(others) for _step in range(2) if others))
    )
    return " ".join(words)


_MUTATIONS: tuple[Mutate, ...] = (
    _tree, _tree, _tree, _tree, _insert, _cut, _repeat, _splice, _indent, _encoded, _value_in_line, _word,
)  # fmt: skip
