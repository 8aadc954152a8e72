"""Queues as messages: they survive the round trip, and absent fields have the defaults of a document."""

from __future__ import annotations

from google.protobuf import duration_pb2
from hypothesis import given, strategies as st

from muster_core.models import (
    ELASTIC_POLICIES,
    QueueElastic,
    QueuePolicy,
    QueueSpec,
    ResourceLimits,
    Resources,
)
from muster_core.scheduling import QueueReport, Reservation
from muster_rpc.convert import queue_from_proto, queue_to_proto
from muster_rpc.convert.pool import queue_status_to_proto
from muster_rpc.v1 import queue_service_pb2 as pb

resources = st.builds(Resources, cpu=st.integers(0, 10**9), gpu=st.integers(0, 10**9))
specs = st.builds(
    QueueSpec,
    name=st.just("a"),
    parent=st.sampled_from(("", "b")),
    guaranteed=resources,
    limit=st.builds(
        ResourceLimits, cpu=st.none() | st.integers(0, 10**9), gpu=st.none() | st.integers(0, 10**9)
    ),
    weight=st.integers(1, 10**6),
    policy=st.sampled_from(QueuePolicy),
    starvation_after_s=st.integers(0, 10**6),
    preempts_within=st.booleans(),
    reclaims=st.booleans(),
    namespaces=st.lists(st.sampled_from(("x", "y")), unique=True).map(tuple),
    elastic=st.none()
    | st.builds(
        QueueElastic,
        policy=st.sampled_from(("", *ELASTIC_POLICIES)),
        idle_period_s=st.integers(0, 10**6),
        cool_down_s=st.integers(0, 10**6),
        step=st.integers(0, 99),
        min_gain=st.integers(0, 9999),
    ),
)


@given(specs)
def test_a_queue_survives_the_round_trip(spec: QueueSpec) -> None:
    message = pb.QueueSpec.FromString(queue_to_proto(spec).SerializeToString())

    assert queue_from_proto(message) == (spec, ())


def test_absent_fields_have_the_defaults_of_a_document() -> None:
    assert queue_from_proto(pb.QueueSpec(name="a")) == (QueueSpec(name="a"), ())
    spec, _ = queue_from_proto(pb.QueueSpec(name="a", elastic=pb.QueueElastic()))
    assert spec.elastic == QueueElastic()


def test_invalid_values_are_reported_with_the_queue() -> None:
    message = pb.QueueSpec(
        name="a",
        policy=pb.QueuePolicy.ValueType(99),
        starvation_after=duration_pb2.Duration(seconds=-1),
        elastic=pb.QueueElastic(idle_period=duration_pb2.Duration(seconds=-1)),
    )
    spec, problems = queue_from_proto(message)

    assert spec.policy is QueuePolicy.FIFO_SKIP
    assert [problem.path for problem in problems] == [
        "a.policy",
        "a.starvation_after",
        "a.elastic.idle_period",
    ]


def test_a_queue_report_becomes_its_status() -> None:
    report = QueueReport(
        spec=QueueSpec(name="a"),
        allocated=Resources(gpu=3000),
        borrowed=Resources(gpu=1000),
        guaranteed_in_use=Resources(gpu=2000),
        share=375,
        fair_share=500,
        due=Resources(gpu=4000),
        running=2,
        waiting=1,
        oldest_wait_at=5_000_000,
    )
    kept = Reservation(job_id="j-1", queue="a", nodes=("n1", "n2"), expected_at=9_000_000, freed=False)
    status = queue_status_to_proto(report, [(kept, "big")])

    assert (status.allocated.gpu_milli, status.borrowed.gpu_milli) == (3000, 1000)
    assert (status.guaranteed_in_use.gpu_milli, status.fair_share.gpu_milli) == (2000, 4000)
    assert (status.share_milli, status.fair_share_milli, status.running, status.waiting) == (375, 500, 2, 1)
    assert status.oldest_wait_at.seconds == 5
    (reserved,) = status.reservations
    assert (reserved.job_id, reserved.name, list(reserved.nodes), reserved.expected_at.seconds) == (
        "j-1",
        "big",
        ["n1", "n2"],
        9,
    )
