"""The programs that are kept running together, and the order in which they end."""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from muster_local.backoff import Backoff
from muster_local.child import Child
from muster_local.lines import Line
from muster_local.program import NotReady, Program


def says_ready(line: Line) -> bool:
    """Whether a service says that it is ready."""
    return line.structured and line.message == "ready"


class Supervisor:
    """Keeps programs running.

    Its event loop must run in a thread that lives as long as the programs shall: the kernel ends them with that thread.

    Args:
        on_line: gets every line of every program, with its raw bytes (empty for the supervisor's own).
        on_raw: gets the program's name and the bytes of its lines once it is ready, in place of `on_line`; None: `on_line` gets all.
        on_start: is called after every start and restart.
        backoff: makes the back-off of one program.
    """

    def __init__(
        self,
        *,
        on_line: Callable[[Line, bytes], None],
        on_raw: Callable[[str, bytes], None] | None = None,
        on_start: Callable[[], None] = lambda: None,
        backoff: Callable[[], Backoff] = Backoff,
    ) -> None:
        self._on_line = on_line
        self._on_raw = on_raw
        self._on_start = on_start
        self._backoff = backoff
        self._children: dict[str, Child] = {}
        self._keepers: dict[str, asyncio.Task[None]] = {}
        self._given_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def children(self) -> dict[str, Child]:
        """What is supervised, by name, in the order of the starts."""
        return dict(self._children)

    def start(self, program: Program, *, is_ready: Callable[[Line], bool] = says_ready) -> Child:
        """Keep `program` running from now on."""
        child = Child(
            program,
            backoff=self._backoff(),
            is_ready=is_ready,
            on_line=self._on_line,
            on_start=self._on_start,
            on_raw=partial(self._on_raw, program.name) if self._on_raw else None,
        )
        self._children[program.name] = child
        keeper = asyncio.create_task(child.keep(), name=program.name)
        keeper.add_done_callback(self._note_end)
        self._keepers[program.name] = keeper
        return child

    async def until_ready(self, names: Iterable[str], *, timeout_s: float) -> None:
        """Wait until all of `names` are ready.

        Raises:
            ProgramRefused: one of all the programs gave up.
            NotReady: the time was up.
        """
        wanted = [self._children[name] for name in names]
        everyone = asyncio.gather(*(child.ready.wait() for child in wanted))
        try:
            await asyncio.wait(
                {everyone, self._given_up}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            if self._given_up.done():
                self._given_up.result()
            if not everyone.done():
                missing = [child.name for child in wanted if not child.ready.is_set()]
                raise NotReady(missing, timeout_s)
        finally:
            everyone.cancel()
            await asyncio.wait({everyone})

    async def failure(self) -> None:
        """Wait until a program cannot be kept running; never returns otherwise.

        Raises:
            ProgramRefused: which program, and its last words.
        """
        await asyncio.shield(self._given_up)

    async def stop(self, names: Iterable[str]) -> None:
        """Stop these together, and wait for their ends."""
        chosen = [name for name in names if name in self._children]
        for name in chosen:
            self._children[name].stop()
        await asyncio.gather(*(self._keepers[name] for name in chosen), return_exceptions=True)
        for name in chosen:
            del self._children[name], self._keepers[name]

    def end_now(self) -> None:
        """Kill everything; a `stop` that waits is then done at once."""
        for child in self._children.values():
            child.end_now()

    def _note_end(self, keeper: asyncio.Task[None]) -> None:
        if keeper.cancelled():
            return
        failure = keeper.exception()
        if failure is not None and not self._given_up.done():
            self._given_up.set_exception(failure)
