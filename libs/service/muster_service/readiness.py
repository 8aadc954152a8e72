"""Readiness of a service: the conjunction of its parts' conditions.

The readiness page and the ready line use all conditions. Health checks of gRPC leave out those without which calls can
still be answered: while the broker's disk is full, queries are.
"""

from collections.abc import Callable, Mapping

DRAINING = "drain"


class Readiness:
    """Named conditions; ready when every one holds."""

    def __init__(self) -> None:
        self._conditions: dict[str, bool] = {}
        self._checks: dict[str, Callable[[], bool]] = {}
        self._was_ready = True
        self._answered = True
        self._reasons: dict[str, str] = {}
        self._for_work_only: set[str] = set()
        self._listeners: list[Callable[[bool], None]] = []
        self._answer_listeners: list[Callable[[bool], None]] = []
        self._services: dict[str, bool] = {}
        self._service_listeners: list[Callable[[str, bool], None]] = []

    @property
    def ready(self) -> bool:
        """Whether all conditions hold."""
        return all(self._holds(name) for name in self._conditions)

    @property
    def answers(self) -> bool:
        """Whether all conditions hold without which calls cannot be answered."""
        return all(self._holds(name) for name in self._conditions if name not in self._for_work_only)

    @property
    def conditions(self) -> Mapping[str, bool]:
        """Whether each condition holds, by name."""
        return {name: self._holds(name) for name in self._conditions}

    @property
    def waiting_for(self) -> list[str]:
        """The conditions that do not hold, with their reasons."""
        return [self._described(name) for name in self._conditions if not self._holds(name)]

    def check(self, name: str, holds: Callable[[], bool]) -> None:
        """Ask `holds` whenever somebody asks whether the condition `name` holds, besides what is set.

        For what ends without an event, such as a lease. Listeners are called when the condition is set the next time.
        """
        self._checks[name] = holds

    def set(self, name: str, holds: bool, *, reason: str = "", needed_to_answer: bool = True) -> None:
        """Set whether the condition `name` holds; listeners are called when overall readiness changes.

        Args:
            name: the condition.
            holds: whether it holds.
            reason: why it does not hold, for the readiness page.
            needed_to_answer: whether calls cannot be answered without it.
        """
        self._conditions[name] = holds
        self._reasons[name] = reason
        if not needed_to_answer:
            self._for_work_only.add(name)
        ready, answers = self.ready, self.answers
        if ready is not self._was_ready:
            self._was_ready = ready
            for listener in self._listeners:
                listener(ready)
        if answers is not self._answered:
            self._answered = answers
            for listener in self._answer_listeners:
                listener(answers)

    def listen(self, listener: Callable[[bool], None]) -> None:
        """Call `listener` with the new readiness at every change."""
        self._listeners.append(listener)

    def listen_to_answers(self, listener: Callable[[bool], None]) -> None:
        """Call `listener` with whether calls can be answered at every change."""
        self._answer_listeners.append(listener)

    def _holds(self, name: str) -> bool:
        check = self._checks.get(name)
        return self._conditions[name] and (check is None or check())

    def _described(self, name: str) -> str:
        reason = self._reasons[name]
        return f"{name} ({reason})" if reason else name

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
