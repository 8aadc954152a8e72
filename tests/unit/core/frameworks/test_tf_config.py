"""TF_CONFIG, against JSON written by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from muster_core.frameworks import tf_config

if TYPE_CHECKING:
    from .conftest import Scene

ELASTIC = """
{"cluster": {"ps": ["ps-0:2222"],
             "worker": ["worker-0:2222", "worker-1:2222", "worker-2:2222", "worker-3:2222"]},
 "task": {"type": "worker", "index": 1},
 "environment": "cloud"}
"""

EVALUATED = """
{"cluster": {"chief": ["chief-0:2222"], "worker": ["worker-0:2222", "worker-1:2222"]},
 "task": {"type": "evaluator", "index": 0},
 "environment": "cloud"}
"""

MASTER = """
{"cluster": {"master": ["master-0:2222"], "ps": ["ps-0:2222", "ps-1:2222"]},
 "task": {"type": "master", "index": 0},
 "environment": "cloud"}
"""


@pytest.mark.parametrize(
    ("roles", "me", "golden"),
    [
        ((("ps", 1, 1), ("worker", 2, 4)), ("worker", 1), ELASTIC),
        ((("chief", 1, 1), ("worker", 2, 2), ("evaluator", 1, 1)), ("evaluator", 0), EVALUATED),
        ((("master", 1, 1), ("ps", 2, 2)), ("master", 0), MASTER),
    ],
    ids=["elastic", "evaluator", "master"],
)
def test_a_replica_is_told_the_cluster_and_its_task(
    scene: Scene, roles: tuple[tuple[str, int, int], ...], me: tuple[str, int], golden: str
) -> None:
    job = scene.job(*roles)

    config = tf_config(job, scene.replica(*me), scene.addresses(job))

    assert config is not None
    assert json.loads(config) == json.loads(golden)


def test_those_that_run_are_told_the_same_at_every_size(scene: Scene) -> None:
    small, large = scene.job(("ps", 1, 1), ("worker", 1, 4)), scene.job(("ps", 1, 1), ("worker", 4, 4))
    me = scene.replica("worker", 0)

    assert tf_config(small, me, scene.addresses(small)) == tf_config(large, me, scene.addresses(large))


def test_a_job_of_one_replica_has_none(scene: Scene) -> None:
    job = scene.job(("worker", 1, 1))

    assert tf_config(job, scene.replica("worker", 0), scene.addresses(job)) is None


def test_a_job_that_may_grow_from_one_replica_has_one(scene: Scene) -> None:
    job = scene.job(("worker", 1, 2))

    assert tf_config(job, scene.replica("worker", 0), scene.addresses(job)) is not None


def test_a_role_that_may_have_no_replica_is_not_listed(scene: Scene) -> None:
    job = scene.job(("ps", 0, 0), ("worker", 2, 2))

    config = tf_config(job, scene.replica("worker", 0), scene.addresses(job))

    assert config is not None
    assert list(json.loads(config)["cluster"]) == ["worker"]
