"""A clock that a test moves: what takes an hour takes an instant, in the same order every time."""

import asyncio
import heapq
import itertools

_START_NS = 1_700_000_000_000_000_000
_TURNS = 50


class VirtualClock:
    """A `muster_runtime.clock.Clock` whose time passes only in `advance`.

    Args:
        start_ns: the first reading, in nanoseconds since 1970.
    """

    def __init__(self, start_ns: int = _START_NS) -> None:
        self._now_ns = start_ns
        self._order = itertools.count()
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []

    def now_ns(self) -> int:
        """The present reading, in nanoseconds since 1970."""
        return self._now_ns

    @property
    def sleeping(self) -> int:
        """How many tasks wait for this clock."""
        return sum(not future.done() for _, _, future in self._sleepers)

    async def sleep(self, seconds: float) -> None:
        """Return when the clock was advanced by `seconds`; tasks that wake at the same instant do so in order."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now_ns + round(seconds * 1e9), next(self._order), future))
        await future

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass. Every sleeper wakes at its own instant and acts before time goes on."""
        target_ns = self._now_ns + round(seconds * 1e9)
        await _let_others_act()
        while self._sleepers and self._sleepers[0][0] <= target_ns:
            self._now_ns, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)
            await _let_others_act()
        self._now_ns = target_ns


async def _let_others_act() -> None:
    # A woken task may itself wake others before it sleeps again; each turn of the loop is one link of such a chain.
    for _ in range(_TURNS):
        await asyncio.sleep(0)
