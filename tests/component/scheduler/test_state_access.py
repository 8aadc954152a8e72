"""Exclusive access to the state of a pool, while the event loop continues."""

from __future__ import annotations

import asyncio
from threading import Event

import pytest

from muster_core.scheduling import PoolState
from muster_scheduler.state_access import StateAccess

TIMEOUT_S = 10


class LongCalculation:
    """A calculation that runs until it may end."""

    def __init__(self) -> None:
        self.began = Event()
        self.may_end = Event()

    def __call__(self, state: PoolState) -> str:
        """Run until ``may_end`` is set."""
        self.began.set()
        assert self.may_end.wait(TIMEOUT_S)
        return state.pool

    async def begun(self) -> None:
        """Return when the calculation runs."""
        assert await asyncio.to_thread(self.began.wait, TIMEOUT_S)


@pytest.fixture
def access() -> StateAccess:
    """Access to the state of an empty pool."""
    return StateAccess(PoolState(pool="here"))


async def test_a_calculation_has_exclusive_access(access: StateAccess) -> None:
    long = LongCalculation()

    async def apply_event() -> bool:
        async with access.exclusive():
            return long.may_end.is_set()

    calculation = asyncio.create_task(access.in_thread(long))
    await long.begun()
    applying = asyncio.create_task(apply_event())
    await asyncio.sleep(0)
    assert not applying.done()
    assert access.try_briefly(lambda state: state.pool) is None
    long.may_end.set()
    assert await asyncio.wait_for(calculation, TIMEOUT_S) == "here"
    assert await asyncio.wait_for(applying, TIMEOUT_S)
    assert access.try_briefly(lambda state: state.pool) == "here"


async def test_a_cancelled_caller_waits_for_its_calculation(access: StateAccess) -> None:
    long = LongCalculation()
    calculation = asyncio.create_task(access.in_thread(long))
    await long.begun()
    calculation.cancel()
    done, _ = await asyncio.wait({calculation}, timeout=0.05)
    assert not done
    long.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(calculation, TIMEOUT_S)
    assert await asyncio.wait_for(access.in_thread(lambda state: state.pool), TIMEOUT_S) == "here"


async def test_a_failed_calculation_releases_the_state(access: StateAccess) -> None:
    def fails(state: PoolState) -> None:
        raise ValueError(state.pool)

    with pytest.raises(ValueError, match="here"):
        await access.in_thread(fails)
    assert access.try_briefly(lambda state: state.pool) == "here"
