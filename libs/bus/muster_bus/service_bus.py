"""A service's bus connection: created from its settings, counted in its metrics, closed at its end."""

from __future__ import annotations

from muster_bus import Bus, BusSettings
from muster_service.app import Context
from muster_service.metrics import PrometheusBusMetrics
from muster_service.settings import ServiceSettings


async def connect_bus(settings: ServiceSettings, ctx: Context) -> Bus:
    """Wait for the broker as long as necessary, and return the connection."""
    bus = await Bus.connect(
        BusSettings(url=settings.bus_url, user=settings.bus_user, password=settings.bus_password),
        name=ctx.instance,
        metrics=PrometheusBusMetrics(ctx.metrics),
    )
    ctx.on_close(bus.close)
    return bus
