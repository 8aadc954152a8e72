"""Variables that every replica has, and which of them a template may override."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pytest

from muster_core.frameworks import environment, possible_replicas
from muster_core.models import Framework, Job, ReplicaRecord, Template

if TYPE_CHECKING:
    from .conftest import GangBuilder


def variables(gang: GangBuilder, job: Job, replica: ReplicaRecord) -> dict[str, str]:
    """Return the environment of ``replica``."""
    return environment(gang.record(replica), job, replica, context=gang.context(job), traceparent="00-a-b-01")


def test_every_replica_has_its_identity_and_addresses(gang: GangBuilder) -> None:
    job = gang.job(("ps", 1, 1), ("worker", 2, 2))

    env = variables(gang, job, gang.replica("worker", 1))

    config = env.pop("TF_CONFIG")
    assert json.loads(config)["task"] == {"type": "worker", "index": 1}
    assert env == {
        "OWN": "worker",
        "MUSTER_JOB_ID": "j-1",
        "MUSTER_JOB": "demo",
        "MUSTER_ROLE": "worker",
        "MUSTER_INDEX": "1",
        "MUSTER_ATTEMPT": "2",
        "MUSTER_GENERATION": "3",
        "MUSTER_MEMBERS": "/run/members.json",
        "MUSTER_ADDRESS": "worker-1:2222",
        "MUSTER_PORT": "2222",
        "TRACEPARENT": "00-a-b-01",
    }


def test_a_plain_job_has_no_tf_config(gang: GangBuilder) -> None:
    job = gang.job(("worker", 2, 2), framework=Framework.PLAIN)

    assert "TF_CONFIG" not in variables(gang, job, gang.replica("worker", 0))


def test_a_job_of_one_replica_has_no_tf_config(gang: GangBuilder) -> None:
    assert "TF_CONFIG" not in variables(gang, gang.job(("worker", 1, 1)), gang.replica("worker", 0))


def test_an_override_replaces_the_whole_environment_of_its_index(gang: GangBuilder) -> None:
    job = gang.job(("worker", 2, 2))
    role = msgspec.structs.replace(job.roles[0], overrides={1: Template(env={"SPECIAL": "1"})})
    job = msgspec.structs.replace(job, roles=(role,))

    first, second = (variables(gang, job, gang.replica("worker", i)) for i in (0, 1))

    assert (first.get("OWN"), first.get("SPECIAL")) == ("worker", None)
    assert (second.get("OWN"), second.get("SPECIAL")) == (None, "1")


@pytest.mark.parametrize("name", ["TF_CONFIG", "MUSTER_INDEX", "MUSTER_MEMBERS", "TRACEPARENT"])
def test_a_template_cannot_override_the_identity_of_a_replica(gang: GangBuilder, name: str) -> None:
    job = gang.job(("worker", 2, 2))
    role = msgspec.structs.replace(job.roles[0], template=Template(env={name: "mine"}))
    job = msgspec.structs.replace(job, roles=(role,))

    assert variables(gang, job, gang.replica("worker", 0))[name] != "mine"


def test_every_index_up_to_the_maximum_is_listed(gang: GangBuilder) -> None:
    job = gang.job(("ps", 1, 1), ("worker", 1, 3))

    assert possible_replicas(job) == [("ps", 0), ("worker", 0), ("worker", 1), ("worker", 2)]


@pytest.mark.parametrize("name", ["PYTHONUNBUFFERED", "GLOO_SOCKET_IFNAME"])
def test_a_template_overrides_variables_that_are_not_identity(gang: GangBuilder, name: str) -> None:
    job = gang.job(("worker", 2, 2), framework=Framework.PYTORCH)
    role = msgspec.structs.replace(job.roles[0], template=Template(env={name: "mine"}))
    job = msgspec.structs.replace(job, roles=(role,))

    assert gang.variables(job, "worker", 0, gang.context(job, interface="lo"))[name] == "mine"


def test_framework_variables_precede_the_templates_so_that_it_can_refer_to_them(gang: GangBuilder) -> None:
    job = gang.job(("worker", 2, 2), framework=Framework.PYTORCH)

    names = list(variables(gang, job, gang.replica("worker", 0)))

    assert names[-1] == "OWN"
