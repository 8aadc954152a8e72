"""What the chief tells the user while it trains: one line each time the global step passes a multiple of the interval."""

import time
from collections.abc import Callable

from .wire import Reply


class Progress:
    """Collects losses between two lines; ``accuracy_of`` judges a reply's parameters, 0 to 1."""

    def __init__(self, *, every: int, accuracy_of: Callable[[Reply], float]) -> None:
        self._every = every
        self._accuracy_of = accuracy_of
        self._losses: list[float] = []
        self._step = 0
        self._since = time.monotonic()

    def begin(self, reply: Reply) -> None:
        """Count from here: the training may be far ahead of a worker that has come back, and behind after a new server."""
        self._losses.clear()
        self._step = reply.step
        self._since = time.monotonic()

    def record(self, loss: float, reply: Reply) -> None:
        """Take one step's loss and the answer to it; print where a line is due."""
        self._losses.append(loss)
        if reply.step // self._every <= self._step // self._every:
            return
        elapsed = time.monotonic() - self._since
        rate = (reply.step - self._step) / elapsed if elapsed > 0 else 0.0
        mean_loss = sum(self._losses) / len(self._losses)
        print(
            f"step {reply.step}: loss {mean_loss:.4f}, test accuracy {self._accuracy_of(reply):.4f}, "
            f"workers {reply.workers}, {rate:.0f} steps/s",
            flush=True,
        )
        self.begin(reply)
