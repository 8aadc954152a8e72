"""Progress lines of the chief: one each time the global step passes a multiple of the interval."""

import time
from collections.abc import Callable

from .wire import Reply


class Progress:
    """Collects losses between two lines; ``accuracy_of`` evaluates the parameters of a reply, 0 to 1."""

    def __init__(self, *, every: int, accuracy_of: Callable[[Reply], float]) -> None:
        self._every = every
        self._accuracy_of = accuracy_of
        self._losses: list[float] = []
        self._step = 0
        self._since = time.monotonic()

    def begin(self, reply: Reply) -> None:
        """Restart counting at this step: training may be ahead of a worker that returns, or behind after a server restart."""
        self._losses.clear()
        self._step = reply.step
        self._since = time.monotonic()

    def record(self, loss: float, reply: Reply) -> None:
        """Record one step's loss and reply; print a line if one is due."""
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
