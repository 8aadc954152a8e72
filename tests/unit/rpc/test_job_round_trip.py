"""A job survives the wire: what is sent as a typed spec is what arrives."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from muster_core.models import (
    CleanPodPolicy,
    ElasticPolicy,
    Framework,
    Job,
    JobKind,
    PlacementPolicy,
    Port,
    Problem,
    Resources,
    RestartPolicy,
    RestartScope,
    Role,
    RunPolicy,
    Severity,
    Strategy,
    SuccessPolicy,
    Template,
    Toleration,
)
from muster_rpc.convert import job_from_proto, job_to_proto
from muster_rpc.v1 import job_pb2

texts = st.text(alphabet=st.characters(codec="utf-8"), max_size=8)
words = st.from_regex(r"[a-z]([a-z0-9-]{0,6}[a-z0-9])?", fullmatch=True)
amounts = st.integers(0, 2**63 - 1)
counts = st.integers(0, 2**31 - 1)
seconds = st.integers(0, 10_000_000)
maybe_seconds = st.none() | seconds
maps = st.dictionaries(texts, texts, max_size=3)
numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False, width=32)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects: st.SearchStrategy[dict[str, Any]] = st.dictionaries(texts, json_values, max_size=3)

resources = st.builds(
    Resources,
    cpu=amounts,
    memory=amounts,
    gpu=amounts,
    gpu_memory=amounts,
    ephemeral_storage=amounts,
    extended=st.dictionaries(texts, amounts, max_size=2),
)
tolerations = st.builds(
    Toleration, key=texts, operator=st.sampled_from(["Equal", "Exists"]), value=texts, effect=texts
)
templates = st.builds(
    Template,
    image=texts,
    command=st.lists(texts, max_size=3).map(tuple),
    args=st.lists(texts, max_size=3).map(tuple),
    env=maps,
    working_dir=texts,
    requests=resources,
    limits=resources,
    ports=st.lists(st.builds(Port, name=words, number=st.integers(1, 65535)), max_size=2).map(tuple),
    labels=maps,
    annotations=maps,
    node_selector=maps,
    tolerations=st.lists(tolerations, max_size=2).map(tuple),
    node_affinity=objects,
    grace_s=seconds,
    pod=objects,
)
roles = st.builds(
    Role,
    name=words,
    replicas=counts,
    min=counts,
    max=counts,
    template=templates,
    overrides=st.dictionaries(st.integers(0, 1000), templates, max_size=2),
    restart_policy=st.sampled_from(RestartPolicy),
)
problems = st.builds(
    Problem,
    code=texts,
    path=texts,
    message=texts,
    severity=st.sampled_from(Severity),
    line=counts,
    column=counts,
    found=texts,
    allowed=texts,
    fix=texts,
)
jobs = st.builds(
    Job,
    name=words,
    roles=st.lists(roles, max_size=3).map(tuple),
    namespace=words,
    queue=texts,
    priority=st.integers(-(2**31), 2**31 - 1),
    preemptible=st.booleans(),
    kind=st.sampled_from(JobKind),
    framework=st.sampled_from(Framework),
    dialect=words,
    min_available=st.none() | st.integers(1, 1000),
    placement=st.builds(
        PlacementPolicy,
        strategy=st.sampled_from(Strategy),
        topology=texts,
        topology_required=st.booleans(),
        gpu_topology=st.booleans(),
    ),
    elastic=st.builds(ElasticPolicy, policy=texts, cool_down_s=seconds, step=counts),
    run=st.builds(
        RunPolicy,
        restart_scope=st.none() | st.sampled_from(RestartScope),
        backoff_limit=counts,
        active_deadline_s=maybe_seconds,
        queue_deadline_s=maybe_seconds,
        start_timeout_s=maybe_seconds,
        ttl_s=maybe_seconds,
        clean_pod_policy=st.sampled_from(CleanPodPolicy),
        success_policy=st.sampled_from(SuccessPolicy),
        suspend=st.booleans(),
    ),
    labels=maps,
    annotations=maps,
    warnings=st.lists(problems, max_size=2).map(tuple),
)


@settings(max_examples=60, deadline=None)
@given(jobs)
def test_a_job_comes_back_from_the_wire_as_it_was_sent(job: Job):
    sent = job_to_proto(job).SerializeToString()
    assert job_from_proto(job_pb2.JobSpec.FromString(sent)) == job
