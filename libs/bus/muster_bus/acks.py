"""Acknowledgements. None of them is a fence: the broker accepts one from a deposed instance, too."""

import json

from muster_bus.connection import Bus
from muster_bus.messages import Incoming

_NS = 1_000_000_000


async def acknowledge(bus: Bus, incoming: Incoming) -> None:
    """Acknowledge the message and wait for the broker's confirmation; raises ``BusUnavailable`` if it is unknown."""
    await bus.request(incoming.reply, b"+ACK")


async def put_back(bus: Bus, incoming: Incoming, *, delay_s: float) -> None:
    """Request redelivery, not before ``delay_s`` seconds."""
    order = b"-NAK"
    if delay_s > 0:
        order += b" " + json.dumps({"delay": int(delay_s * _NS)}).encode()
    await bus.send(incoming.reply, order)


async def keep(bus: Bus, incoming: Incoming) -> None:
    """Report progress: the message's ack wait restarts."""
    await bus.send(incoming.reply, b"+WPI")
