"""Metrics of gRPC calls; each method's metrics are looked up once."""

from collections.abc import Mapping

from prometheus_client import Counter

from muster_service.metrics import Metrics


class CallMeters:
    """The metrics of all methods."""

    def __init__(self, metrics: Metrics) -> None:
        self.handled = metrics.counter("muster_grpc_handled", "calls answered", ("method", "code"))
        self.seconds = metrics.histogram("muster_grpc_seconds", "time to answer a call", ("method",))
        self.running = metrics.gauge("muster_grpc_running", "calls in progress", ("method",))


class MethodMeters:
    """The metrics of one method, `/package.Service/Method`.

    Attributes:
        method: its full name.
        name: its short name.
        attributes: the attributes of its spans.
    """

    def __init__(self, meters: CallMeters, method: str) -> None:
        service, _, short = method[1:].partition("/")
        self.method = method
        self.name = short
        self.attributes: Mapping[str, str] = {
            "rpc.system": "grpc",
            "rpc.service": service,
            "rpc.method": short,
        }
        self.running = meters.running.labels(short)
        self.seconds = meters.seconds.labels(short)
        self._all_handled = meters.handled
        self._handled: dict[str, Counter] = {}

    def handled(self, code: str) -> Counter:
        """Return the counter of calls that ended with this status."""
        if code not in self._handled:
            self._handled[code] = self._all_handled.labels(self.name, code)
        return self._handled[code]
