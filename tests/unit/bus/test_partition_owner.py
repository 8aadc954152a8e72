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
