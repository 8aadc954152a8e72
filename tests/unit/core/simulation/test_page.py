"""The page on simulation covers every policy, trace format and column, and its clusters are valid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from muster_core.simulation import (
    FORMATS,
    OWN_FORMAT,
    POLICIES,
    TABLE_FORMATS,
    is_shorthand,
    read_cluster,
    read_shorthand,
)

COLUMNS = {table.name: table for table in TABLE_FORMATS}
PAGE = (Path(__file__).resolve().parents[4] / "docs/simulate.md").read_text()


def row_of(name: str) -> str:
    return next(line for line in PAGE.splitlines() if line.startswith(f"| `{name}`"))


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_has_its_row(name: str) -> None:
    assert row_of(name)


@pytest.mark.parametrize("name", [name for name in FORMATS if name != OWN_FORMAT])
def test_every_format_has_its_row(name: str) -> None:
    assert row_of(name)


def test_every_column_of_musters_format_is_explained() -> None:
    assert all(f"`{column}`" in PAGE for column in COLUMNS[OWN_FORMAT].known)


@pytest.mark.parametrize("name", ["tiresias", "pollux", "philly", "openb"])
def test_the_columns_by_which_a_format_is_recognised_are_listed(name: str) -> None:
    named = set(re.findall(r"`([a-z_]+)`", row_of(name)))
    assert COLUMNS[name].required - {"name"} <= named


def test_the_clusters_of_the_page_are_valid() -> None:
    (document,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    cluster = read_cluster(document)
    assert (len(cluster.nodes), cluster.gpus) == (10, 72_000)
    for text in ("8x8gpu", "4x8gpu-96cpu-768gib+2x4gpu"):
        assert f"`{text}`" in PAGE
        assert is_shorthand(text)
        assert read_shorthand(text).problems == ()
