"""Acknowledgements. None of them is a fence: the broker takes one from a copy that was thought dead, too."""

import json

from muster_bus.connection import Bus
from muster_bus.messages import Incoming

_NS = 1_000_000_000


async def acknowledge(bus: Bus, incoming: Incoming) -> None:
    """Settle the message, and wait until the broker has noted it; raises ``BusUnavailable`` when that is unknown."""
    await bus.request(incoming.reply, b"+ACK")


async def put_back(bus: Bus, incoming: Incoming, *, delay_s: float) -> None:
    """Have the message delivered again, not sooner than in ``delay_s`` seconds."""
    order = b"-NAK"
    if delay_s > 0:
        order += b" " + json.dumps({"delay": int(delay_s * _NS)}).encode()
    await bus.send(incoming.reply, order)


async def keep(bus: Bus, incoming: Incoming) -> None:
    """Say that the message is being worked on: its time to be acknowledged starts anew."""
    await bus.send(incoming.reply, b"+WPI")
