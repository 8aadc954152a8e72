"""A reader may be on a server of the cluster whose copy of the stream is behind; nothing is missed then.

The server is a double: the first consumer reads the subjects of what the copy has.
"""

from __future__ import annotations

import pytest
import pytest_asyncio

from muster_bus import (
    Bus,
    BusUnavailable,
    Outgoing,
    StreamRange,
    StreamSpec,
    _api,
    provision,
    read_last_values,
    read_range,
)
from muster_bus.ordered_consumer import read_last_headers


@pytest_asyncio.fixture
async def stream(shared_bus: Bus, fresh: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A stream of three messages, of which the copy that is read first has two."""
    await provision(shared_bus, streams=[StreamSpec(name=fresh, subjects=[f"{fresh}.>"], max_bytes=1 << 20)])
    for topic in "abc":
        await shared_bus.publish(Outgoing(subject=f"{fresh}.{topic}", data=b"", msg_id=topic))
    create, filters = _api.create_reader, [[f"{fresh}.a", f"{fresh}.b"]]

    async def create_reader(
        bus: Bus,
        stream: str,
        given: list[str],
        *,
        start: int | None,
        inactive_s: float,
        headers_only: bool = False,
    ) -> _api.ConsumerInfo:
        found = filters.pop() if filters else given
        return await create(bus, stream, found, start=start, inactive_s=inactive_s, headers_only=headers_only)

    monkeypatch.setattr(_api, "create_reader", create_reader)
    monkeypatch.setattr(Bus, "is_clustered", True)
    return fresh


async def test_a_listing_fails_that_lacks_the_newest_message(shared_bus: Bus, stream: str) -> None:
    with pytest.raises(BusUnavailable, match="behind"):
        await read_last_values(shared_bus, stream, f"{stream}.>")
    assert len(await read_last_values(shared_bus, stream, f"{stream}.>")) == 3


async def test_a_listing_of_headers_fails_that_lacks_the_newest_message(shared_bus: Bus, stream: str) -> None:
    with pytest.raises(BusUnavailable, match="behind"):
        _ = [chunk async for chunk in read_last_headers(shared_bus, stream, f"{stream}.>")]


async def test_a_range_is_read_to_its_end(shared_bus: Bus, stream: str) -> None:
    wanted = StreamRange(stream=stream, filters=[f"{stream}.>"], after=1, through=3)
    found = [each.stream_sequence async for chunk in read_range(shared_bus, wanted) for each in chunk]
    assert found == [2, 3]


async def test_a_listing_that_lacks_a_removed_message_is_complete(
    shared_bus: Bus, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [3, 2]

    async def newest(bus: Bus, stream: str, subject: str) -> object:
        return await _api.message_at(bus, stream, answers.pop(0))

    monkeypatch.setattr(_api, "last_message", newest)
    assert len(await read_last_values(shared_bus, stream, f"{stream}.>")) == 2
    assert not answers
