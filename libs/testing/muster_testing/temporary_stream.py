"""A stream for one test on a shared broker."""

from collections.abc import Sequence
from typing import Literal

from muster_bus import Bus, ConsumerSpec, Outgoing, Published, StreamSpec, dead_letter_stream, provision


class TemporaryStream:
    """A stream called ``name`` with the subjects ``<name>.>``, and the stream of dead letters."""

    def __init__(self, *, bus: Bus, name: str) -> None:
        self.bus = bus
        self.name = name
        self._sent = 0

    @classmethod
    async def open(cls, bus: Bus, name: str) -> "TemporaryStream":
        """Create the stream."""
        stream = StreamSpec(name=name, subjects=[f"{name}.>"], max_bytes=64 << 20)
        await provision(bus, streams=[stream, dead_letter_stream()])
        return cls(bus=bus, name=name)

    async def publish(self, *payloads: str, topic: str = "a") -> Published:
        """Publish each payload durably on ``<name>.<topic>``; return the last acknowledgement."""
        published = Published(self.name, 0)
        for payload in payloads:
            self._sent += 1
            msg_id = f"{self.name}/{topic}/{self._sent}"
            outgoing = Outgoing(subject=f"{self.name}.{topic}", data=payload.encode(), msg_id=msg_id)
            published = await self.bus.publish_once(outgoing, deadline_s=30)
        return published

    async def settled(self, consumer: str) -> bool:
        """Return whether ``consumer`` has no pending messages and no pending acknowledgements."""
        answer = await self.bus.request(f"$JS.API.CONSUMER.INFO.{self.name}.{consumer}", b"")
        return b'"num_ack_pending":0' in answer.data and b'"num_pending":0' in answer.data

    async def consumer(
        self,
        name: str,
        *,
        ack: Literal["explicit", "all"],
        filters: Sequence[str] = (),
        ack_wait_s: float = 5,
        max_deliver: int = -1,
    ) -> str:
        """Create a durable consumer of this stream and return its name."""
        spec = ConsumerSpec(
            stream=self.name,
            consumer=name,
            ack=ack,
            filters=filters or [f"{self.name}.>"],
            ack_wait_s=ack_wait_s,
            max_deliver=max_deliver,
        )
        await provision(self.bus, consumers=[spec])
        return name
