"""Metrics of the bus: the bus does not depend on a metrics library."""


class BusMetrics:
    """Counters and gauges of the bus, with few values of each label. This class counts nothing; a subclass does."""

    def published(self, stream: str, /) -> None:
        """One message was stored durably in ``stream``."""

    def redelivered(self, consumer: str, /) -> None:
        """A message was redelivered to ``consumer``."""

    def dead_lettered(self, consumer: str, /) -> None:
        """A message was dead-lettered by ``consumer``."""

    def unreadable(self, stream: str, /) -> None:
        """A message or value of ``stream`` could not be read and was ignored."""

    def lag(self, consumer: str, pending: int, /) -> None:
        """``pending`` messages follow the last one that ``consumer`` handled."""

    def reconnected(self) -> None:
        """The connection to the broker was re-established."""

    def elected(self, key: str, /) -> None:
        """This instance was elected leader of ``key``."""

    def lapsed(self, group: str, /) -> None:
        """This instance lost its membership of ``group`` because it did not renew it in time."""

    def restored(self, name: str, /) -> None:
        """This instance created the deleted stream or consumer ``name`` again."""

    def refused(self) -> None:
        """The broker refused a subject or a subscription for lack of permission."""
