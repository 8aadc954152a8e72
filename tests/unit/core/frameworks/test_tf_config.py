"""TF_CONFIG, against JSON from TensorFlow's documentation."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from muster_core.models import FrameworkOptions, Job

if TYPE_CHECKING:
    from .conftest import GangBuilder

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
def test_tf_config_has_the_cluster_and_the_task(
    gang: GangBuilder, roles: tuple[tuple[str, int, int], ...], me: tuple[str, int], golden: str
) -> None:
    assert config_of(gang, gang.job(*roles), *me) == json.loads(golden)


def test_tf_config_is_the_same_at_every_size(gang: GangBuilder) -> None:
    small, large = gang.job(("ps", 1, 1), ("worker", 1, 4)), gang.job(("ps", 1, 1), ("worker", 4, 4))

    assert config_of(gang, small, "worker", 0) == config_of(gang, large, "worker", 0)


def test_a_job_of_one_replica_has_no_tf_config(gang: GangBuilder) -> None:
    assert "TF_CONFIG" not in gang.variables(gang.job(("worker", 1, 1)), "worker", 0)


def test_an_elastic_job_of_one_replica_has_a_tf_config(gang: GangBuilder) -> None:
    assert "TF_CONFIG" in gang.variables(gang.job(("worker", 1, 2)), "worker", 0)


def test_a_role_that_may_have_no_replica_is_not_listed(gang: GangBuilder) -> None:
    assert list(config_of(gang, gang.job(("ps", 0, 0), ("worker", 2, 2)), "worker", 0)["cluster"]) == [
        "worker"
    ]


def test_an_evaluator_is_listed_if_the_job_sets_the_option(gang: GangBuilder) -> None:
    job = gang.job(("chief", 1, 1), ("evaluator", 1, 1), options=FrameworkOptions(evaluator_in_cluster=True))

    assert config_of(gang, job, "evaluator", 0)["cluster"] == {
        "chief": ["chief-0:2222"],
        "evaluator": ["evaluator-0:2222"],
    }


@pytest.mark.parametrize(
    ("me", "cluster"),
    [
        (("worker", 1), {"ps": ["ps-0:2222", "ps-1:2222"], "worker": {"1": "worker-1:2222"}}),
        (("chief", 0), {"ps": ["ps-0:2222", "ps-1:2222"], "chief": {"0": "chief-0:2222"}}),
        (("ps", 1), {"ps": ["ps-0:2222", "ps-1:2222"]}),
    ],
)
def test_a_sparse_cluster_has_the_replica_and_every_parameter_server(
    gang: GangBuilder, me: tuple[str, int], cluster: dict[str, object]
) -> None:
    options = FrameworkOptions(sparse_cluster=True)
    job = gang.job(("chief", 1, 1), ("ps", 2, 2), ("worker", 2, 2), options=options)

    config = config_of(gang, job, *me)

    assert config["cluster"] == cluster
    assert config["task"] == {"type": me[0], "index": me[1]}


def test_the_model_directory_is_set(gang: GangBuilder) -> None:
    job = gang.job(("master", 1, 1), ("worker", 1, 1), options=FrameworkOptions(model_dir="/outputs/1"))

    assert config_of(gang, job, "master", 0)["model_dir"] == "/outputs/1"


def config_of(gang: GangBuilder, job: Job, role: str, index: int) -> dict[str, Any]:
    """Return the decoded TF_CONFIG."""
    return json.loads(gang.variables(job, role, index)["TF_CONFIG"])
