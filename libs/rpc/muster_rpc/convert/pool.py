"""Explanations and queue status. Apart from the rest, because the command line should not load scheduling to show a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from muster_core.scheduling import Explanation, QueueReport, Remedy, Reservation, remedy_text
from muster_rpc.convert.codec import Codecs, StructMapping, Values, duration_to_proto, timestamp_to_proto
from muster_rpc.convert.specs import CODECS
from muster_rpc.v1 import explanation_pb2, queue_service_pb2


def _complete_remedy(remedy: Remedy, values: Values) -> None:
    values["message"] = remedy_text(remedy)
    if remedy.seconds:
        values["active_deadline"] = duration_to_proto(remedy.seconds)


_codecs = Codecs(
    tables={
        **CODECS.tables,
        Explanation: StructMapping(
            omitted=frozenset({"ahead", "blocked_by", "blocked_since", "reservation", "reserved_since"})
        ),
        Remedy: StructMapping(omitted=frozenset({"seconds"}), written=_complete_remedy),
        QueueReport: StructMapping(
            names={"share": "share_milli", "fair_share": "fair_share_milli", "due": "fair_share"},
            omitted=frozenset({"spec"}),
        ),
    },
    texts=CODECS.texts,
)
_EXPLANATIONS = _codecs.codec(Explanation, explanation_pb2.Explanation)
_REPORTS = _codecs.codec(QueueReport, queue_service_pb2.QueueStatus)
_RESERVATIONS = _codecs.codec(Reservation, explanation_pb2.Reservation)


def explanation_to_proto(
    explanation: Explanation, *, name_of: Callable[[str], str]
) -> explanation_pb2.Explanation:
    """The explanation as a message; ``name_of`` gives the name of a job by its id."""
    own, other = explanation.reservation, explanation.blocked_by
    return _EXPLANATIONS.to_proto(
        explanation,
        ahead=[name_of(job_id) for job_id in explanation.ahead],
        reservation=_reservation(own, name_of(own.job_id), explanation.reserved_since) if own else None,
        blocked_by=_reservation(other, name_of(other.job_id), explanation.blocked_since) if other else None,
    )


def queue_status_to_proto(
    report: QueueReport, reservations: Sequence[tuple[Reservation, str]] = ()
) -> queue_service_pb2.QueueStatus:
    """The use of a queue as a message; ``reservations`` are those of its jobs, each with the job's name."""
    kept = [_reservation(reservation, name) for reservation, name in reservations]
    return _REPORTS.to_proto(report, reservations=kept)


def _reservation(reservation: Reservation, name: str, since: int = 0) -> explanation_pb2.Reservation:
    return _RESERVATIONS.to_proto(reservation, name=name, reserved_at=timestamp_to_proto(since))
