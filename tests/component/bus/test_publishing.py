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
    partition: TemporaryStream, topic: str, msg_id: str, *, expected_last: int | None = None
) -> Outgoing:
    return Outgoing(
        subject=f"{partition.name}.{topic}", data=b"{}", msg_id=msg_id, expected_last=expected_last
    )


async def raise_epoch(partition: TemporaryStream, *, expected_last: int, msg_id: str) -> Fence:
    raised = await partition.bus.publish(message(partition, "epoch", msg_id, expected_last=expected_last))
    return Fence(f"{partition.name}.epoch", raised.sequence)


async def test_a_publish_is_acknowledged_with_its_sequence_and_can_be_read_back(
    partition: TemporaryStream,
) -> None:
    published = await partition.bus.publish(
        Outgoing(subject=f"{partition.name}.a", data=b"payload", msg_id="1", headers={"traceparent": "00-ü"})
    )

    last = await partition.bus.last(partition.name, f"{partition.name}.a")

    assert last is not None
    assert (published.stream, published.sequence, published.duplicate) == (partition.name, 1, False)
    assert (last.data, last.stream_sequence, last.msg_id) == (b"payload", 1, "1")
    assert last.headers["traceparent"] == "00-ü"
    assert last.timestamp_ns > 1_600_000_000 * 10**9
    assert await partition.bus.last_sequence(partition.name) == 1
    assert await partition.bus.last(partition.name, f"{partition.name}.nothing") is None


async def test_the_same_message_id_is_stored_once(partition: TemporaryStream) -> None:
    first = await partition.bus.publish(message(partition, "a", "same"))
    second = await partition.bus.publish(message(partition, "a", "same"))

    assert second.duplicate
    assert second.sequence == first.sequence
    assert await partition.bus.last_sequence(partition.name) == 1


async def test_a_lost_compare_and_set_stores_nothing(partition: TemporaryStream) -> None:
    await partition.bus.publish(message(partition, "a", "1", expected_last=0))

    with pytest.raises(WrongSequence):
        await partition.bus.publish(message(partition, "a", "2", expected_last=0))

    assert await partition.bus.last_sequence(partition.name) == 1


async def test_publish_once_takes_its_own_earlier_success_for_success(partition: TemporaryStream) -> None:
    outgoing = message(partition, "a", "mine", expected_last=0)
    first = await partition.bus.publish(outgoing)

    to_incoming = await partition.bus.publish_once(outgoing, deadline_s=5)

    assert to_incoming.sequence == first.sequence
    assert to_incoming.duplicate


async def test_publish_once_distinguishes_its_own_success_from_anothers(partition: TemporaryStream) -> None:
    await partition.bus.publish(message(partition, "a", "theirs", expected_last=0))

    with pytest.raises(WrongSequence):
        await partition.bus.publish_once(message(partition, "a", "mine", expected_last=0), deadline_s=5)


async def test_publish_once_notices_an_id_that_another_subject_used_up(partition: TemporaryStream) -> None:
    await partition.bus.publish(message(partition, "a", "shared"))

    with pytest.raises(Duplicate):
        await partition.bus.publish_once(message(partition, "b", "shared"), deadline_s=5)


async def test_publish_once_waits_for_a_broker_that_is_restarted(
    own_partition: TemporaryStream, broker: Broker
) -> None:
    await broker.kill()
    publishing = asyncio.create_task(
        own_partition.bus.publish_once(message(own_partition, "a", "1", expected_last=0), deadline_s=30)
    )
    await broker.restart()

    assert (await publishing).sequence == 1


async def test_a_publish_without_a_broker_is_unknown_not_refused(
    own_partition: TemporaryStream, broker: Broker
) -> None:
    await broker.kill()

    with pytest.raises(BusUnavailable):
        await own_partition.bus.publish_once(message(own_partition, "a", "1"), deadline_s=0.2)


async def test_a_subject_that_no_stream_stores_is_unavailable(partition: TemporaryStream) -> None:
    with pytest.raises(BusUnavailable):
        await partition.bus.publish(Outgoing(subject=f"no{partition.name}.a", data=b"", msg_id="1"))


async def test_a_full_stream_refuses_and_keeps_what_it_has(partition: TemporaryStream) -> None:
    name = f"{partition.name}full"
    await provision(partition.bus, streams=[StreamSpec(name=name, subjects=[name], max_bytes=1000)])
    await partition.bus.publish(Outgoing(subject=name, data=b"kept", msg_id="1"))

    with pytest.raises(StreamFull):
        await partition.bus.publish(Outgoing(subject=name, data=b"x" * 1000, msg_id="2"))

    last = await partition.bus.last(name, name)
    assert last is not None
    assert last.data == b"kept"


@pytest.mark.parametrize("subject", ["", "a..b", "a.*", "a.>", "a b", ".a", "a.", "a\nb"])
async def test_a_subject_that_means_something_else_is_refused(
    partition: TemporaryStream, subject: str
) -> None:
    with pytest.raises(ValueError, match="not a subject"):
        await partition.bus.publish(Outgoing(subject=subject, data=b"", msg_id="1"))


async def test_a_batch_is_stored_as_a_whole(partition: TemporaryStream) -> None:
    fence = await raise_epoch(partition, expected_last=0, msg_id="epoch-1")

    committed = await partition.bus.commit(
        [message(partition, "a", str(n)) for n in range(1000)], fence=fence
    )

    assert committed.sequence == 1001
    assert await partition.bus.last_sequence(partition.name) == 1001


@pytest.mark.parametrize("size", [1, 2, 50])
async def test_a_deposed_leaders_batch_is_refused_whole(partition: TemporaryStream, size: int) -> None:
    old = await raise_epoch(partition, expected_last=0, msg_id="epoch-1")
    await raise_epoch(partition, expected_last=old.sequence, msg_id="epoch-2")

    with pytest.raises(Fenced):
        await partition.bus.commit([message(partition, f"a{n}", str(n)) for n in range(size)], fence=old)

    assert await partition.bus.last_sequence(partition.name) == 2


async def test_a_failed_fence_and_a_failed_compare_and_set_raise_different_errors(
    partition: TemporaryStream,
) -> None:
    fence = await raise_epoch(partition, expected_last=0, msg_id="epoch-1")
    batch = [message(partition, "a", "1", expected_last=7), message(partition, "b", "2")]

    with pytest.raises(WrongSequence):
        await partition.bus.commit(batch, fence=fence)
    await raise_epoch(partition, expected_last=fence.sequence, msg_id="epoch-2")
    with pytest.raises(Fenced):
        await partition.bus.commit(batch, fence=fence)

    assert await partition.bus.last_sequence(partition.name) == 2


async def test_a_batch_that_is_committed_again_answers_as_a_duplicate(partition: TemporaryStream) -> None:
    batch = [message(partition, "a", "1"), message(partition, "b", "2")]
    first = await partition.bus.commit(batch, fence=None)

    to_incoming = await partition.bus.commit(batch, fence=None)

    assert to_incoming.duplicate
    assert to_incoming.sequence == first.sequence
    assert await partition.bus.last_sequence(partition.name) == 2


async def test_a_batch_with_a_used_id_is_refused_whole(partition: TemporaryStream) -> None:
    await partition.bus.publish(message(partition, "a", "used"))

    with pytest.raises(Duplicate):
        await partition.bus.commit(
            [message(partition, "b", "used"), message(partition, "c", "new")], fence=None
        )

    assert await partition.bus.last_sequence(partition.name) == 1


async def test_a_batch_has_limits(partition: TemporaryStream) -> None:
    fence = Fence(f"{partition.name}.epoch", 0)
    with pytest.raises(BatchTooLarge):
        await partition.bus.commit([message(partition, "a", str(n)) for n in range(1001)], fence=None)
    with pytest.raises(ValueError, match="empty"):
        await partition.bus.commit([], fence=None)
    with pytest.raises(ValueError, match="carry the fence"):
        await partition.bus.commit([message(partition, "a", "1", expected_last=0)], fence=fence)
