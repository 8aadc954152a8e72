"""Requests for the status of every instance that is connected to the bus.

A query over gRPC reaches one instance of a service that has a server; this request reaches all instances of all of them, also
those that no caller can find.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from secrets import token_hex

import msgspec

from muster_bus.connection import Bus, Subscription
from muster_bus.errors import BusError
from muster_bus.messages import UNREADABLE, Incoming

SUBJECT = "muster.status"
"""Requests for the status of all instances; in no stream."""

_LATE_S = 0.1


class InstanceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What an instance says of itself.

    Attributes:
        service: Its service.
        instance: Its name.
        version: Its version.
        started_at_ns: When it started, in ns since the epoch by its clock.
        waiting_for: The conditions of its readiness that do not hold.
        at_ns: Its clock when it answered, in ns since the epoch.
    """

    service: str
    instance: str
    version: str
    started_at_ns: int = 0
    waiting_for: tuple[str, ...] = ()
    at_ns: int


class StatusAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The status of an instance, and by how much its clock is ahead of this machine's, at most ``uncertainty_s`` wrong."""

    status: InstanceStatus
    ahead_s: float
    uncertainty_s: float


async def answer_status_requests(bus: Bus, status: Callable[[], InstanceStatus]) -> Subscription:
    """Answer every request with ``status()`` while the bus is connected."""
    answering: set[asyncio.Task[None]] = set()

    async def answer(request: Incoming) -> None:
        try:
            await bus.send(request.reply, msgspec.json.encode(status()))
        except BusError:
            # The caller sees that the answer is missing.
            return

    def receive(request: Incoming) -> None:
        if request.reply:
            task = asyncio.create_task(answer(request))
            answering.add(task)
            task.add_done_callback(answering.discard)

    return await bus.subscribe(SUBJECT, receive, flush=False)


async def ask_instances(
    bus: Bus, *, wait_s: float, complete: Callable[[Sequence[InstanceStatus]], bool]
) -> list[StatusAnswer]:
    """Return the answers of all instances within ``wait_s``, or a little after ``complete`` returns True for them.

    Raises ``BusUnavailable`` without a connection.
    """
    answers: list[StatusAnswer] = []
    arrived = asyncio.Event()
    began_ns, began = time.time_ns(), time.monotonic()

    def receive(incoming: Incoming) -> None:
        elapsed_s = time.monotonic() - began
        try:
            status = msgspec.json.decode(incoming.data, type=InstanceStatus)
        except UNREADABLE:
            return
        # The instance took the time at some instant between the request and now.
        ahead_s = (status.at_ns - began_ns) / 1e9 - elapsed_s / 2
        answers.append(StatusAnswer(status=status, ahead_s=ahead_s, uncertainty_s=elapsed_s / 2))
        arrived.set()

    inbox = f"{bus.inbox_prefix}.{token_hex(11)}"
    subscription = await bus.subscribe(inbox, receive, flush=False)
    try:
        await bus.send(SUBJECT, b"", reply=inbox)
        deadline = began + wait_s
        while (left_s := deadline - time.monotonic()) > 0:
            if complete([each.status for each in answers]):
                await asyncio.sleep(min(_LATE_S, left_s))
                break
            arrived.clear()
            try:
                async with asyncio.timeout(left_s):
                    await arrived.wait()
            except TimeoutError:
                break
    finally:
        await subscription.close()
    return answers
