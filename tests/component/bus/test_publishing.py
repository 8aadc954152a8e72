import asyncio

import pytest

from muster_bus import (
    BatchTooLarge,
    BusUnavailable,
    Duplicate,
    Fence,
    Fenced,
    Outgoing,
    StreamFull,
    StreamSpec,
    WrongSequence,
    provision,
)
from muster_testing.broker import Broker
from muster_testing.temporary_stream import TemporaryStream


def message(
    stream: TemporaryStream, topic: str, msg_id: str, *, expected_last: int | None = None
) -> Outgoing:
    return Outgoing(subject=f"{stream.name}.{topic}", data=b"{}", msg_id=msg_id, expected_last=expected_last)


async def raise_epoch(stream: TemporaryStream, *, expected_last: int, msg_id: str) -> Fence:
    raised = await stream.bus.publish(message(stream, "epoch", msg_id, expected_last=expected_last))
    return Fence(f"{stream.name}.epoch", raised.sequence)


async def test_a_publish_is_acknowledged_with_its_sequence_and_can_be_read_back(
    stream: TemporaryStream,
) -> None:
    published = await stream.bus.publish(
        Outgoing(subject=f"{stream.name}.a", data=b"payload", msg_id="1", headers={"traceparent": "00-ü"})
    )

    last = await stream.bus.last(stream.name, f"{stream.name}.a")

    assert last is not None
    assert (published.stream, published.sequence, published.duplicate) == (stream.name, 1, False)
    assert (last.data, last.stream_sequence, last.msg_id) == (b"payload", 1, "1")
    assert last.headers["traceparent"] == "00-ü"
    assert last.timestamp_ns > 1_600_000_000 * 10**9
    assert await stream.bus.last_sequence(stream.name) == 1
    assert await stream.bus.last(stream.name, f"{stream.name}.nothing") is None


async def test_the_same_message_id_is_stored_once(stream: TemporaryStream) -> None:
    first = await stream.bus.publish(message(stream, "a", "same"))
    second = await stream.bus.publish(message(stream, "a", "same"))

    assert second.duplicate
    assert second.sequence == first.sequence
    assert await stream.bus.last_sequence(stream.name) == 1


async def test_a_lost_compare_and_set_stores_nothing(stream: TemporaryStream) -> None:
    await stream.bus.publish(message(stream, "a", "1", expected_last=0))

    with pytest.raises(WrongSequence):
        await stream.bus.publish(message(stream, "a", "2", expected_last=0))

    assert await stream.bus.last_sequence(stream.name) == 1


async def test_publish_once_takes_its_own_earlier_success_for_success(stream: TemporaryStream) -> None:
    outgoing = message(stream, "a", "mine", expected_last=0)
    first = await stream.bus.publish(outgoing)

<<<<<<< HEAD
    to_incoming = await partition.bus.publish_once(outgoing, deadline_s=5)
=======
    again = await stream.bus.publish_once(outgoing, deadline_s=5)
>>>>>>> d80cc2c (testing: name helpers for what they are, plain words)

    assert to_incoming.sequence == first.sequence
    assert to_incoming.duplicate


async def test_publish_once_tells_anothers_success_from_its_own(stream: TemporaryStream) -> None:
    await stream.bus.publish(message(stream, "a", "theirs", expected_last=0))

    with pytest.raises(WrongSequence):
        await stream.bus.publish_once(message(stream, "a", "mine", expected_last=0), deadline_s=5)


async def test_publish_once_notices_an_id_that_another_subject_used_up(stream: TemporaryStream) -> None:
    await stream.bus.publish(message(stream, "a", "shared"))

    with pytest.raises(Duplicate):
        await stream.bus.publish_once(message(stream, "b", "shared"), deadline_s=5)


async def test_publish_once_waits_for_a_broker_that_is_restarted(
    own_stream: TemporaryStream, broker: Broker
) -> None:
    await broker.kill()
    publishing = asyncio.create_task(
        own_stream.bus.publish_once(message(own_stream, "a", "1", expected_last=0), deadline_s=30)
    )
    await broker.restart()

    assert (await publishing).sequence == 1


async def test_a_publish_without_a_broker_is_unknown_not_refused(
    own_stream: TemporaryStream, broker: Broker
) -> None:
    await broker.kill()

    with pytest.raises(BusUnavailable):
        await own_stream.bus.publish_once(message(own_stream, "a", "1"), deadline_s=0.2)


async def test_a_subject_that_no_stream_stores_is_unavailable(stream: TemporaryStream) -> None:
    with pytest.raises(BusUnavailable):
        await stream.bus.publish(Outgoing(subject=f"no{stream.name}.a", data=b"", msg_id="1"))


async def test_a_full_stream_refuses_and_keeps_what_it_has(stream: TemporaryStream) -> None:
    name = f"{stream.name}full"
    await provision(stream.bus, streams=[StreamSpec(name=name, subjects=[name], max_bytes=1000)])
    await stream.bus.publish(Outgoing(subject=name, data=b"kept", msg_id="1"))

    with pytest.raises(StreamFull):
        await stream.bus.publish(Outgoing(subject=name, data=b"x" * 1000, msg_id="2"))

    last = await stream.bus.last(name, name)
    assert last is not None
    assert last.data == b"kept"


@pytest.mark.parametrize("subject", ["", "a..b", "a.*", "a.>", "a b", ".a", "a.", "a\nb"])
async def test_a_subject_that_means_something_else_is_refused(stream: TemporaryStream, subject: str) -> None:
    with pytest.raises(ValueError, match="not a subject"):
        await stream.bus.publish(Outgoing(subject=subject, data=b"", msg_id="1"))


async def test_a_batch_is_stored_as_a_whole(stream: TemporaryStream) -> None:
    fence = await raise_epoch(stream, expected_last=0, msg_id="epoch-1")

    committed = await stream.bus.commit([message(stream, "a", str(n)) for n in range(1000)], fence=fence)

    assert committed.sequence == 1001
    assert await stream.bus.last_sequence(stream.name) == 1001


@pytest.mark.parametrize("size", [1, 2, 50])
async def test_a_deposed_leaders_batch_is_refused_whole(stream: TemporaryStream, size: int) -> None:
    old = await raise_epoch(stream, expected_last=0, msg_id="epoch-1")
    await raise_epoch(stream, expected_last=old.sequence, msg_id="epoch-2")

    with pytest.raises(Fenced):
        await stream.bus.commit([message(stream, f"a{n}", str(n)) for n in range(size)], fence=old)

    assert await stream.bus.last_sequence(stream.name) == 2


async def test_a_fence_and_a_compare_and_set_are_told_apart(stream: TemporaryStream) -> None:
    fence = await raise_epoch(stream, expected_last=0, msg_id="epoch-1")
    batch = [message(stream, "a", "1", expected_last=7), message(stream, "b", "2")]

    with pytest.raises(WrongSequence):
        await stream.bus.commit(batch, fence=fence)
    await raise_epoch(stream, expected_last=fence.sequence, msg_id="epoch-2")
    with pytest.raises(Fenced):
        await stream.bus.commit(batch, fence=fence)

    assert await stream.bus.last_sequence(stream.name) == 2


async def test_a_batch_that_is_committed_again_answers_as_a_duplicate(stream: TemporaryStream) -> None:
    batch = [message(stream, "a", "1"), message(stream, "b", "2")]
    first = await stream.bus.commit(batch, fence=None)

<<<<<<< HEAD
    to_incoming = await partition.bus.commit(batch, fence=None)

    assert to_incoming.duplicate
    assert to_incoming.sequence == first.sequence
    assert await partition.bus.last_sequence(partition.name) == 2
=======
    again = await stream.bus.commit(batch, fence=None)

    assert again.duplicate
    assert again.sequence == first.sequence
    assert await stream.bus.last_sequence(stream.name) == 2
>>>>>>> d80cc2c (testing: name helpers for what they are, plain words)


async def test_a_batch_with_a_used_id_is_refused_whole(stream: TemporaryStream) -> None:
    await stream.bus.publish(message(stream, "a", "used"))

    with pytest.raises(Duplicate):
        await stream.bus.commit([message(stream, "b", "used"), message(stream, "c", "new")], fence=None)

    assert await stream.bus.last_sequence(stream.name) == 1


async def test_a_batch_has_limits(stream: TemporaryStream) -> None:
    fence = Fence(f"{stream.name}.epoch", 0)
    with pytest.raises(BatchTooLarge):
        await stream.bus.commit([message(stream, "a", str(n)) for n in range(1001)], fence=None)
    with pytest.raises(ValueError, match="empty"):
        await stream.bus.commit([], fence=None)
    with pytest.raises(ValueError, match="carry the fence"):
        await stream.bus.commit([message(stream, "a", "1", expected_last=0)], fence=fence)
