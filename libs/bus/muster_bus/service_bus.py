"""A service's bus connection: created from its settings, counted in its metrics, closed at its end."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from muster_bus import BrokerClock, Bus, BusSettings
from muster_bus.catalogue_reconciler import CatalogueReconciler
from muster_bus.disk import shortage
from muster_bus.instance_status import InstanceStatus, answer_status_requests
from muster_bus.pending_messages import report_pending
from muster_bus.prometheus import PrometheusBusMetrics
from muster_bus.provision import ConsumerSpec
from muster_bus.write_probe import WriteProbe
from muster_service.app import Context
from muster_service.settings import ServiceSettings
from muster_service.version import VERSION

_STARTED_AT_NS = time.time_ns()


async def connect_bus(settings: ServiceSettings, ctx: Context) -> Bus:
    """Wait for the broker as long as necessary, and return the connection, on which requests for the status are answered."""
    metrics = PrometheusBusMetrics(ctx.metrics)
    bus = await Bus.connect(
        BusSettings(url=settings.bus_url, user=settings.bus_user, password=settings.bus_password),
        name=ctx.instance,
        metrics=metrics,
    )
    metrics.is_connected(lambda: bus.connected)
    ctx.add_part("pending-messages", lambda: report_pending(bus))
    ctx.on_close(bus.close)
    await answer_status_requests(bus, lambda: _status(ctx))
    return bus


def _status(ctx: Context) -> InstanceStatus:
    return InstanceStatus(
        service=ctx.service,
        instance=ctx.instance,
        version=VERSION,
        started_at_ns=_STARTED_AT_NS,
        waiting_for=tuple(ctx.readiness.waiting_for),
        at_ns=time.time_ns(),
    )


def broker_clock(bus: Bus, ctx: Context, stream: str) -> BrokerClock:
    """Return a clock that follows the broker's as long as the service runs."""
    clock = BrokerClock(bus, stream)
    ctx.add_part("clock", clock.run)
    return clock


def probe_writes(
    bus: Bus, ctx: Context, settings: ServiceSettings, *, subjects: Mapping[str, str], hint: str
) -> WriteProbe:
    """Write to the broker as long as the service runs; while it does not store messages the service is not ready.

    Args:
        bus: The connection.
        ctx: The context of the service.
        settings: Its settings, with the folder of the broker's store if it is on this machine.
        subjects: See `WriteProbe`.
        hint: See `WriteProbe`.
    """
    folder = settings.bus_store
    probe = WriteProbe(
        bus,
        subjects=subjects,
        hint=hint,
        shortage=lambda: None if folder is None else shortage(folder),
        on_change=lambda problem: ctx.set_resource("storage", problem),
    )
    ctx.set_resource("storage", probe.problem)
    ctx.add_part("storage", probe.run)
    return probe


def keep_catalogue(
    bus: Bus,
    ctx: Context,
    *,
    streams: Sequence[str] = (),
    buckets: Sequence[str] = (),
    consumers: Sequence[ConsumerSpec] = (),
    restart_after: Collection[str] = (),
    restore: Mapping[str, Callable[[], Awaitable[None]]] | None = None,
) -> CatalogueReconciler:
    """Create deleted streams, buckets and consumers again as long as the service runs; while one is missing it is not ready.

    Args:
        bus: The connection.
        ctx: The context of the service.
        streams: The names of the streams.
        buckets: The names of the buckets.
        consumers: The durable consumers.
        restart_after: After which of them have been created again the service ends, so that its supervisor restarts it: what
            it has in memory was derived from what is lost.
        restore: What to do after one was created again, before a restart, by its name.
    """
    names = dict.fromkeys(streams) | {f"KV_{bucket}": bucket for bucket in buckets}

    def named(name: str) -> str:
        return names[name] or name

    async def on_recreated(stream: str) -> None:
        name = named(stream)
        if restore is not None and name in restore:
            await restore[name]()
        if name in restart_after:
            ctx.log.error("%s was created again: the service restarts and rebuilds its state", name)
            ctx.stop()

    reconciler = CatalogueReconciler(
        bus,
        streams=list(names),
        consumers=consumers,
        on_recreated=on_recreated,
        set_complete=lambda missing: ctx.set_ready("streams", not missing),
    )

    def on_older(stream: str) -> None:
        ctx.log.error(
            "%s ends before what was read of it: an older store was restored; the service restarts and rebuilds its state",
            named(stream),
        )
        ctx.stop()

    bus.refuse_older_store(list(names), on_older)
    ctx.set_ready("streams", False)
    ctx.add_part("catalogue", reconciler.run)
    return reconciler
