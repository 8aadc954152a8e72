"""What the bus counts, as a protocol: the bus must not know which metrics library is in use."""

from typing import Protocol


class BusMetrics(Protocol):
    """Counters and gauges of the bus; every label has few values."""

    def published(self, stream: str, /) -> None:
        """One message was stored durably in ``stream``."""
        ...

    def redelivered(self, durable: str, /) -> None:
        """A message came to ``durable`` that had been delivered before."""
        ...

    def dead_lettered(self, durable: str, /) -> None:
        """A message was set aside after ``durable`` could not handle it."""
        ...

    def lag(self, durable: str, pending: int, /) -> None:
        """``pending`` messages wait behind the last one that ``durable`` handled."""
        ...

    def reconnected(self) -> None:
        """The connection to the broker was made anew."""
        ...

    def refused(self) -> None:
        """The broker refused a subject or a subscription for want of a permission."""
        ...


class NoMetrics:
    """Counts nothing."""

    def published(self, stream: str, /) -> None:
        """Ignore it."""

    def redelivered(self, durable: str, /) -> None:
        """Ignore it."""

    def dead_lettered(self, durable: str, /) -> None:
        """Ignore it."""

    def lag(self, durable: str, pending: int, /) -> None:
        """Ignore it."""

    def reconnected(self) -> None:
        """Ignore it."""

    def refused(self) -> None:
        """Ignore it."""
