"""Connections that are reset while they are made, on the event loop of the services."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import uvloop

from muster_bus import Bus, BusSettings
from muster_testing.broker import Broker
from muster_testing.broker_proxy import BrokerProxy
from muster_testing.conditions import eventually


async def _scenario(folder: Path) -> None:
    async with Broker(folder) as broker, AsyncExitStack() as stack:
        proxy = BrokerProxy(broker)
        url = await stack.enter_async_context(proxy.serving())
        proxy.resets = 5
        bus = await asyncio.wait_for(Bus.connect(BusSettings(url=url), name="reset"), 30)
        received: list[bytes] = []
        await bus.subscribe("after", lambda incoming: received.append(incoming.data))

        for number in range(3):
            seen, proxy.resets = proxy.seen, 5
            proxy.reset()
            await eventually(lambda seen=seen: proxy.seen > seen + 5 and bus.connected, timeout_s=30)
            sent = str(number).encode()
            await bus.send("after", sent)
            await eventually(lambda sent=sent: sent in received)

        await bus.close()


def test_a_connection_that_is_reset_while_it_is_made_is_made_again(tmp_path: Path) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_scenario(tmp_path))
