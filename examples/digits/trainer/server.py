"""The parameter server: the only holder of the parameters and of the global step.

It runs on one event loop, so gradients are applied one after another without locks. A gradient is applied once, after it
has arrived completely; one that arrives after the last step is answered and not applied.

Parameters are in memory only: a server that is killed restarts at step 0, and the workers reconnect.
"""

import asyncio
import signal

from .config import ClusterConfig
from .model import initial_parameters
from .options import Options
from .wire import Kind, ProtocolError, Reply, Request, decode_vector, read_request

SILENCE_S = 60.0
"""A worker that is silent for this long, as on a lost node, is no longer counted."""

_SEED = 1

_OUTCOMES = {Kind.LEAVE: "left", Kind.FINISH: "finished"}


class AddressUnavailableError(Exception):
    """The parameter server cannot listen on its address in ``TF_CONFIG``."""


class ParameterServer:
    """Holds the parameters and answers workers. Ends when training is over and no worker has connected for ``linger_s``.

    It lingers because a worker that started with the last gradient, or a chief that restarted after it, must still learn
    that training is over.
    """

    def __init__(self, *, chief: str, global_steps: int, learning_rate: float, linger_s: float) -> None:
        self._chief = chief
        self._global_steps = global_steps
        self._learning_rate = learning_rate
        self._linger_s = linger_s
        self._parameters = initial_parameters(seed=_SEED)
        self._step = 0
        self._live: dict[str, asyncio.StreamWriter] = {}
        self._complete = False
        self._farewell: asyncio.TimerHandle | None = None
        self._over = asyncio.Event()
        self._signal = 0

    @property
    def step(self) -> int:
        """Gradients applied so far; never above ``global_steps``."""
        return self._step

    @property
    def workers(self) -> int:
        """Connected replicas."""
        return len(self._live)

    @property
    def exit_code(self) -> int:
        """0 once the chief has seen the end; else 128 plus the first signal."""
        return 0 if self._complete else 128 + self._signal

    async def run(self, *, host: str | None, port: int, listening: asyncio.Future[int] | None = None) -> None:
        """Serve until training is over or ``stop``; ``listening`` receives the port, which is chosen if ``port`` is 0.

        Raises:
            AddressUnavailableError: if the server cannot listen on the address.
        """
        try:
            server = await asyncio.start_server(self._serve, host, port)
        except OSError as error:
            raise AddressUnavailableError(f"cannot listen on port {port}: {error}") from error
        if listening is not None:
            listening.set_result(server.sockets[0].getsockname()[1])
        try:
            await self._over.wait()
        finally:
            server.close()
            for writer in self._live.values():
                writer.close()

    def stop(self, number: int) -> None:
        """End at once, because of this signal number."""
        self._signal = number
        self._over.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name = ""
        outcome = "was lost"
        finished = False
        try:
            name = await self._greet(reader, writer)
            last = await self._answer(reader, writer)
            outcome, finished = _OUTCOMES[last], last is Kind.FINISH
        except (ProtocolError, TimeoutError) as error:
            outcome = f"was dropped: {error or 'silent for too long'}"
        except (OSError, asyncio.IncompleteReadError):
            pass  # A killed worker ends here.
        finally:
            writer.close()
            if self._live.get(name) is writer:
                self._part(name, outcome, finished=finished)

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        """Read the HELLO. A name that is already connected is taken over: its older connection belongs to a dead worker."""
        async with asyncio.timeout(SILENCE_S):
            request = await read_request(reader)
        name = request.body.decode(errors="replace")
        if request.kind is not Kind.HELLO or not name:
            raise ProtocolError("no name at the beginning")
        older = self._live.pop(name, None)
        if older is not None:
            older.transport.abort()
        self._live[name] = writer
        if self._farewell is not None:
            self._farewell.cancel()
        print(f"{name} joined at step {self._step}, {self.workers} at work", flush=True)
        await self._reply(writer)
        return name

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Kind:
        """Answer pushes until the worker sends LEAVE or FINISH."""
        while True:
            async with asyncio.timeout(SILENCE_S):
                request = await read_request(reader)
            match request.kind:
                case Kind.PUSH:
                    self._apply(request)
                    await self._reply(writer)
                case Kind.LEAVE | Kind.FINISH:
                    return request.kind
                case Kind.HELLO:
                    raise ProtocolError("a second HELLO")

    def _apply(self, request: Request) -> None:
        gradient = decode_vector(request.body)
        if self._step < self._global_steps:
            self._parameters -= self._learning_rate * gradient
            self._step += 1

    async def _reply(self, writer: asyncio.StreamWriter) -> None:
        done = self._step >= self._global_steps
        reply = Reply(step=self._step, workers=self.workers, done=done, parameters=self._parameters)
        writer.write(reply.encode())
        await writer.drain()

    def _part(self, name: str, outcome: str, *, finished: bool) -> None:
        del self._live[name]
        print(f"{name} {outcome} at step {self._step}, {self.workers} at work", flush=True)
        if name == self._chief and finished:
            self._complete = True
        if self._complete and not self._live:
            self._farewell = asyncio.get_running_loop().call_later(self._linger_s, self._over.set)


async def serve(*, config: ClusterConfig, options: Options) -> int:
    """Run the parameter server and return the exit code."""
    server = ParameterServer(
        chief=config.chief,
        global_steps=options.global_steps,
        learning_rate=options.learning_rate,
        linger_s=options.linger_s,
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stop, number)
    listening: asyncio.Future[int] = loop.create_future()
    listening.add_done_callback(lambda _: print(f"parameter server at {config.server}", flush=True))
    await server.run(host=config.server.bind_host, port=config.server.port, listening=listening)
    return server.exit_code
