"""Metrics of requests to the API server."""

from __future__ import annotations

from muster_runtimes.kubernetes import NO_RESPONSE, VERBS, RequestMetrics
from muster_service.metrics import Metrics

_EXPECTED = {"create": "201"}
_ERRORS = ("429", "500", "503", NO_RESPONSE)


class PrometheusRequestMetrics(RequestMetrics):
    """Counts requests by verb and HTTP status, and times them by verb."""

    def __init__(self, metrics: Metrics) -> None:
        self._requests = metrics.counter(
            "muster_kubernetes_requests", "requests to the API server, by HTTP status", ("verb", "code")
        )
        durations = metrics.histogram(
            "muster_kubernetes_request_duration_seconds",
            "time until the API server responded; of a stream, until it began",
            ("verb",),
        )
        running = metrics.gauge(
            "muster_kubernetes_requests_in_flight", "requests to the API server in progress", ("verb",)
        )
        self._durations = {verb: durations.labels(verb) for verb in VERBS}
        self._running = {verb: running.labels(verb) for verb in VERBS}
        for verb in VERBS:
            for code in (_EXPECTED.get(verb, "200"), *_ERRORS):
                self._requests.labels(verb, code)

    def started(self, verb: str, /) -> None:
        """See ``RequestMetrics``."""
        self._running[verb].inc()

    def responded(self, verb: str, code: str, duration_s: float, /) -> None:
        """See ``RequestMetrics``."""
        self._requests.labels(verb, code).inc()
        self._durations[verb].observe(duration_s)

    def ended(self, verb: str, /) -> None:
        """See ``RequestMetrics``."""
        self._running[verb].dec()
