"""Creates the streams, durables and buckets of the catalogue: `python -m muster_local.provision`.

Services are not permitted to, so that no service can change how events are kept. `muster up` does the same on every start,
which also brings an older store up to the catalogue.
"""

import asyncio
import logging
import sys

import msgspec

from muster_bus import Bus, BusSettings, BusUnavailable, provision
from muster_service.settings import Secret, SettingsError, load_settings

log = logging.getLogger(__name__)

_PATIENCE_S = 60.0
_PAUSE_S = 0.2


class ProvisionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the broker is, and the user who may change its streams."""

    bus_url: str = "nats://127.0.0.1:4222"
    bus_user: str | None = None
    bus_password: Secret | None = None


async def provision_bus(settings: BusSettings) -> None:
    """Create or update everything in the catalogue; may be repeated.

    Raises:
        Refused: the broker cannot make what exists into what is declared.
        TimeoutError: the broker did not answer for a minute.
    """
    # The catalogue takes a while to import: the broker is starting in the meantime.
    from muster_events.catalogue import BUCKETS, DURABLES, STREAMS  # noqa: PLC0415

    async with asyncio.timeout(_PATIENCE_S):
        bus = await Bus.connect(settings, name="provision")
        try:
            while True:
                try:
                    return await provision(bus, STREAMS, DURABLES, BUCKETS)
                except BusUnavailable as error:
                    log.warning("the broker did not answer, trying again: %s", error)
                    await asyncio.sleep(_PAUSE_S)
        finally:
            await bus.close()


def main() -> int:
    """Provision the broker that the environment names; returns an exit code."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    try:
        settings = load_settings(ProvisionSettings)
    except SettingsError as error:
        log.error("%s", error)
        return 2
    password = settings.bus_password.reveal() if settings.bus_password else None
    try:
        asyncio.run(
            provision_bus(BusSettings(url=settings.bus_url, user=settings.bus_user, password=password))
        )
    except TimeoutError:
        log.error("the broker at %s did not answer within %g s", settings.bus_url, _PATIENCE_S)
        return 1
    log.info("the broker at %s has every stream, durable and bucket of the catalogue", settings.bus_url)
    return 0


if __name__ == "__main__":
    sys.exit(main())
