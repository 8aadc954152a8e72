"""Why a job stands where it stands, on the wire.

Not among the names of the package: only who decides explains, and clients need not load what decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from muster_core.scheduling import Explanation, Reservation, remedy_text
from muster_rpc.convert.enums import phase_to_proto
from muster_rpc.convert.instants import timestamp_to_proto
from muster_rpc.convert.record import reason_to_proto
from muster_rpc.v1 import explanation_pb2


def explanation_to_proto(said: Explanation, *, name_of: Callable[[str], str]) -> explanation_pb2.Explanation:
    """The explanation as a message; ``name_of`` answers the name of a job by its id."""
    return explanation_pb2.Explanation(
        job_id=said.job_id,
        name=said.name,
        phase=phase_to_proto(said.phase),
        reason=reason_to_proto(said.reason),
        queue=said.queue,
        position=said.position,
        ahead=[name_of(job_id) for job_id in said.ahead],
        nodes=said.nodes,
        ruled_out=[
            explanation_pb2.RuledOut(constraint=one.constraint, message=one.message, nodes=one.nodes)
            for one in said.ruled_out
        ],
        missing=[
            explanation_pb2.Missing(resource=one.resource, needed=one.needed, free=one.free, nodes=one.nodes)
            for one in said.missing
        ],
        nearest_miss=said.nearest_miss,
        fits_empty_pool=said.feasible_when_empty,
        reserved=_reservation(said.reservation, said.reserved_since, name_of),
        behind=_reservation(said.blocked_by, said.blocked_since, name_of),
        expected_start=timestamp_to_proto(said.expected_start or 0),
        expected_from=said.expected_from,
        not_before=timestamp_to_proto(said.not_before),
        remedies=[remedy_text(one) for one in said.remedies],
        roles=_roles(said),
        notes=said.notes,
    )


def _reservation(
    reservation: Reservation | None, since: int, name_of: Callable[[str], str]
) -> explanation_pb2.KeptRoom | None:
    if reservation is None:
        return None
    return explanation_pb2.KeptRoom(
        job_id=reservation.job_id,
        name=name_of(reservation.job_id),
        queue=reservation.queue,
        nodes=reservation.nodes,
        since=timestamp_to_proto(since),
        forced=reservation.freed,
        expected_at=timestamp_to_proto(reservation.expected_at or 0),
    )


def _roles(said: Explanation) -> Sequence[explanation_pb2.RoleSize]:
    return [
        explanation_pb2.RoleSize(
            role=one.role,
            size=one.size,
            min=one.min,
            wanted=one.wanted,
            max=one.max,
            surplus=one.surplus,
            room_for=one.can_add,
        )
        for one in said.roles
    ]
