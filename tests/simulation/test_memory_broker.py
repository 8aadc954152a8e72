"""The memory broker of the simulation answers as the real one does."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from broker_drivers import MemoryDriver, RealDriver, StreamClient
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from muster_testing.broker import Broker
from muster_testing.fixtures import shared_broker

__all__ = ["shared_broker"]

_NS = 1_000_000_000
_PAUSE_S = 2.6
NIGHTLY = os.environ.get("MUSTER_TEST_SIMULATION") == "nightly"
EXAMPLES = 500 if NIGHTLY else 40
TIMED_EXAMPLES = 6 if NIGHTLY else 1
_EXPECTED = "Nats-Expected-Last-Subject-Sequence"
_EXPECTED_SUBJECT = f"{_EXPECTED}-Subject"

Operation = Callable[[StreamClient], Awaitable[object]]

subjects = st.sampled_from(("a", "b", "c.x", "c.y"))
filters = st.sampled_from(("a", "b", "c.*", ">", "c.x"))
sequences = st.integers(0, 8)
message_ids = st.sampled_from(("", "", "", "m1", "m2", "m3"))
consumers = st.sampled_from(("one", "two"))


class Named:
    """An operation with a text for the report of a failure."""

    def __init__(self, text: str, run: Operation) -> None:
        self._text = text
        self.run = run

    def __repr__(self) -> str:
        return self._text


@st.composite
def headers(draw: st.DrawFn) -> dict[str, str]:
    found: dict[str, str] = {}
    if message_id := draw(message_ids):
        found["Nats-Msg-Id"] = message_id
    if draw(st.booleans()):
        found[_EXPECTED] = str(draw(sequences))
        if draw(st.booleans()):
            found[_EXPECTED_SUBJECT] = draw(st.sampled_from(("a", "b", "c.x", "c.*")))
    return found


@st.composite
def publishing(draw: st.DrawFn) -> Named:
    subject, chosen = draw(subjects), draw(headers())
    if draw(st.integers(0, 9)) == 0:
        chosen["Nats-Rollup"] = "sub"
    data = draw(st.binary(max_size=2))
    return Named(f"publish {subject} {chosen}", lambda client: client.publish(subject, data, chosen))


@st.composite
def batches(draw: st.DrawFn) -> Named:
    entries = draw(st.lists(st.tuples(subjects, headers()), min_size=2, max_size=4))
    kind = draw(st.sampled_from(("commit", "commit", "commit", "abandon", "gap")))
    batch_id = draw(st.uuids())

    async def run(client: StreamClient) -> object:
        answer: object = None
        for number, (subject, chosen) in enumerate(entries, start=1):
            whole = {
                **chosen,
                "Nats-Batch-Id": batch_id.hex,
                "Nats-Batch-Sequence": str(number + (kind == "gap" and number == len(entries))),
            }
            if number < len(entries) or kind == "abandon":
                await client.send(subject, b"batched", whole)
            else:
                answer = await client.publish(subject, b"batched", {**whole, "Nats-Batch-Commit": "1"})
        return answer

    return Named(f"batch {kind} {entries}", run)


@st.composite
def reading(draw: st.DrawFn) -> Named:
    sequence = draw(st.integers(1, 12))
    request: dict[str, Any] = {"seq": sequence}
    match draw(st.sampled_from(("last", "next", "at"))):
        case "last":
            request = {"last_by_subj": draw(filters)}
        case "next":
            request["next_by_subj"] = draw(filters)
        case _:
            pass
    return Named(f"get {request}", lambda client: client.message(request))


@st.composite
def removing(draw: st.DrawFn) -> Named:
    if draw(st.booleans()):
        pattern = draw(filters)
        return Named(f"purge {pattern}", lambda client: client.purge(pattern))
    sequence = draw(st.integers(1, 10))
    return Named(f"delete {sequence}", lambda client: client.delete_message(sequence))


@st.composite
def creating(draw: st.DrawFn, ack_wait_s: float = 60.0) -> Named:
    name = draw(consumers)
    config: dict[str, Any] = {
        "ack_policy": draw(st.sampled_from(("explicit", "explicit", "all", "none"))),
        "filter_subjects": draw(st.sampled_from(([], ["a"], ["c.*"], ["a", "c.*"]))),
        "headers_only": draw(st.booleans()),
        "max_deliver": draw(st.sampled_from((-1, -1, 2))),
        "ack_wait": int(ack_wait_s * _NS),
        "deliver_policy": draw(st.sampled_from(("all", "last_per_subject", "new", "by_start_sequence"))),
    }
    if config["ack_policy"] == "none":
        config["max_deliver"] = -1
    if config["deliver_policy"] == "by_start_sequence":
        config["opt_start_seq"] = draw(st.integers(1, 8))
    if config["deliver_policy"] == "last_per_subject" and not config["filter_subjects"]:
        config["filter_subjects"] = [">"]

    async def run(client: StreamClient) -> object:
        await client.delete_consumer(name)
        return await client.create_consumer(name, config)

    return Named(f"create {name} {config}", run)


@st.composite
def consuming(draw: st.DrawFn, *more: str) -> Named:
    name = draw(consumers)
    which = draw(st.integers(0, 3))
    match draw(st.sampled_from(("pull", "pull", "pull", "ack", "ack", "nak", "info", *more))):
        case "pull":
            return Named(f"pull {name}", lambda client: client.pull(name, which + 1))
        case "delayed":
            word = f'-NAK {{"delay": {_NS}}}'.encode()
            return Named(f"nak {name} {which} in 1 s", lambda client: client.settle(name, which, word))
        case "ack":
            return Named(f"ack {name} {which}", lambda client: client.settle(name, which, b"+ACK"))
        case "nak":
            return Named(f"nak {name} {which}", lambda client: client.settle(name, which, b"-NAK"))
        case _:
            return Named(f"info {name}", lambda client: client.consumer(name))


STREAMS: dict[str, dict[str, Any]] = {
    "events": {"allow_atomic": True, "duplicate_window": 120 * _NS},
    "bucket": {
        "max_msgs_per_subject": 1,
        "allow_rollup_hdrs": True,
        "allow_atomic": True,
        "allow_msg_ttl": True,
        "discard": "new",
    },
}


class Comparison:
    """Runs operations on both brokers, on a new stream each time."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._names = itertools.count(1)
        self._runner = asyncio.Runner()
        self._real = RealDriver(url)
        self._runner.run(self._real.__aenter__())
        # The broker removes its directory of streams with the last one, a little later, when there may be a next one in it.
        self._runner.run(StreamClient(self._real, "kept").create({}))

    def close(self) -> None:
        self._runner.run(StreamClient(self._real, "kept").delete())
        self._runner.run(self._real.__aexit__())
        self._runner.close()

    def run(self, config: dict[str, Any], operations: list[Named]) -> None:
        self._runner.run(self._compare(config, operations))

    def run_at_once(self, sequences_: list[tuple[dict[str, Any], list[Named]]]) -> None:
        async def run() -> None:
            await asyncio.gather(*(self._compare(*one) for one in sequences_))

        self._runner.run(run())

    async def _compare(self, config: dict[str, Any], operations: list[Named]) -> None:
        name = f"cmp{next(self._names)}"
        real, memory = StreamClient(self._real, name), StreamClient(MemoryDriver(), name)
        assert await memory.create(config) == await real.create(config)
        try:
            for place, operation in enumerate(operations):
                expected = await operation.run(real)
                assert await operation.run(memory) == expected, f"operation {place}: {operation}"
            assert await memory.state() == await real.state()
        finally:
            await real.delete()


@pytest.fixture(scope="module")
def comparison(shared_broker: Broker) -> Iterator[Comparison]:
    compared = Comparison(shared_broker.url)
    yield compared
    compared.close()


any_operation = st.one_of(
    publishing(),
    publishing(),
    batches(),
    reading(),
    removing(),
    creating(),
    consuming(),
    consuming(),
    consuming(),
)
unhealthy = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@pytest.mark.parametrize("kind", STREAMS)
@settings(deadline=None, max_examples=EXAMPLES, suppress_health_check=unhealthy)
@given(operations=st.lists(any_operation, max_size=25))
def test_it_answers_as_the_real_broker(comparison: Comparison, kind: str, operations: list[Named]):
    comparison.run(STREAMS[kind], operations)


@st.composite
def expiring(draw: st.DrawFn) -> Named:
    subject = draw(subjects)
    chosen = {"Nats-TTL": "1s"} | draw(st.sampled_from(({}, {"KV-Operation": "PURGE", "Nats-Rollup": "sub"})))
    return Named(f"publish {subject} {chosen}", lambda client: client.publish(subject, b"", chosen))


timed_operation = st.one_of(
    publishing(), expiring(), reading(), consuming("delayed"), consuming("delayed"), consuming("delayed")
)


@st.composite
def timed(draw: st.DrawFn) -> list[Named]:
    """Operations with two pauses, each longer than everything that ends by time."""
    pause = Named(f"sleep {_PAUSE_S} s", lambda client: client.sleep(_PAUSE_S))
    begin = [draw(publishing()), draw(publishing()), draw(creating(ack_wait_s=1.0))]
    parts = [draw(st.lists(timed_operation, min_size=2, max_size=8)) for _ in range(3)]
    return [*begin, *parts[0], pause, *parts[1], pause, *parts[2]]


@settings(
    deadline=None, max_examples=TIMED_EXAMPLES, suppress_health_check=unhealthy, phases=[Phase.generate]
)
@given(drawn=st.lists(timed(), min_size=20, max_size=20))
def test_what_ends_by_time_ends_as_in_the_real_broker(comparison: Comparison, drawn: list[list[Named]]):
    comparison.run_at_once(
        [(STREAMS["bucket" if place % 2 else "events"], one) for place, one in enumerate(drawn)]
    )


@pytest.mark.parametrize("kind", STREAMS)
def test_a_deleted_stream_is_created_again_with_later_sequences(comparison: Comparison, kind: str):
    config = STREAMS[kind]
    created = {"ack_policy": "explicit", "deliver_policy": "all", "ack_wait": _NS}
    operations = [
        Named("publish", lambda client: client.publish("a", b"", {})),
        Named("consumer", lambda client: client.create_consumer("one", created)),
        Named("delete", lambda client: client.delete()),
        Named("delete again", lambda client: client.delete()),
        Named("missing consumer", lambda client: client.consumer("one")),
        Named("missing stream", lambda client: client.state()),
        Named("create", lambda client: client.create({**config, "first_seq": 1000})),
        Named("empty", lambda client: client.state()),
        Named("no consumer", lambda client: client.consumer("one")),
        Named("publish", lambda client: client.publish("a", b"", {})),
        Named("consumer", lambda client: client.create_consumer("one", created)),
        Named("pull", lambda client: client.pull("one", 2)),
        Named("info", lambda client: client.consumer("one")),
    ]
    comparison.run(config, operations)
