"""The session of `muster up`: start, wait, stop, and the effect of Ctrl-C in each phase."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TypeVar

import msgspec

from muster_local.log_lines import supervisor_line
from muster_local.output import LogView, ready_summary, stop_summary, wants_colour
from muster_local.processes import SUPERVISOR, LocalError
from muster_local.programs import LocalOptions, module_command
from muster_local.system import LocalSystem

T = TypeVar("T")


class UpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command line."""

    data: Path
    fresh: bool = False
    stop_jobs: bool = False
    verbose: bool = False
    system: LocalOptions


class StopRequested(Exception):
    """The user requested the stop."""


async def run_up(options: UpOptions, *, command: Callable[[str], tuple[str, ...]] = module_command) -> int:
    """Run the system until a signal or a failure; return the exit code. `command` is as for `LocalSystem`."""
    view = LogView(sys.stdout, colour=wants_colour(sys.stdout, os.environ), verbose=options.verbose)
    system = LocalSystem(options.data, options.system, listener=view.show, command=command)
    up = UpSession(options, view=view, system=system)
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(signum, up.interrupt)
    try:
        return await up.run()
    finally:
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(signum)


class UpSession:
    """One run of `muster up`; `system` is not started yet."""

    def __init__(self, options: UpOptions, *, view: LogView, system: LocalSystem) -> None:
        self._options = options
        self._view = view
        self._system = system
        self._stop_requested = asyncio.Event()
        self._kill_at_once = asyncio.Event()

    def interrupt(self) -> None:
        """Stop gracefully; on the second call, immediately."""
        if not self._stop_requested.is_set():
            self._stop_requested.set()
            return
        self._kill_at_once.set()
        self._system.kill_now()

    async def run(self) -> int:
        """Start, wait and stop; return the exit code."""
        exit_code = 0
        try:
            await self._run_until(self._stop_requested, self._start())
            await self._run_until(self._stop_requested, self._system.failure())
        except StopRequested:
            self._log("stopping (Ctrl-C again to stop at once)")
        except LocalError as error:
            exit_code = 1
            self._log(str(error), level="error")
        await self._stop()
        return exit_code

    async def _start(self) -> None:
        started = asyncio.get_running_loop().time()
        if self._options.fresh:
            ended = await self._system.wipe()
            self._log(f"removed all state from {self._system.directory.root}", replicas_ended=ended)
        await self._system.start()
        self._view.write(
            ready_summary(
                seconds=asyncio.get_running_loop().time() - started,
                address=self._system.address,
                bus_url=self._system.bus_url,
                traces=self._system.trace_query_url,
                metrics=self._system.metrics,
                data=self._system.directory.root,
            )
        )

    async def _stop(self) -> None:
        was_running = self._system.started
        if was_running and self._options.stop_jobs:
            await self._cancel_jobs()
        await self._system.stop()
        if not was_running:
            return
        if self._options.stop_jobs:
            await self._system.end_replicas()
        self._view.write(stop_summary(running=self._system.running_replicas()))

    async def _cancel_jobs(self) -> None:
        import grpc.aio  # noqa: PLC0415

        from muster_local.jobs import cancel_all_jobs  # noqa: PLC0415

        try:
            cancelled = await self._run_until(self._kill_at_once, cancel_all_jobs(self._system.address))
            self._log("cancelled the jobs", jobs=cancelled)
        except grpc.aio.AioRpcError as error:
            self._log(f"the jobs could not be cancelled: {error.details()}", level="warning")
        except StopRequested:
            return

    async def _run_until(self, event: asyncio.Event, work: Coroutine[object, object, T]) -> T:
        """Return the result of `work`; if `event` is set first, cancel `work` and raise `StopRequested`."""
        task = asyncio.create_task(work)
        asked = asyncio.create_task(event.wait())
        try:
            await asyncio.wait({task, asked}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise StopRequested
        finally:
            for pending in (task, asked):
                pending.cancel()
            await asyncio.wait({task, asked})

    def _log(self, message: str, *, level: str = "info", **fields: object) -> None:
        self._view.show(supervisor_line(SUPERVISOR, level, message, **fields))
