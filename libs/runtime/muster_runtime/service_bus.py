"""A service's connection to the bus: made from its settings, counted in its metrics, closed at its end."""

from __future__ import annotations

from muster_runtime.app import Context
from muster_runtime.bus import Bus, BusSettings
from muster_runtime.metrics import PrometheusBusMetrics
from muster_runtime.settings import ServiceSettings


async def connect_bus(settings: ServiceSettings, ctx: Context) -> Bus:
    """Wait for the broker, as long as it takes, and return the connection."""
    bus = await Bus.connect(
        BusSettings(url=settings.bus_url, user=settings.bus_user, password=settings.bus_password),
        name=ctx.instance,
        metrics=PrometheusBusMetrics(ctx.metrics),
    )
    ctx.on_close(bus.close)
    return bus
