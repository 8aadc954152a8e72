"""Readiness of a service: the conjunction of its parts' conditions.

Health checks, the readiness page and the ready line all use it.
"""

from collections.abc import Callable

DRAINING = "drain"


class Readiness:
    """Named conditions; ready when every one holds."""

    def __init__(self) -> None:
        self._conditions: dict[str, bool] = {}
        self._listeners: list[Callable[[bool], None]] = []
        self._services: dict[str, bool] = {}
        self._service_listeners: list[Callable[[str, bool], None]] = []

    @property
    def ready(self) -> bool:
        """Whether all conditions hold."""
        return all(self._conditions.values())

    @property
    def waiting_for(self) -> list[str]:
        """The conditions that do not hold."""
        return [name for name, holds in self._conditions.items() if not holds]

    def set(self, name: str, holds: bool) -> None:
        """Set whether the condition `name` holds; listeners are called when overall readiness changes."""
        before = self.ready
        self._conditions[name] = holds
        if self.ready is not before:
            for listener in self._listeners:
                listener(self.ready)

    def listen(self, listener: Callable[[bool], None]) -> None:
        """Call `listener` with the new readiness at every change."""
        self._listeners.append(listener)

    def set_service(self, name: str, serving: bool) -> None:
        """Set whether calls of the gRPC service `name` are answered while the whole is ready; by default they are."""
        self._services[name] = serving
        for listener in self._service_listeners:
            listener(name, serving)

    def listen_to_services(self, listener: Callable[[str, bool], None]) -> None:
        """Call `listener` with what is set for each service, now and at every change."""
        self._service_listeners.append(listener)
        for name, serving in self._services.items():
            listener(name, serving)
