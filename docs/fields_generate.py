"""Write ``fields.md``, what becomes of every field of every format, beside this file: run it when a format's tables have changed."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from muster_formats.arena.jobs import SORTS
from muster_formats.fields import FieldRow, Link, table_rows, tables_of
from muster_formats.registry import all_formats
from muster_formats.table import Effect, Table

PAGE = Path(__file__).with_name("fields.md")

INTRODUCTION = """# Fields

What becomes of every field of every kind of document. This page is generated from the tables by which documents are read, so that
what it says is what happens: a field that is not here is refused as unknown, with the nearest field that is.

| | |
|---|---|
| {acted} | it does what it says |
| {partly} | it does what it says but for some values, and every use of those is a warning or an error that says why |
| {kubernetes} | Kubernetes gets it as it is; replicas that run as processes do without, and a warning says so where it matters |
| {warned} | it is accepted, has no effect, and every use is a warning that says why |
| {refused} | it is not taken, and every use is an error that says why |

In a path, `[]` is each element of a list and `<name>` each key of a mapping whose keys are the author's own. `(job)` is what stands under
a mapping of that kind. What many kinds have in common is described once, under [Parts](#parts).

## Contents
"""

PAGES = {
    "native": "native.md",
    "batchjob": "batch-job.md",
    "trainjob": "trainjob.md",
    "polyaxon-0": "polyaxon-0.md",
    "polyaxon-1": "polyaxon-1.md",
    "arena": "arena.md",
}
"""The page of each format; that of a format which is not here is the one of Kubeflow's kinds."""

_KUBEFLOW = "kubeflow.md"
_UP = "Up to the [contents](#contents)."
_FAMILIES = {
    "": "Of Kubernetes' documents",
    "native": "Of the native form",
    "pods": "Of Kubernetes' templates",
    "kubeflow": "Of Kubeflow's kinds",
    "trainjob": "Of a TrainJob",
    "polyaxon_v0": "Of Polyaxon 0.x",
    "polyaxon_v1": "Of Polyaxon today",
    "arena": "Of Arena's command lines",
}
"""Whose documents a part is of, by where its table stands."""

_SHARED_BY = 2
_FEW = 3
_MANY = 8


def rendered() -> str:
    """The page as the file holds it."""
    kinds = [(known.words, known.name, known.table) for known in all_formats() if known.taken and known.table]
    kinds += [(sort.words, "arena", sort.table) for sort in SORTS]
    apart = _apart([table for _, _, table in kinds])
    titles = _titles(apart)
    introduction = INTRODUCTION.format(
        acted=Effect.ACTED_UPON,
        partly=Effect.PARTLY,
        kubernetes=Effect.KUBERNETES,
        warned=Effect.WARNED,
        refused=Effect.REFUSED,
    )
    parts = [introduction, _contents([words for words, _, _ in kinds], titles)]
    for words, name, table in kinds:
        page = PAGES.get(name, _KUBEFLOW)
        parts.append(f"## {words}\n\nSee [{page}]({page}). {_UP}\n\n{_section(table, apart, titles)}")
    parts.append("## Parts\n")
    parts += [
        f"### {title}\n\n{_FAMILIES[_family(table)]}. {_UP}\n\n{_section(table, apart, titles)}"
        for table, title in titles.items()
    ]
    return "\n".join(parts)


def _contents(kinds: Iterable[str], titles: dict[type[Table], str]) -> str:
    """Every kind and every part, a link each; the parts by the documents that they are of."""
    lines = [f"- {_linked(words)}" for words in kinds]
    lines.append(f"- {_linked('Parts')}")
    for family, words in _FAMILIES.items():
        links = [_linked(title) for table, title in titles.items() if _family(table) == family]
        lines += [f"  - {words}: {', '.join(links)}"] if links else []
    return "\n".join(lines) + "\n"


def _family(table: type[Table]) -> str:
    names = table.__module__.split(".")
    return names[1] if names[1] in _FAMILIES else ""


def _section(table: type[Table], apart: list[type[Table]], titles: dict[type[Table], str]) -> str:
    rows = list(table_rows(table, apart))
    bases = [base for base in table.__mro__[1:] if base in titles]
    lead = ""
    if bases:
        known = {row for base in bases for row in table_rows(base, apart)}
        rows = [row for row in rows if row not in known]
        links = ", ".join(_linked(titles[base]) for base in bases)
        lead = f"All of {links}, and:\n\n" if rows else f"All of {links}.\n"
    lines = _lines(rows, titles)
    return lead + ("\n".join(["| field | becomes | |", "|---|---|---|", *lines]) + "\n" if lines else "")


def _lines(rows: Iterable[FieldRow | Link], titles: dict[type[Table], str]) -> list[str]:
    """One line for each field; what is described elsewhere is linked from the field that holds it."""
    lines: list[tuple[str, str, str]] = []
    for row in rows:
        if isinstance(row, FieldRow):
            words = " ".join(part for part in (row.doc, _sentence(row.why)) if part)
            lines.append((f"`{row.path}`", row.effect.value, words))
        else:
            path, effect, words = lines.pop()
            lines.append((path, effect, f"{words} See {_linked(titles[row.table])}."))
    return [f"| {path} | {effect} | {words.replace('|', '&#124;')} |" for path, effect, words in lines]


def _sentence(why: str) -> str:
    return f"{why[0].upper()}{why[1:]}." if why else ""


def _linked(title: str) -> str:
    anchor = re.sub(r"[^a-z0-9_ -]", "", title.lower()).replace(" ", "-")
    return f"[{title}](#{anchor})"


def _apart(roots: Iterable[type[Table]]) -> list[type[Table]]:
    """The tables that are described once: those that several others lead to, or extend, and that are worth a section."""
    used: dict[type[Table], set[tuple[type[Table], str]]] = defaultdict(set)
    order: list[type[Table]] = []
    waiting, seen = list(dict.fromkeys(roots)), set[type[Table]]()
    extended: dict[type[Table], set[type[Table]]] = defaultdict(set)
    while waiting:
        table = waiting.pop(0)
        if table in seen:
            continue
        seen.add(table)
        order.append(table)
        for base in table.__mro__[1:]:
            if issubclass(base, Table) and base is not Table:
                extended[base].add(table)
        for key, within in _within(table):
            used[within].add((table, key))
            waiting.append(within)
    known = [*order, *(base for base in extended if base not in seen)]
    return [
        table
        for table in known
        if (len(table.fields()) >= _FEW and len(used[table]) >= _SHARED_BY)
        or (len(table.fields()) >= _MANY and len(extended[table]) + len(used[table]) >= _SHARED_BY)
    ]


def _within(table: type[Table]) -> Iterator[tuple[str, type[Table]]]:
    for key, field in table.fields().items():
        if field.effect is not Effect.REFUSED:
            yield from ((key, within) for _, within in tables_of(field.kind))


def _titles(tables: Iterable[type[Table]]) -> dict[type[Table], str]:
    """What each table is called: its docstring's first sentence, with the format where two are called the same."""
    titles: dict[type[Table], str] = {}
    for table in tables:
        title = (
            (table.__doc__ or table.__name__)
            .split("\n")[0]
            .split(":")[0]
            .split(";")[0]
            .rstrip(".")
            .replace("`", "")
        )
        if title in titles.values():
            family = table.__module__.rsplit(".", 1)[-1].split("_")[0]
            title = f"{title} ({family})"
        titles[table] = title
    return titles


if __name__ == "__main__":
    PAGE.write_text(rendered())
