"""Run the parts of a process until it is asked to stop, one of them crashes, or all is drained.

A part that crashes ends the process: its memory is a cache, and the process is restarted with a clean one. Continuing
without a part would go unnoticed.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence

from muster_service.logs import fields

log = logging.getLogger(__name__)

Part = Callable[[], Awaitable[None]]

_CRASH_DRAIN_S = 2.0
_SHARE_OF_HOOKS = 0.8


class PartSupervisor:
    """Named parts, and hooks for their end.

    Args:
        name: of the service, for logs.
        drain_s: longest time from the stop request to the end.
    """

    def __init__(self, *, name: str, drain_s: float) -> None:
        self._name = name
        self._drain_s = drain_s
        self._parts: dict[str, Part] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._on_drain: list[Part] = []
        self._on_close: list[Part] = []
        self._stopping = asyncio.Event()
        self._started = False
        self._crashed = False

    @property
    def stopping(self) -> bool:
        """Whether a stop was requested."""
        return self._stopping.is_set()

    def add(self, name: str, part: Part) -> None:
        """Add a part: it runs from `start` on (at once if that was before), and may end by returning.

        Raises:
            ValueError: there is a part of that name.
        """
        if name in self._parts:
            raise ValueError(f"a part named {name} was added before")
        self._parts[name] = part
        if self._started:
            self._start(name, part)

    def on_drain(self, hook: Part) -> None:
        """Call `hook` when a stop is requested and the parts still run, in order of adding."""
        self._on_drain.append(hook)

    def on_close(self, hook: Part) -> None:
        """Call `hook` after the parts ended, in reverse order of adding."""
        self._on_close.append(hook)

    def stop(self) -> None:
        """Request a stop."""
        self._stopping.set()

    async def until_stopped(self, work: Awaitable[None]) -> bool:
        """Await `work`, or cancel it when a stop is requested; return whether it finished. Its exceptions propagate."""
        task = asyncio.ensure_future(work)
        stop = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
                return True
            return False
        finally:
            task.cancel()
            stop.cancel()
            await asyncio.gather(task, stop, return_exceptions=True)

    def start(self) -> None:
        """Start the parts."""
        self._started = True
        for name, part in self._parts.items():
            self._start(name, part)

    async def run(self) -> int:
        """Run the parts until `stop` or a crash, then drain; return the exit code."""
        await self._stopping.wait()
        return await self.drain()

    async def drain(self) -> int:
        """Call the drain hooks, end the parts, call the close hooks, in bounded time; return 0, or 1 after a crash."""
        started = time.monotonic()
        self.stop()
        bound = min(self._drain_s, _CRASH_DRAIN_S) if self._crashed else self._drain_s
        await self._within(bound * _SHARE_OF_HOOKS, self._call(self._on_drain))
        await self._within(bound * (1 - _SHARE_OF_HOOKS), self._close())
        log.info("stopped", extra=fields(seconds=round(time.monotonic() - started, 3), crashed=self._crashed))
        return 1 if self._crashed else 0

    async def _within(self, bound_s: float, work: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(bound_s):
                await work
        except TimeoutError:
            log.warning(
                "the drain took too long and was cut short", extra=fields(drain_seconds=self._drain_s)
            )

    async def _close(self) -> None:
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)
        await self._call(self._on_close[::-1])

    async def _call(self, hooks: Sequence[Part]) -> None:
        for hook in hooks:
            try:
                await hook()
            except Exception:
                log.exception("a step of the shutdown failed")

    def _start(self, name: str, part: Part) -> None:
        self._running[name] = asyncio.create_task(self._watch(name, part), name=name)

    async def _watch(self, name: str, part: Part) -> None:
        try:
            await part()
        except asyncio.CancelledError:
            if self.stopping:
                raise
            self.crash(name, "was cancelled from within")
        except Exception:
            self.crash(name, "crashed")

    def crash(self, part: str, how: str) -> None:
        """Request a stop, with exit code 1, because of the current exception."""
        if self.stopping:
            log.error("a part %s while it was ended", how, exc_info=True, extra=fields(part=part))
            return
        log.critical("a part %s; the process ends", how, exc_info=True, extra=fields(part=part))
        self._crashed = True
        self.stop()
