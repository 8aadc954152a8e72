"""Queues on the wire: what they are meant to be, and what they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from muster_core.models import Problem, QueueChangeKind, QueueElastic, QueuePolicy, QueueSpec, Resources
from muster_rpc.convert.enums import QUEUE_CHANGES
from muster_rpc.convert.findings import Findings
from muster_rpc.convert.instants import duration_to_proto, timestamp_to_proto
from muster_rpc.convert.resources import resources_from_proto, resources_to_proto
from muster_rpc.v1 import job_pb2
from muster_rpc.v1 import queue_service_pb2 as pb

if TYPE_CHECKING:
    # The command line should not load the whole of scheduling to show a table.
    from muster_core.scheduling import QueueReport, Reservation


def queue_to_proto(spec: QueueSpec) -> pb.QueueSpec:
    """The queue as a message."""
    return pb.QueueSpec(
        name=spec.name,
        parent=spec.parent,
        guaranteed=_amounts(spec.guaranteed),
        limit=_amounts(spec.limit),
        weight=spec.weight,
        policy=spec.policy.value,
        starvation_after=duration_to_proto(spec.starvation_after_s),
        preempts_within=spec.preempts_within,
        reclaims=spec.reclaims,
        namespaces=spec.namespaces,
        elastic=_elastic_to_proto(spec.elastic) if spec.elastic else None,
    )


def queue_from_proto(message: pb.QueueSpec) -> tuple[QueueSpec, tuple[Problem, ...]]:
    """The queue of a message, and what of it cannot be meant; a path is the queue's name and its field.

    Whether it makes sense is the core's to judge.
    """
    findings, usual = Findings(), QueueSpec(name=message.name)
    starves, reclaims = message.HasField("starvation_after"), message.HasField("reclaims")
    spec = QueueSpec(
        name=message.name,
        parent=message.parent,
        guaranteed=resources_from_proto(message.guaranteed),
        limit=resources_from_proto(message.limit),
        weight=message.weight or usual.weight,
        policy=_policy(message, findings),
        starvation_after_s=findings.seconds(message.starvation_after, f"{message.name}.starvation_after_s")
        if starves
        else usual.starvation_after_s,
        preempts_within=message.preempts_within,
        reclaims=message.reclaims if reclaims else usual.reclaims,
        namespaces=tuple(message.namespaces),
        elastic=_elastic_from_proto(message, findings) if message.HasField("elastic") else None,
    )
    return spec, findings.problems


def queue_status_to_proto(
    report: QueueReport, reservations: Sequence[tuple[Reservation, str]] = ()
) -> pb.QueueStatus:
    """What a queue is now as a message; ``reservations`` are those of its jobs, each with the job's name."""
    return pb.QueueStatus(
        allocated=resources_to_proto(report.allocated),
        running=report.running,
        waiting=report.waiting,
        oldest_wait_at=timestamp_to_proto(report.oldest_wait_at),
        borrowed=resources_to_proto(report.borrowed),
        guaranteed_in_use=resources_to_proto(report.guaranteed_in_use),
        share_milli=report.share,
        fair_share_milli=report.fair_share,
        fair_share=resources_to_proto(report.due),
        reservations=[
            pb.QueueReservation(
                job_id=one.job_id,
                name=name,
                nodes=one.nodes,
                expected_at=timestamp_to_proto(one.expected_at or 0),
            )
            for one, name in reservations
        ],
    )


def queue_change_to_proto(name: str, kind: QueueChangeKind) -> pb.QueueChange:
    """What became of a queue as a message."""
    return pb.QueueChange(name=name, kind=QUEUE_CHANGES.to_proto(kind))


def queue_change_from_proto(message: pb.QueueChange) -> QueueChangeKind | None:
    """What became of a queue; None where nobody knows the word."""
    return QUEUE_CHANGES.from_proto(message.kind)


def _amounts(resources: Resources) -> job_pb2.Resources | None:
    return resources_to_proto(resources) if any(resources.amounts().values()) else None


def _policy(message: pb.QueueSpec, findings: Findings) -> QueuePolicy:
    names = [policy.value for policy in QueuePolicy]
    if not message.policy or message.policy in names:
        return QueuePolicy(message.policy or QueuePolicy.FIFO_SKIP)
    findings.report(
        "NotAllowed",
        f"{message.name}.policy",
        f"there is no policy {message.policy}",
        found=message.policy,
        allowed=", ".join(names),
    )
    return QueuePolicy.FIFO_SKIP


def _elastic_to_proto(elastic: QueueElastic) -> pb.QueueElastic:
    return pb.QueueElastic(
        policy=elastic.policy,
        quiet=duration_to_proto(elastic.quiet_s),
        cool_down=duration_to_proto(elastic.cool_down_s),
        step=elastic.step,
        min_gain=elastic.min_gain,
    )


def _elastic_from_proto(message: pb.QueueSpec, findings: Findings) -> QueueElastic:
    elastic, usual = message.elastic, QueueElastic()
    path = f"{message.name}.elastic"
    return QueueElastic(
        policy=elastic.policy,
        quiet_s=findings.seconds(elastic.quiet, f"{path}.quiet_s")
        if elastic.HasField("quiet")
        else usual.quiet_s,
        cool_down_s=findings.seconds(elastic.cool_down, f"{path}.cool_down_s"),
        step=elastic.step,
        min_gain=elastic.min_gain if elastic.HasField("min_gain") else usual.min_gain,
    )
