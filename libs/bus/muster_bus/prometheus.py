"""The metrics of a service's bus, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prometheus_client import Counter, Histogram

from muster_bus.dead_letters import DEAD_LETTER_STREAM
from muster_bus.metrics import BusMetrics
from muster_service.metrics import Metrics

_PUBLISH_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class PrometheusBusMetrics(BusMetrics):
    """Metrics of the bus.

    What is known of streams and consumers comes from the broker. Every instance that watches a stream exports its state: it is
    read anyway, and is still there while a scheduler cannot lead because the stream is full. What is pending of a consumer is
    exported by the instances that read it: a partition or a pool has one at a time.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._published = metrics.counter(
            "muster_bus_published", "messages stored durably, by stream", ("stream",)
        )
        self._durations = metrics.histogram(
            "muster_bus_publish_duration_seconds",
            "time until a message or a batch is stored durably",
            ("stream",),
            buckets=_PUBLISH_S,
        )
        self._redelivered = metrics.counter(
            "muster_bus_redelivered", "messages delivered more than once, by consumer", ("consumer",)
        )
        self._dead_lettered = metrics.counter(
            "muster_bus_dead_lettered", "dead letters, by consumer", ("consumer",)
        )
        self._unreadable = metrics.counter(
            "muster_bus_unreadable", "messages and values that were ignored as unreadable", ("stream",)
        )
        self._pending = metrics.gauge(
            "muster_bus_pending_messages", "stored messages that the consumer has not handled", ("consumer",)
        )
        self._connected = metrics.gauge("muster_bus_connected", "1 while connected to the broker")
        self._reconnected = metrics.counter("muster_bus_reconnected", "reconnects to the broker")
        self._leader = metrics.gauge(
            "muster_leader", "1 while this instance holds the lease and leads", ("lease", "pool")
        )
        self._elected = metrics.counter(
            "muster_elections", "elections that this instance won, by lease", ("lease", "pool")
        )
        self._owned = metrics.gauge(
            "muster_partitions_owned", "partitions that this instance owns", ("group",)
        )
        self._partitions = metrics.gauge("muster_partitions", "partitions of the group", ("group",))
        self._lapsed = metrics.counter(
            "muster_membership_lapses", "memberships that this instance did not renew in time", ("group",)
        )
        self._restored = metrics.counter(
            "muster_bus_restored", "deleted streams and consumers that this instance created again", ("name",)
        )
        self._refused = metrics.counter(
            "muster_bus_refused", "subjects that the broker refused for lack of permission"
        )
        self._messages = metrics.gauge("muster_stream_messages", "messages in the stream", ("stream",))
        self._bytes = metrics.gauge("muster_stream_bytes", "bytes in the stream", ("stream",))
        self._limits = metrics.gauge(
            "muster_stream_limit_bytes", "largest size of the stream; absent if it has none", ("stream",)
        )
        self._dead_letters = metrics.gauge(
            "muster_dead_letters", "dead letters that are neither replayed nor discarded", ("stream",)
        )
        self._by_stream: dict[str, tuple[Counter, Histogram]] = {}

    def is_connected(self, connected: Callable[[], bool]) -> None:
        """Export what ``connected`` returns."""
        self._connected.set_function(connected)

    def published(self, stream: str, messages: int, duration_s: float, /) -> None:
        """Count messages that ``stream`` stored."""
        published, durations = self._by_stream.get(stream) or self._of(stream)
        published.inc(messages)
        durations.observe(duration_s)

    def _of(self, stream: str) -> tuple[Counter, Histogram]:
        found = self._by_stream[stream] = self._published.labels(stream), self._durations.labels(stream)
        return found

    def redelivered(self, consumer: str, /) -> None:
        """Count a redelivery to ``consumer``."""
        self._redelivered.labels(consumer).inc()

    def dead_lettered(self, consumer: str, /) -> None:
        """Count a dead letter of ``consumer``."""
        self._dead_lettered.labels(consumer).inc()

    def unreadable(self, stream: str, /) -> None:
        """Count a message or value of ``stream`` that was ignored."""
        self._unreadable.labels(stream).inc()

    def reads(self, consumer: str, /) -> None:
        """Create the counters of ``consumer``."""
        self._redelivered.labels(consumer)
        self._dead_lettered.labels(consumer)

    def pending(self, consumer: str, messages: int, /) -> None:
        """Set the messages that ``consumer`` has not handled."""
        self._pending.labels(consumer).set(messages)

    def stopped_reading(self, consumer: str, /) -> None:
        """Leave it to the instance that reads ``consumer`` now."""
        self._pending.remove(consumer)

    def keeps(self, streams: Sequence[str], consumers: Sequence[str], /) -> None:
        """Create the counters of ``streams`` and ``consumers``."""
        for stream in streams:
            self._of(stream)
            self._unreadable.labels(stream)
            self._restored.labels(f"stream {stream}")
        for consumer in consumers:
            self._restored.labels(f"consumer {consumer}")

    def stream_state(self, stream: str, messages: int, size: int, limit: int, /) -> None:
        """Set the size of ``stream`` and its limit."""
        self._messages.labels(stream).set(messages)
        self._bytes.labels(stream).set(size)
        if limit:
            self._limits.labels(stream).set(limit)
        else:
            self._limits.remove(stream)
        if stream == DEAD_LETTER_STREAM:
            self._dead_letters.labels(stream).set(messages)

    def reconnected(self) -> None:
        """Count a reconnect."""
        self._reconnected.inc()

    def candidate(self, key: str, is_leading: Callable[[], bool], /) -> None:
        """Export whether this instance leads, and create the counter of its elections."""
        self._leader.labels(*_lease(key)).set_function(is_leading)
        self._elected.labels(*_lease(key))

    def elected(self, key: str, /) -> None:
        """Count an election."""
        self._elected.labels(*_lease(key)).inc()

    def partitions(self, group: str, owned: int, total: int, /) -> None:
        """Set the owned partitions."""
        self._owned.labels(group).set(owned)
        self._partitions.labels(group).set(total)
        self._lapsed.labels(group)

    def lapsed(self, group: str, /) -> None:
        """Count a lapse."""
        self._lapsed.labels(group).inc()

    def restored(self, name: str, /) -> None:
        """Count a stream or consumer that was created again."""
        self._restored.labels(name).inc()

    def refused(self) -> None:
        """Count a refusal."""
        self._refused.inc()


def _lease(key: str) -> tuple[str, str]:
    """Return the lease and the pool of a key such as ``scheduler.local``."""
    lease, _, pool = key.partition(".")
    return lease, pool
