import asyncio

import pytest

from muster_bus import (
    BucketSpec,
    BusUnavailable,
    GroupCommit,
    KeyValueStore,
    Outgoing,
    Published,
    WrongSequence,
    provision,
)
from muster_testing.temporary_stream import TemporaryStream

MANY = 60


class Callers:
    """Many who publish at once, and what became of the first of each one's own."""

    def __init__(self, partition: TemporaryStream) -> None:
        self.partition = partition
        self.publish_one = 0
        self.commits = GroupCommit(partition.bus)

    async def publish(self, topic: str, *, msg_id: str = "") -> Published:
        message = Outgoing(
            subject=f"{self.partition.name}.{topic}",
            data=topic.encode(),
            msg_id=msg_id or f"{self.partition.name}/{topic}",
            expected_last=0,
        )

        async def publish_one() -> Published:
            self.publish_one += 1
            return await self.partition.bus.publish(message)

        return await self.commits.publish(message, publish_one)

    async def publish_all(self, topics: list[str]) -> list[Published | BaseException]:
        return await asyncio.gather(*map(self.publish, topics), return_exceptions=True)


async def stored_at(partition: TemporaryStream, topic: str) -> int:
    last = await partition.bus.last(partition.name, f"{partition.name}.{topic}")
    assert last is not None
    assert last.data == topic.encode()
    return last.stream_sequence


async def test_a_single_message_is_published_at_once(partition: TemporaryStream) -> None:
    callers = Callers(partition)

    published = await callers.publish("t1")

    assert callers.publish_one == 1
    assert published.sequence == await stored_at(partition, "t1")


async def test_each_caller_of_a_batch_gets_the_sequence_of_its_own_message(
    partition: TemporaryStream,
) -> None:
    callers = Callers(partition)
    topics = [f"t{n}" for n in range(MANY)]

    published = await callers.publish_all(topics)

    assert callers.publish_one < MANY / 2
    assert [p.sequence for p in published if isinstance(p, Published)] == [
        await stored_at(partition, topic) for topic in topics
    ]


async def test_what_one_caller_is_refused_the_others_are_not(partition: TemporaryStream) -> None:
    callers = Callers(partition)
    taken = f"t{MANY - 2}"
    await partition.bus.publish(
        Outgoing(subject=f"{partition.name}.{taken}", data=taken.encode(), msg_id="another")
    )

    published = await callers.publish_all([f"t{n}" for n in range(MANY)])

    refused = [place for place, p in enumerate(published) if not isinstance(p, Published)]
    assert refused == [MANY - 2]
    assert isinstance(published[MANY - 2], WrongSequence)
    assert await partition.bus.last_sequence(partition.name) == MANY


async def test_an_unstorable_message_fails_only_for_its_own_caller(partition: TemporaryStream) -> None:
    callers = Callers(partition)

    published = await callers.publish_all([*(f"t{n}" for n in range(MANY)), "not a subject"])

    assert [type(p) for p in published if not isinstance(p, Published)] == [ValueError]


async def test_a_cancelled_caller_does_not_cancel_the_batch(partition: TemporaryStream) -> None:
    callers = Callers(partition)
    waiting = [asyncio.create_task(callers.publish(f"t{n}")) for n in range(MANY)]
    await asyncio.sleep(0)
    waiting[-1].cancel()

    published = await asyncio.gather(*waiting, return_exceptions=True)

    assert all(isinstance(p, Published) for p in published[:-1])
    assert isinstance(published[-1], asyncio.CancelledError)


@pytest.mark.parametrize("in_groups", [False, True])
async def test_records_that_are_written_at_once_have_each_its_own_revision(
    partition: TemporaryStream, *, in_groups: bool
) -> None:
    await provision(partition.bus, buckets=[BucketSpec(name=partition.name)])
    records = KeyValueStore(partition.bus, partition.name, written_in_groups=in_groups)
    keys = [f"k{n}" for n in range(MANY)]
    revisions = await asyncio.gather(*(records.put(key, b"1", expected=0) for key in keys))
    to_incoming = await asyncio.gather(
        *(records.put(key, b"2", expected=revision) for key, revision in zip(keys, revisions, strict=True))
    )

    entries = {entry.key: entry for entry in await records.entries()}

    assert [entries[key].revision for key in keys] == to_incoming
    assert {entry.value for entry in entries.values()} == {b"2"}
    with pytest.raises(WrongSequence):
        await records.put("k0", b"3", expected=revisions[0])


async def test_a_message_of_a_cancelled_caller_is_not_published_alone_later(
    partition: TemporaryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has lost a partition must not have its events stored behind those of the new owner."""
    commits = GroupCommit(partition.bus)
    opened = asyncio.Event()
    # Eight go singly, and the next sixteen are the batch that is refused.
    begun: list[int] = []
    ended: list[int] = []

    async def refused(*_: object, **__: object) -> Published:
        raise BusUnavailable("the broker is away")

    async def publish(number: int) -> Published:
        async def publish_one() -> Published:
            begun.append(number)
            await opened.wait()
            ended.append(number)
            return Published(partition.name, number)

        message = Outgoing(
            subject=f"{partition.name}.{number}", data=b"", msg_id=f"{partition.name}/{number}"
        )
        return await commits.publish(message, publish_one)

    monkeypatch.setattr(partition.bus, "commit", refused)
    callers = [asyncio.create_task(publish(number)) for number in range(MANY)]
    async with asyncio.timeout(10):
        while len(begun) < 20:
            await asyncio.sleep(0.001)
        gone = begun[-1]
        callers[gone].cancel()
        await asyncio.sleep(0)
        opened.set()
        await asyncio.gather(*callers, return_exceptions=True)
    assert callers[gone].cancelled()
    assert sorted(ended) == [number for number in range(MANY) if number != gone]
