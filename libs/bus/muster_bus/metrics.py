"""Metrics of the bus as a protocol: the bus does not depend on a metrics library."""

from typing import Protocol


class BusMetrics(Protocol):
    """Counters and gauges of the bus; every label has few values."""

    def published(self, stream: str, /) -> None:
        """One message was stored durably in ``stream``."""
        ...

    def redelivered(self, consumer: str, /) -> None:
        """A message was redelivered to ``consumer``."""
        ...

    def dead_lettered(self, consumer: str, /) -> None:
        """A message was dead-lettered by ``consumer``."""
        ...

    def lag(self, consumer: str, pending: int, /) -> None:
        """``pending`` messages follow the last one that ``consumer`` handled."""
        ...

    def reconnected(self) -> None:
        """The connection to the broker was re-established."""
        ...

    def refused(self) -> None:
        """The broker refused a subject or a subscription for lack of permission."""
        ...


class NoMetrics:
    """Counts nothing."""

    def published(self, stream: str, /) -> None:
        """Ignore it."""

    def redelivered(self, consumer: str, /) -> None:
        """Ignore it."""

    def dead_lettered(self, consumer: str, /) -> None:
        """Ignore it."""

    def lag(self, consumer: str, pending: int, /) -> None:
        """Ignore it."""

    def reconnected(self) -> None:
        """Ignore it."""

    def refused(self) -> None:
        """Ignore it."""
