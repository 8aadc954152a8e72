"""The codec of events: round trips, older and newer versions, and unreadable events."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from muster_bus.messages import Incoming, check_subject
from muster_core import events
from muster_core.models import JobRecord, Node, Phase, Reason, Resources
from muster_events.codec import (
    UnreadableEvent,
    decode_record,
    encode_record,
    job_message,
    pool_message,
    read_job_event,
    read_pool_event,
)
from muster_events.subjects import job_subject

if TYPE_CHECKING:
    from .conftest import Wire

JOB_ID = "j-abcdefghijklmnop"
JOB_EVENTS: tuple[type[events.JobEvent], ...] = get_args(events.JobEvent)
POOL_EVENTS: tuple[type[events.PoolEvent], ...] = get_args(events.PoolEvent)
WHY = Reason(code="Why")

several = settings(
    deadline=None,
    max_examples=20,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)

_raw_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


def values(kind: msgspec.inspect.Type) -> st.SearchStrategy[object]:
    """Any value of a type, as msgspec describes it."""
    match kind:
        case msgspec.inspect.StructType():
            fields = {
                f.name: values(f.type) if f.required else st.just(_default(f)) | values(f.type)
                for f in kind.fields
            }
            return st.builds(kind.cls, **fields)
        case msgspec.inspect.EnumType():
            return st.sampled_from(list(kind.cls))
        case msgspec.inspect.UnionType():
            return st.one_of([values(one) for one in kind.types])
        case msgspec.inspect.VarTupleType():
            return st.lists(values(kind.item_type), max_size=2).map(tuple)
        case msgspec.inspect.DictType():
            return st.dictionaries(values(kind.key_type), values(kind.value_type), max_size=2)
        case _:
            return _PLAIN[type(kind)]


_PLAIN: dict[type[msgspec.inspect.Type], st.SearchStrategy[object]] = {
    msgspec.inspect.IntType: st.integers(-(2**63), 2**63 - 1),
    msgspec.inspect.StrType: st.text(max_size=8),
    msgspec.inspect.BoolType: st.booleans(),
    msgspec.inspect.NoneType: st.none(),
    msgspec.inspect.AnyType: _raw_json,
}


def _default(field: msgspec.inspect.Field) -> object:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def any_of(kind: type[msgspec.Struct]) -> st.SearchStrategy[object]:
    """Any value of a struct."""
    return values(msgspec.inspect.type_info(kind))


@pytest.mark.parametrize("kind", JOB_EVENTS, ids=lambda kind: kind.__name__)
@several
@given(data=st.data())
def test_a_jobs_event_comes_back_as_it_was_sent(
    wire: Wire, kind: type[events.JobEvent], data: st.DataObject
) -> None:
    event = data.draw(any_of(kind))
    assert isinstance(event, kind)

    stored = read_job_event(wire.send(event))

    assert stored == events.StoredEvent(
        job_id=JOB_ID,
        event=event,
        sequence=wire.sequence,
        at=wire.sequence * 1_000_000,
        source="test",
        traceparent="00-a-b-01",
    )


@pytest.mark.parametrize("kind", POOL_EVENTS, ids=lambda kind: kind.__name__)
@several
@given(data=st.data())
def test_a_pools_event_comes_back_as_it_was_sent(kind: type[events.PoolEvent], data: st.DataObject) -> None:
    event = data.draw(any_of(kind))
    assert isinstance(event, kind)

    assert read_pool_event(msgspec.json.encode(event)) == event


@several
@given(record=any_of(JobRecord))
def test_a_record_comes_back_as_it_was_kept(record: JobRecord) -> None:
    assert decode_record(encode_record(record)) == record


@pytest.mark.parametrize("kind", (*JOB_EVENTS, *POOL_EVENTS, JobRecord), ids=lambda kind: kind.__name__)
@several
@given(data=st.data())
def test_what_a_newer_writer_adds_is_skipped(kind: type[msgspec.Struct], data: st.DataObject) -> None:
    sent = data.draw(any_of(kind))
    fields: dict[str, object] = msgspec.json.decode(msgspec.json.encode(sent))
    newer = msgspec.json.encode(fields | {"added_in_version_9": {"deep": [1, {"er": None}]}})

    assert _read(kind, newer) == sent


@pytest.mark.parametrize("kind", (*JOB_EVENTS, *POOL_EVENTS, JobRecord), ids=lambda kind: kind.__name__)
@several
@given(data=st.data())
def test_what_an_older_writer_does_not_know_has_its_default(
    kind: type[msgspec.Struct], data: st.DataObject
) -> None:
    sent = data.draw(any_of(kind))
    fields: dict[str, object] = msgspec.json.decode(msgspec.json.encode(sent))
    optional = [f for f in msgspec.structs.fields(kind) if not f.required]
    older = msgspec.json.encode(
        {k: v for k, v in fields.items() if k not in {f.encode_name for f in optional}}
    )

    read = _read(kind, older)

    defaults = {
        f.name: f.default_factory() if f.default_factory is not msgspec.NODEFAULT else f.default
        for f in optional
    }
    assert {name: getattr(read, name) for name in defaults} == defaults


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "truncated"),
        (b"not json", "malformed"),
        (b"\xff\xfe", "utf-8"),
        (b"[]", "Expected `object`"),
        (b"{}", "missing required field `event`"),
        (b'{"event":"JobVanished"}', "JobVanished"),
        (b'{"event":"JobEvicted","attempt":"one","reason":{"code":"x"}}', "$.attempt"),
        (b'{"event":"JobEvicted","attempt":1}', "reason"),
        (b'{"event":"NodeChanged"}', "NodeChanged"),
        (b'{"event":"JobEvicted","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "recursion"),
    ],
)
def test_what_cannot_be_read_names_its_place_in_the_stream(data: bytes, says: str) -> None:
    incoming = Incoming(subject=job_subject(JOB_ID, "JobEvicted"), data=data, stream_sequence=77)

    with pytest.raises(UnreadableEvent) as refused:
        read_job_event(incoming)

    assert str(refused.value).startswith(f"{incoming.subject} at 77: ")
    assert says in str(refused.value)


def test_an_event_with_a_damaged_field_name_is_unreadable_and_not_another_event() -> None:
    data = b'{"event":"ProgressReported","attempt":1,"generation":1,"at\xf4empt":2}'
    for decode in (
        lambda: read_job_event(
            Incoming(subject=job_subject("j-abcdefghijklmnop", "ProgressReported"), data=data)
        ),
        lambda: read_pool_event(b'{"event":"NodeChanged","pool":"p","n\xefde":1}'),
        lambda: decode_record(b'{"job_id":"j-1","applied_sequence":1,"ph\xe1se":"Running"}'),
    ):
        with pytest.raises(UnreadableEvent, match="utf-8"):
            decode()


@pytest.mark.parametrize(
    "subject",
    ["muster.v1.job.x", "muster.v1.job.3.j-1", "muster.v1.job.3.j-1.JobEvicted.more", "other.a.b.c.d.e"],
)
def test_a_subject_that_is_no_jobs_events_cannot_be_read(subject: str) -> None:
    data = msgspec.json.encode(events.JobEvicted(attempt=1, reason=WHY))

    with pytest.raises(UnreadableEvent, match="is not the subject of a job event"):
        read_job_event(Incoming(subject=subject, data=data, stream_sequence=77))


def test_an_event_under_the_subject_of_another_is_unreadable() -> None:
    data = msgspec.json.encode(events.JobFinished(outcome=events.Outcome.FAILED, reason=WHY))
    subject = job_subject(JOB_ID, "CommandRequested")

    with pytest.raises(UnreadableEvent, match="the subject says CommandRequested, the body JobFinished"):
        read_job_event(Incoming(subject=subject, data=data, stream_sequence=77))


@pytest.mark.parametrize("data", [b"", b"{", b"[" * 100_000, b'{"event":"JobEvicted"}', b'{"job_id":1}'])
def test_unreadable_records_and_pool_events_raise(data: bytes) -> None:
    with pytest.raises(UnreadableEvent):
        decode_record(data)
    with pytest.raises(UnreadableEvent):
        read_pool_event(data)


def test_a_record_of_defaults_is_short() -> None:
    assert (
        encode_record(JobRecord(job_id="j-1", applied_sequence=3)) == b'{"job_id":"j-1","applied_sequence":3}'
    )
    assert decode_record(b'{"job_id":"j-1","applied_sequence":3}').phase is Phase.SUBMITTED


def test_the_headers_are_those_of_cloudevents() -> None:
    event = events.JobEvicted(attempt=2, reason=WHY)

    message = job_message(JOB_ID, event, source="scheduler", traceparent="00-a-b-01", expected_last=0)

    check_subject(message.subject)
    assert message.expected_last == 0
    assert message.headers == {
        "ce-specversion": "1.0",
        "ce-id": message.msg_id,
        "ce-type": "muster.v1.JobEvicted",
        "ce-source": "scheduler",
        "ce-subject": JOB_ID,
        "content-type": "application/json",
        "traceparent": "00-a-b-01",
    }
    assert "traceparent" not in job_message(JOB_ID, event, source="scheduler").headers


def test_each_node_has_its_own_subject() -> None:
    node = Node(name="n1.rack", allocatable=Resources(cpu=1))

    message = pool_message(events.NodeChanged(pool="local", node=node), source="pod-launcher")

    check_subject(message.subject)
    assert message.subject == "muster.v1.node.local.n1~rack"
    assert (message.headers["ce-subject"], message.headers["ce-source"]) == ("n1.rack", "pod-launcher")


def _read(kind: type[msgspec.Struct], data: bytes) -> msgspec.Struct:
    if kind is JobRecord:
        return decode_record(data)
    if kind in POOL_EVENTS:
        return read_pool_event(data)
    return read_job_event(Incoming(subject=job_subject(JOB_ID, kind.__name__), data=data)).event
