import asyncio

from muster_testing.clock import VirtualClock


async def test_an_hour_takes_an_instant():
    clock = VirtualClock(start_ns=0)
    sleeper = asyncio.create_task(clock.sleep(3600))
    await clock.advance(3599)
    assert not sleeper.done()

    await clock.advance(1)

    assert sleeper.done()
    assert clock.now_ns() == 3600 * 10**9


async def test_sleepers_wake_in_order_and_see_their_own_instant():
    clock = VirtualClock(start_ns=0)
    woken: list[tuple[str, int]] = []

    async def sleep(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.now_ns()))

    tasks = [asyncio.create_task(sleep(*args)) for args in [("late", 2), ("early", 1), ("also early", 1)]]
    await clock.advance(10)

    assert woken == [("early", 10**9), ("also early", 10**9), ("late", 2 * 10**9)]
    await asyncio.gather(*tasks)


async def test_a_loop_that_sleeps_runs_as_often_as_time_allows():
    clock = VirtualClock()
    turns = 0

    async def tick() -> None:
        nonlocal turns
        while True:
            await clock.sleep(5)
            turns += 1

    task = asyncio.create_task(tick())
    await clock.advance(61)

    assert turns == 12
    assert clock.sleeping == 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await clock.advance(60)
    assert turns == 12
