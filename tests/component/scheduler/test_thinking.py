"""A pool's state is one's at a time, while the event loop goes on."""

from __future__ import annotations

import asyncio
from threading import Event

import pytest

from muster_core.scheduling import PoolState
from muster_scheduler.thinking import Thinking

PATIENCE_S = 10


class Long:
    """A question that is thought about until it is told to end."""

    def __init__(self) -> None:
        self.began = Event()
        self.may_end = Event()

    def __call__(self, state: PoolState) -> str:
        """See the class."""
        self.began.set()
        assert self.may_end.wait(PATIENCE_S)
        return state.pool

    async def begun(self) -> None:
        """Return when it is being thought about."""
        assert await asyncio.to_thread(self.began.wait, PATIENCE_S)


@pytest.fixture
def thinking() -> Thinking:
    """Turns at the state of an empty pool."""
    return Thinking(PoolState(pool="here"))


async def test_nobody_has_his_turn_while_something_is_worked_out(thinking: Thinking) -> None:
    long = Long()

    async def apply_event() -> bool:
        async with thinking.turn():
            return long.may_end.is_set()

    answer = asyncio.create_task(thinking.about(long))
    await long.begun()
    folding = asyncio.create_task(apply_event())
    await asyncio.sleep(0)
    assert not folding.done()
    assert thinking.glance(lambda state: state.pool) is None
    long.may_end.set()
    assert await asyncio.wait_for(answer, PATIENCE_S) == "here"
    assert await asyncio.wait_for(folding, PATIENCE_S)
    assert thinking.glance(lambda state: state.pool) == "here"


async def test_who_is_cancelled_leaves_when_his_thought_has_ended(thinking: Thinking) -> None:
    long = Long()
    answer = asyncio.create_task(thinking.about(long))
    await long.begun()
    answer.cancel()
    done, _ = await asyncio.wait({answer}, timeout=0.05)
    assert not done
    long.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(answer, PATIENCE_S)
    assert await asyncio.wait_for(thinking.about(lambda state: state.pool), PATIENCE_S) == "here"


async def test_what_fails_ends_the_turn(thinking: Thinking) -> None:
    def fails(state: PoolState) -> None:
        raise ValueError(state.pool)

    with pytest.raises(ValueError, match="here"):
        await thinking.about(fails)
    assert thinking.glance(lambda state: state.pool) == "here"
