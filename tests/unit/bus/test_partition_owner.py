import asyncio

from muster_bus import PartitionOwner


async def test_a_lost_partition_is_held_again_only_after_its_task_has_ended() -> None:
    log: list[str] = []
    completed: asyncio.Queue[frozenset[int]] = asyncio.Queue()

    async def hold(partition: int, complete: asyncio.Event) -> None:
        log.append(f"begin {partition}")
        complete.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            log.append(f"end {partition}")

    owner = PartitionOwner(hold, on_complete=completed.put_nowait)
    running = asyncio.create_task(owner.run())
    for owned in (frozenset({0, 1}), frozenset({1}), frozenset({0, 1})):
        owner.own(owned)
        assert await completed.get() == owned
    assert [each for each in log if each.endswith("0")] == ["begin 0", "end 0", "begin 0"]
    assert log.count("begin 1") == 1
    assert 0 in owner
    running.cancel()


async def test_a_partition_that_was_lost_for_a_moment_is_held_anew() -> None:
    held: list[int] = []
    completed: asyncio.Queue[frozenset[int]] = asyncio.Queue()

    async def hold(partition: int, complete: asyncio.Event) -> None:
        held.append(partition)
        complete.set()
        await asyncio.Event().wait()

    owner = PartitionOwner(hold, on_complete=completed.put_nowait)
    running = asyncio.create_task(owner.run())
    owner.own(frozenset({0, 1}))
    await completed.get()
    owner.own(frozenset({1}))
    owner.own(frozenset({0, 1}))
    assert 0 not in owner
    assert not owner.is_complete
    await completed.get()
    assert owner.is_complete
    assert sorted(held) == [0, 0, 1]
    running.cancel()
