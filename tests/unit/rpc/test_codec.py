"""The codecs: a struct and a message that do not fit together fail when the codec is made, not when a call needs it."""

from __future__ import annotations

import enum
from collections.abc import Callable

import msgspec
import pytest

from muster_core.models import Phase, Reason
from muster_core.scheduling import Explanation, Remedy, RemedyKind, Reservation, remedy_text
from muster_rpc.convert.codec import Codecs, StructMapping, Texts
from muster_rpc.convert.pool import explanation_to_proto
from muster_rpc.v1 import explanation_pb2, job_pb2


class Renamed(msgspec.Struct):
    """A port whose number has another name."""

    name: str = ""
    port: int = 0


class Colour(enum.StrEnum):
    """An enum that the API does not have."""

    RED = "red"


def codecs(mapping: StructMapping | None = None) -> Codecs:
    return Codecs(tables={Renamed: mapping} if mapping else {}, texts={})


def test_a_field_that_the_message_does_not_have_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"muster.v1.Port has no field port of Renamed"):
        codecs().codec(Renamed, job_pb2.Port)


def test_a_renamed_an_omitted_and_a_partial_field_need_a_mapping() -> None:
    named = codecs(StructMapping(names={"port": "number"})).codec(Renamed, job_pb2.Port)
    omitted = codecs(StructMapping(omitted=frozenset({"port"}))).codec(Renamed, job_pb2.Port)
    partial = codecs(StructMapping(partial=True)).codec(Renamed, job_pb2.Port)

    assert named.to_proto(Renamed(name="http", port=80)) == job_pb2.Port(name="http", number=80)
    assert named.from_proto(job_pb2.Port(name="http", number=80)) == Renamed(name="http", port=80)
    assert omitted.to_proto(Renamed(name="http", port=80)) == job_pb2.Port(name="http")
    assert partial.from_proto(job_pb2.Port(name="http", number=80)) == Renamed(name="http")


def test_a_member_that_the_enum_does_not_have_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"muster.v1.Phase has no \['RED'\] of Colour"):
        codecs().enum(job_pb2.Phase.DESCRIPTOR, Colour)


@pytest.mark.parametrize(
    ("text", "spelled"),
    [(Texts.camel, "NoSchedule"), (Texts.snake, "no_schedule"), (Texts.kebab, "no-schedule")],
)
def test_an_enum_that_is_text_in_the_core_has_one_spelling(text: Callable[[str], str], spelled: str) -> None:
    made = Codecs(tables={}, texts={"TaintEffect": text}).enum(job_pb2.TaintEffect.DESCRIPTOR)

    assert made.to_proto(spelled) == job_pb2.TAINT_EFFECT_NO_SCHEDULE
    assert made.from_proto(job_pb2.TAINT_EFFECT_NO_SCHEDULE) == spelled


def test_a_remedy_is_data_with_a_message() -> None:
    remedies = (
        Remedy(kind=RemedyKind.DROP_CONSTRAINT, verified=True, constraint="NodeSelector", values=("zone=a",)),
        Remedy(kind=RemedyKind.SET_ACTIVE_DEADLINE, verified=True, seconds=90),
        Remedy(kind=RemedyKind.RAISE_LIMIT, queue="research", amounts={"gpu": 4000}),
    )
    explanation = Explanation(
        job_id="j-1", phase=Phase.QUEUED, reason=Reason(code="Why"), remedies=remedies, ahead=("j-0",)
    )

    message = explanation_to_proto(explanation, name_of=lambda job_id: f"name of {job_id}")

    dropped, deadline, raised = message.remedies
    assert [one.message for one in message.remedies] == [remedy_text(one) for one in remedies]
    assert (dropped.kind, dropped.verified) == (explanation_pb2.REMEDY_KIND_DROP_CONSTRAINT, True)
    assert (dropped.constraint, list(dropped.values)) == (
        explanation_pb2.CONSTRAINT_NODE_SELECTOR,
        ["zone=a"],
    )
    assert deadline.active_deadline.seconds == 90
    assert not raised.HasField("active_deadline")
    assert (raised.queue, dict(raised.amounts)) == ("research", {"gpu": 4000})
    assert list(message.ahead) == ["name of j-0"]


def test_reservations_have_the_names_of_their_jobs_and_their_times() -> None:
    def reservation(job_id: str) -> Reservation:
        return Reservation(job_id=job_id, queue="q", nodes=("n1",), expected_at=5_000_000, freed=True)

    explanation = Explanation(
        job_id="j-1",
        phase=Phase.QUEUED,
        reason=Reason(code="Why"),
        reservation=reservation("j-1"),
        reserved_since=3_000_000,
        blocked_by=reservation("j-0"),
    )

    message = explanation_to_proto(explanation, name_of=lambda job_id: f"name of {job_id}")

    assert (message.reservation.name, message.reservation.reserved_at.seconds) == ("name of j-1", 3)
    assert (message.blocked_by.name, message.blocked_by.expected_at.seconds) == ("name of j-0", 5)
    assert message.blocked_by.freed
    assert not message.blocked_by.HasField("reserved_at")
