"""The worker: pull the parameters, compute a gradient, push it, until the parameter server reports the end.

A worker has no state that must survive. It may be killed, return under the same name, or join late, and then pulls the
current parameters. Its minibatches depend on its name and the step at which it joined, so that a returning worker does
not repeat earlier ones.
"""

import socket
import time
from collections.abc import Iterator

import numpy as np

from .config import CHIEFS, ClusterConfig
from .data import Digits, Samples
from .model import accuracy, loss_and_gradient
from .options import Options
from .progress import Progress
from .stop import StopSignal
from .wire import Connection, Kind, Reply, Request, encode_vector

ANSWER_TIMEOUT_S = 10.0
"""The timeout of an answer; well within the grace period of a replica."""

_FIRST_DELAY_S = 0.1
_LONGEST_DELAY_S = 2.0


class ServerUnreachableError(Exception):
    """The parameter server did not answer within the timeout of the worker."""


class Worker:
    """One training replica; the chief also reports and evaluates."""

    def __init__(self, *, config: ClusterConfig, options: Options, digits: Digits, stop: StopSignal) -> None:
        self._config = config
        self._options = options
        self._digits = digits
        self._stop = stop
        self._pushed = 0
        self._progress = Progress(every=options.report_every, accuracy_of=self._test_accuracy)

    def run(self) -> int:
        """Train until the end or SIGTERM, and return the exit code.

        Raises:
            ServerUnreachableError: if the parameter server has not answered for ``timeout_s``.
            ProtocolError: if the peer is not a parameter server of this program.
        """
        while not self._stop.requested:
            reached = self._reach_server()
            if reached is None:
                break
            connection, reply = reached
            try:
                reply = self._train(connection, reply)
                if reply.done:
                    return self._finish(connection, reply)
                connection.tell(Request(Kind.LEAVE))
            except OSError as error:
                self._say(f"lost the parameter server: {error}")
            finally:
                connection.close()
        self._say(f"leaving as asked, {self._pushed} gradients pushed")
        return self._stop.exit_code

    def _reach_server(self) -> tuple[Connection, Reply] | None:
        """Connect and send HELLO, retrying with growing delays; ``None`` if a signal arrives meanwhile."""
        server = self._config.server
        deadline = time.monotonic() + self._options.timeout_s
        delay = _FIRST_DELAY_S
        logged = False
        while not self._stop.requested:
            try:
                return self._say_hello()
            except OSError as error:
                if time.monotonic() >= deadline:
                    timeout_s = self._options.timeout_s
                    raise ServerUnreachableError(
                        f"no parameter server at {server} for {timeout_s:g} s: {error}"
                    ) from error
                if not logged:
                    self._say(f"waiting for the parameter server at {server}: {error}")
                    logged = True
            self._stop.wait(min(delay, max(deadline - time.monotonic(), 0.0)))
            delay = min(delay * 2, _LONGEST_DELAY_S)
        return None

    def _say_hello(self) -> tuple[Connection, Reply]:
        server = self._config.server
        connection = Connection(
            socket.create_connection((server.host, server.port), timeout=ANSWER_TIMEOUT_S)
        )
        try:
            reply = connection.ask(Request(Kind.HELLO, self._config.name.encode()))
        except BaseException:
            connection.close()
            raise
        self._say(f"joined at step {reply.step}, {reply.workers} at work")
        return connection, reply

    def _train(self, connection: Connection, reply: Reply) -> Reply:
        """Train until the end or a signal; return the last answer."""
        batches = self._batches(joined_at=reply.step)
        self._progress.begin(reply)
        while not reply.done and not self._stop.requested:
            loss, gradient = loss_and_gradient(reply.parameters, next(batches))
            reply = connection.ask(Request(Kind.PUSH, encode_vector(gradient)))
            self._pushed += 1
            if self._config.is_chief:
                self._progress.record(loss, reply)
            if not reply.done:
                self._stop.wait(self._options.step_delay_ms / 1000)
        return reply

    def _finish(self, connection: Connection, reply: Reply) -> int:
        code = self._judge(reply) if self._config.is_chief else 0
        self._say(f"finished at step {reply.step}, {self._pushed} gradients pushed")
        try:
            connection.tell(Request(Kind.FINISH))
        except OSError as error:
            self._say(f"the parameter server had gone already: {error}")
        return code

    def _judge(self, reply: Reply) -> int:
        reached, target = self._test_accuracy(reply), self._options.target_accuracy
        print(f"final test accuracy {reached:.4f} after {reply.step} steps (target {target:g})", flush=True)
        return 0 if reached >= target else 1

    def _test_accuracy(self, reply: Reply) -> float:
        return accuracy(reply.parameters, self._digits.test)

    def _batches(self, *, joined_at: int) -> Iterator[Samples]:
        training = self._digits.training
        rank = 0 if self._config.role in CHIEFS else self._config.index + 1
        random = np.random.default_rng([rank, joined_at])
        while True:
            chosen = random.integers(len(training.labels), size=self._options.batch_size)
            yield Samples(images=training.images[chosen], labels=training.labels[chosen])

    def _say(self, text: str) -> None:
        print(f"{self._config.name}: {text}", flush=True)
