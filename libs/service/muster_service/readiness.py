"""Whether a service can do its work now: the conjunction of what its parts say.

One place knows it, and health checks, the readiness page and the ready line all read that place.
"""

from collections.abc import Callable

DRAINING = "drain"


class Readiness:
    """Named conditions; ready when every one of them holds."""

    def __init__(self) -> None:
        self._conditions: dict[str, bool] = {}
        self._listeners: list[Callable[[bool], None]] = []

    @property
    def ready(self) -> bool:
        """Whether all conditions hold."""
        return all(self._conditions.values())

    @property
    def waiting_for(self) -> list[str]:
        """The conditions that do not hold."""
        return [name for name, holds in self._conditions.items() if not holds]

    def set(self, name: str, holds: bool) -> None:
        """State whether the condition `name` holds; listeners hear of it when readiness as a whole changes."""
        before = self.ready
        self._conditions[name] = holds
        if self.ready is not before:
            for listener in self._listeners:
                listener(self.ready)

    def listen(self, listener: Callable[[bool], None]) -> None:
        """Call `listener` with the new readiness at every change."""
        self._listeners.append(listener)
