"""Every field of a job survives the round trip through its message, also in jobs that no rule would accept."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from muster_core.models import (
    AppliedDefaults,
    Build,
    Category,
    Convention,
    FrameworkOptions,
    Job,
    Problem,
    Rendezvous,
    Resources,
    Role,
    Severity,
    Template,
)
from muster_rpc.convert import job_from_proto, job_to_proto
from muster_rpc.v1 import job_pb2

ROLE = Role(name="worker", replicas=2, min=1, max=4, template=Template(image="x"))

texts = st.text(alphabet=st.characters(codec="utf-8"), max_size=8)
numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects: st.SearchStrategy[dict[str, Any]] = st.dictionaries(texts, json_values, max_size=3)


def sent(job: Job) -> Job:
    return job_from_proto(job_pb2.JobSpec.FromString(job_to_proto(job).SerializeToString()))


@settings(max_examples=60, deadline=None)
@given(objects)
def test_raw_json_survives_the_round_trip(raw: dict[str, Any]):
    template = Template(pod=raw, node_affinity=raw)
    role = Role(name="a", replicas=1, min=1, max=1, template=template, overrides={3: template})
    job = Job(name="demo", roles=(role,), options=FrameworkOptions(parameters=raw))
    assert sent(job) == job


PARTS: dict[str, dict[str, Any]] = {
    "amounts of the largest": {
        "roles": (
            Role(
                name="a",
                replicas=0,
                min=0,
                max=2**31 - 1,
                template=Template(requests=Resources(cpu=2**63 - 1, extended={"": 2**63 - 1})),
            ),
        )
    },
    "a category": {"category": Category.JOBS},
    "options": {
        "options": FrameworkOptions(
            processes="auto",
            sparse_cluster=True,
            evaluator_in_cluster=True,
            model_dir="/models",
            conventions=(Convention.POLYAXON,),
            parameters={"lr": 0.1, "layers": [1, None]},
        )
    },
    "the least rendezvous": {"options": FrameworkOptions(rendezvous=Rendezvous())},
    "a rendezvous": {
        "options": FrameworkOptions(
            rendezvous=Rendezvous(
                backend="etcd",
                host="etcd",
                port=0,
                job_id="a",
                conf={"timeout": "5"},
                max_restarts=0,
                standalone=True,
            )
        )
    },
    "the least build": {"build": Build()},
    "a build": {"build": Build(base="b", image="i", steps=("a", ""), env={"A": ""})},
    "who built it": {"built_by": "image"},
    "defaults": {"defaults": AppliedDefaults(category=Category.BUILDS, version=7, fields=("worker.tolerations",))},
    "a warning": {"warnings": (Problem(code="A", path="b", message="c", severity=Severity.WARNING, line=2),)},
}  # fmt: skip


@pytest.mark.parametrize("fields", PARTS.values(), ids=PARTS)
def test_every_field_survives_the_round_trip(fields: dict[str, Any]):
    job = replace(Job(name="demo", roles=(ROLE,)), **fields)
    assert sent(job) == job


def test_a_rendezvous_without_a_backend_uses_c10d():
    spec = job_pb2.JobSpec(options=job_pb2.FrameworkOptions(rendezvous=job_pb2.Rendezvous(host="a")))
    assert job_from_proto(spec).options.rendezvous == Rendezvous(backend="c10d", host="a")
