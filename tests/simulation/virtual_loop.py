"""An asyncio event loop with a virtual clock, which jumps to the next timer when nothing is left to do.

Every callback belongs to a process of the simulation, or to none (the network, the broker, the machines). A process can be
paused, killed without any clean-up, and given a wrong wall clock. The order of callbacks depends on nothing but the order of
the calls, so a run with one seed is always the same.
"""

from __future__ import annotations

import asyncio
import contextvars
import enum
import sys
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextvars import Context, ContextVar
from heapq import heappop, heappush
from typing import Any, TypeVar, cast

T = TypeVar("T")

_EPOCH_NS = 1_750_000_000_000_000_000
_STARTED_AT = 1_000.0
_MOST_AT_ONE_INSTANT = 200_000


class Stuck(Exception):
    """The system runs for ever without time passing, or everything waits without a timer."""


class ProcessState(enum.Enum):
    """Whether the callbacks of a process run."""

    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


_process: ContextVar[Process | None] = ContextVar("process", default=None)


class Process:
    """One operating system process of the simulation; ``clock_offset_ns`` is how wrong its wall clock is."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = ProcessState.RUNNING
        self.clock_offset_ns = 0
        self.parked: list[VirtualHandle] = []
        self.context = contextvars.copy_context()
        self.context.run(_process.set, self)

    @property
    def alive(self) -> bool:
        """Whether it was not killed."""
        return self.state is not ProcessState.DEAD


NO_PROCESS = contextvars.copy_context()
"""The context of callbacks that belong to no process."""


class VirtualHandle:
    """A scheduled callback. It has what asyncio uses of ``asyncio.TimerHandle``, and less to construct."""

    __slots__ = ("__weakref__", "args", "at", "callback", "context", "is_cancelled", "is_message", "process")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context,
        process: Process | None,
        when: float,
        is_message: bool = False,
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.process = process
        self.at = when
        self.is_message = is_message
        self.is_cancelled = False

    def cancel(self) -> None:
        """Do not call it."""
        self.is_cancelled = True

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self.is_cancelled

    def when(self) -> float:
        """Return its time."""
        return self.at


class VirtualTask(asyncio.Task[Any]):
    """A task whose hash does not depend on its address, so that sets of tasks have the same order in every run."""

    _made = 0
    _serial = 0

    def __init__(self, coroutine: Any, *, loop: Any, name: Any = None, context: Any = None) -> None:
        VirtualTask._made += 1
        self._serial = VirtualTask._made
        super().__init__(coroutine, loop=loop, name=name or "task", context=context)

    def __hash__(self) -> int:
        return self._serial


class VirtualLoop(asyncio.AbstractEventLoop):
    """See the module. ``executor_delay`` returns how long (s) a function takes that is run in a thread."""

    def __init__(self, *, executor_delay: Callable[[], float] = lambda: 0.0) -> None:
        self.now = _STARTED_AT
        self.current: Process | None = None
        self.callbacks_run = 0
        self.on_error: Callable[[dict[str, Any]], None] = _ignore
        self._executor_delay = executor_delay
        self._ready: deque[VirtualHandle] = deque()
        self._timers: list[tuple[float, int, VirtualHandle]] = []
        self._serial = 0
        self._running = False
        self._ended = False
        self._closed = False
        self._readers: dict[int, VirtualHandle] = {}

    # The clock.

    def time(self) -> float:
        """Return the monotonic time in seconds, the same for every process."""
        return self.now

    @property
    def elapsed(self) -> float:
        """Seconds since the start of the loop."""
        return self.now - _STARTED_AT

    def wall_ns(self) -> int:
        """Return the wall clock of the running process."""
        offset = self.current.clock_offset_ns if self.current is not None else 0
        return _EPOCH_NS + round((self.now - _STARTED_AT) * 1e9) + offset

    def install_clock(self) -> None:
        """Make the functions of ``time`` return virtual time, for the rest of this operating system process."""
        replaced: dict[str, Callable[..., float]] = {
            "time": lambda: self.wall_ns() / 1e9,
            "time_ns": self.wall_ns,
            "monotonic": self.time,
            "clock_gettime": self._clock,
            "monotonic_ns": lambda: round(self.now * 1e9),
            "perf_counter": self.time,
            "perf_counter_ns": lambda: round(self.now * 1e9),
            "thread_time": lambda: 0.0,
            "process_time": lambda: 0.0,
        }
        for name, function in replaced.items():
            setattr(time, name, function)

    def _clock(self, clock: int) -> float:
        return self.wall_ns() / 1e9 if clock == time.CLOCK_REALTIME else self.now

    # Callbacks.

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> VirtualHandle:
        """Call as soon as possible, after what was scheduled before."""
        if context is None:
            handle = VirtualHandle(callback, args, contextvars.copy_context(), self.current, self.now)
        else:
            handle = VirtualHandle(callback, args, context, context.get(_process), self.now)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> VirtualHandle:
        """Call after ``delay`` seconds."""
        return self.call_at(self.now + max(delay, 0.0), callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> VirtualHandle:
        """Call at ``when``, by the monotonic clock."""
        if context is None:
            handle = VirtualHandle(callback, args, contextvars.copy_context(), self.current, when)
        else:
            handle = VirtualHandle(callback, args, context, context.get(_process), when)
        self._serial += 1
        heappush(self._timers, (when, self._serial, handle))
        return handle

    def deliver(
        self, when: float, process: Process | None, callback: Callable[..., object], *args: Any
    ) -> VirtualHandle:
        """Call in ``process`` when a message arrives at ``when``."""
        context = NO_PROCESS if process is None else process.context
        handle = VirtualHandle(callback, args, context, process, when, True)
        self._serial += 1
        heappush(self._timers, (when, self._serial, handle))
        return handle

    def push(self, handle: VirtualHandle) -> None:
        """Schedule a handle that the caller has constructed."""
        self._serial += 1
        heappush(self._timers, (handle.at, self._serial, handle))

    def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:
        """Call whenever ``make_readable`` is called for ``fd``, which is a number of the simulation."""
        self._readers[fd] = VirtualHandle(callback, args, contextvars.copy_context(), self.current, self.now)

    def remove_reader(self, fd: Any) -> bool:
        """Remove the callback of ``fd``."""
        return self._readers.pop(fd, None) is not None

    def make_readable(self, fd: int) -> None:
        """Call the callback of ``fd``, if there is one."""
        if (handle := self._readers.get(fd)) is not None:
            self._ready.append(handle)

    # Tasks and futures.

    def create_future(self) -> asyncio.Future[Any]:
        """Return a new future."""
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        """Return a new task."""
        return VirtualTask(coro, loop=self, name=name, context=context)

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Run ``func`` at once, and deliver its result after the delay of a thread."""
        outcome: asyncio.Future[T] = self.create_future()
        try:
            result = func(*args)
        except Exception as error:
            self.call_later(self._executor_delay(), _fail, outcome, error)
        else:
            self.call_later(self._executor_delay(), _succeed, outcome, result)
        return outcome

    # Running.

    def run_until_complete(self, future: Any) -> Any:
        """Run until the coroutine or future is done, and return its result."""
        asyncio.events._set_running_loop(self)  # type: ignore[attr-defined]
        sys.set_asyncgen_hooks(firstiter=_ignore, finalizer=self._close_generator)
        self._running = True
        try:
            task = asyncio.ensure_future(future, loop=self)
            self._ended = False
            task.add_done_callback(self._end)
            self._run()
            return task.result()
        finally:
            self._running = False
            asyncio.events._set_running_loop(None)  # type: ignore[attr-defined]

    def _end(self, _: object) -> None:
        self._ended = True

    def _run(self) -> None:
        ready, timers = self._ready, self._timers
        running, paused = ProcessState.RUNNING, ProcessState.PAUSED
        ran = at_this_instant = 0
        while not self._ended:
            if ready:
                handle = ready.popleft()
            elif timers:
                when, _, handle = heappop(timers)
                if when > self.now and not handle.is_cancelled:
                    self.now = when
                    at_this_instant = ran
            else:
                raise Stuck("nothing is left to do, and the run has not ended")
            if handle.is_cancelled:
                continue
            process = handle.process
            if process is not None and process.state is not running:
                if process.state is paused:
                    process.parked.append(handle)
                continue
            ran += 1
            if ran - at_this_instant > _MOST_AT_ONE_INSTANT:
                raise Stuck(f"{handle.callback} and others run for ever at one instant")
            self.current = process
            try:
                handle.context.run(handle.callback, *handle.args)
            except (KeyboardInterrupt, SystemExit, Stuck):
                raise
            except BaseException as error:
                self.call_exception_handler({"message": f"in {handle.callback}", "exception": error})
        self.current = None
        self.callbacks_run += ran

    def pause(self, process: Process) -> None:
        """Stop running the callbacks of ``process``; they wait."""
        if process.state is ProcessState.RUNNING:
            process.state = ProcessState.PAUSED

    def resume(self, process: Process, *, timers_first: bool) -> None:
        """Run what waits: expired timers before or after messages that have arrived, as event loops differ in that."""
        if process.state is not ProcessState.PAUSED:
            return
        process.state = ProcessState.RUNNING
        parked, process.parked = process.parked, []
        parked.sort(key=lambda handle: handle.is_message is timers_first)
        self._ready.extend(parked)

    def kill(self, process: Process) -> None:
        """Never run another callback of ``process``, as after SIGKILL."""
        process.state = ProcessState.DEAD
        process.parked.clear()

    # The rest of the interface, as far as asyncio needs it.

    def is_running(self) -> bool:
        """Whether it runs."""
        return self._running

    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def close(self) -> None:
        """Close it."""
        self._closed = True

    def get_debug(self) -> bool:
        """Return False."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Pass the error to ``on_error``."""
        self.on_error(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Pass the error to ``on_error``."""
        self.on_error(context)

    def _close_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        self.call_soon(self.create_task, generator.aclose())

    async def shutdown_asyncgens(self) -> None:
        """Do nothing."""


def current_process() -> Process | None:
    """Return the process that the calling code belongs to."""
    return _process.get()


def virtual_loop() -> VirtualLoop:
    """Return the running loop."""
    return cast("VirtualLoop", asyncio.get_running_loop())


def _ignore(_: Any) -> None:
    return


def _succeed(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
