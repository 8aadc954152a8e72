"""What the page says about policies, traces and clusters is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from muster_core.simulation import PLANS
from muster_core.simulation.cluster import is_shorthand, read_cluster, read_shorthand
from muster_core.simulation.traces import FORMATS, columns_of
from muster_core.simulation.traces.names import OWN

PAGE = (Path(__file__).resolve().parents[4] / "docs/simulate.md").read_text()


def rows(name: str) -> str:
    return next(line for line in PAGE.splitlines() if line.startswith(f"| `{name}`"))


@pytest.mark.parametrize("name", PLANS)
def test_every_policy_has_its_row(name: str) -> None:
    assert rows(name)


@pytest.mark.parametrize("name", [name for name in FORMATS if name != OWN])
def test_every_format_has_its_row(name: str) -> None:
    assert rows(name)


def test_every_column_of_our_own_is_explained() -> None:
    _, known = columns_of()[OWN]
    assert all(f"`{column}`" in PAGE for column in known)


@pytest.mark.parametrize("name", ["tiresias", "pollux", "philly", "openb"])
def test_the_columns_that_a_format_is_known_by_are_named(name: str) -> None:
    required, _ = columns_of()[name]
    named = set(re.findall(r"`([a-z_]+)`", rows(name)))
    assert required - {"name"} <= named


def test_the_clusters_of_the_page_are_read() -> None:
    (document,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    cluster = read_cluster(document)
    assert (len(cluster.nodes), cluster.gpus) == (10, 72_000)
    for text in ("8x8gpu", "4x8gpu-96cpu-768gib+2x4gpu"):
        assert f"`{text}`" in PAGE
        assert is_shorthand(text)
        assert read_shorthand(text).problems == ()
