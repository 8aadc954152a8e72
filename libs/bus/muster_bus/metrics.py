"""Metrics of the bus: the bus does not depend on a metrics library."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class BusMetrics:
    """Counters and gauges of the bus, with few values of each label. This class counts nothing; a subclass does."""

    def published(self, stream: str, messages: int, duration_s: float, /) -> None:
        """``messages`` messages were stored durably in ``stream`` by one call, which took ``duration_s`` seconds."""

    def redelivered(self, consumer: str, /) -> None:
        """A message was redelivered to ``consumer``."""

    def dead_lettered(self, consumer: str, /) -> None:
        """A message was dead-lettered by ``consumer``."""

    def unreadable(self, stream: str, /) -> None:
        """A message or value of ``stream`` could not be read and was ignored."""

    def reads(self, consumer: str, /) -> None:
        """This instance has begun to read as ``consumer``."""

    def pending(self, consumer: str, messages: int, /) -> None:
        """``messages`` stored messages of ``consumer``, which this instance reads, are not handled yet."""

    def stopped_reading(self, consumer: str, /) -> None:
        """This instance does not read as ``consumer`` any more."""

    def keeps(self, streams: Sequence[str], consumers: Sequence[str], /) -> None:
        """This instance watches the state of ``streams``, and creates them and ``consumers`` again if they are deleted."""

    def stream_state(self, stream: str, messages: int, size: int, limit: int, /) -> None:
        """``stream`` holds ``messages`` messages of ``size`` bytes together, of at most ``limit`` bytes (0: unlimited)."""

    def reconnected(self) -> None:
        """The connection to the broker was re-established."""

    def candidate(self, key: str, is_leading: Callable[[], bool], /) -> None:
        """This instance stands for the leadership of ``key``."""

    def elected(self, key: str, /) -> None:
        """This instance was elected leader of ``key``."""

    def partitions(self, group: str, owned: int, total: int, /) -> None:
        """This instance owns ``owned`` of the ``total`` partitions of ``group``."""

    def lapsed(self, group: str, /) -> None:
        """This instance lost its membership of ``group`` because it did not renew it in time."""

    def restored(self, name: str, /) -> None:
        """This instance created the deleted stream or consumer ``name`` again."""

    def refused(self) -> None:
        """The broker refused a subject or a subscription for lack of permission."""
