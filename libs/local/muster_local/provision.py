"""Creates the streams, consumers and buckets of the catalogue: `python -m muster_local.provision`.

`MUSTER_STORE_BYTES` is the size of the broker's store, if it is too small for the sizes of the catalogue.
`MUSTER_STREAM_REPLICAS` is the number of servers of a broker cluster that keep a copy of each stream. `muster up` provisions
on every start, which also upgrades an older store.
"""

import asyncio
import logging
import sys
from typing import Annotated

import msgspec
from msgspec import Meta

from muster_bus import Bus, BusRejected, BusSettings, BusUnavailable, StreamFull, held_bytes, provision
from muster_local.store_size import fit_streams
from muster_service.settings import Secret, SettingsError, load_settings

log = logging.getLogger(__name__)

_TIMEOUT_S = 60.0
_PAUSE_S = 0.2


class ProvisionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The broker's URL, the user with the permission to change its streams, the size of its store, and the copies of streams."""

    bus_url: str = "nats://127.0.0.1:4222"
    bus_user: str | None = None
    bus_password: Secret | None = None
    store_bytes: Annotated[int, Meta(ge=1)] | None = None
    stream_replicas: Annotated[int, Meta(ge=1, le=5)] = 1


async def provision_bus(
    settings: BusSettings, *, store_bytes: int | None = None, stream_replicas: int = 1
) -> None:
    """Create or update every stream, consumer and bucket of the catalogue; idempotent.

    Args:
        settings: the broker, and a user with the permission.
        store_bytes: what the broker's store may take; streams are made smaller to fit. None: it has space for the sizes
            of the catalogue.
        stream_replicas: how many servers of a broker cluster keep each stream and bucket. Durable consumers follow their
            stream.

    Raises:
        BusRejected: an existing stream cannot be changed to its declaration, or the broker has too few servers.
        StreamFull: a stream does not fit into the broker's store.
        TimeoutError: the broker did not answer for a minute.
    """
    # The import takes a while; the broker starts meanwhile.
    from muster_events.catalogue import BUCKETS, CONSUMERS, STREAMS  # noqa: PLC0415

    async with asyncio.timeout(_TIMEOUT_S):
        bus = await Bus.connect(settings, name="provision")
        try:
            while True:
                try:
                    streams = STREAMS
                    if store_bytes is not None:
                        held = await held_bytes(bus, STREAMS)
                        streams = fit_streams(STREAMS, available_bytes=store_bytes, held=held)
                    return await provision(
                        bus,
                        [msgspec.structs.replace(spec, replicas=stream_replicas) for spec in streams],
                        CONSUMERS,
                        [msgspec.structs.replace(spec, replicas=stream_replicas) for spec in BUCKETS],
                    )
                except BusUnavailable as error:
                    log.warning("the broker did not answer, retrying: %s", error)
                    await asyncio.sleep(_PAUSE_S)
        finally:
            await bus.close()


def main() -> int:
    """Provision the broker named in the environment; return an exit code."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    try:
        settings = load_settings(ProvisionSettings)
    except SettingsError as error:
        log.error("%s", error)
        return 2
    bus_settings = BusSettings(
        url=settings.bus_url,
        user=settings.bus_user,
        password=settings.bus_password.reveal() if settings.bus_password else None,
    )
    try:
        asyncio.run(
            provision_bus(
                bus_settings, store_bytes=settings.store_bytes, stream_replicas=settings.stream_replicas
            )
        )
    except TimeoutError:
        log.error("the broker at %s did not answer within %g s", settings.bus_url, _TIMEOUT_S)
        return 1
    except StreamFull as error:
        log.error(
            "%s; give the store of the broker at %s more space, or set MUSTER_STORE_BYTES to what it has and restart the broker",
            error.description,
            settings.bus_url,
        )
        return 1
    except BusRejected as error:
        log.error("the broker at %s refused: %s", settings.bus_url, error)
        return 1
    log.info("the broker at %s has all streams, consumers and buckets of the catalogue", settings.bus_url)
    return 0


if __name__ == "__main__":
    sys.exit(main())
