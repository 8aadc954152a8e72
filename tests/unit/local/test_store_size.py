"""Sizes of streams, by the space that there is."""

from __future__ import annotations

from muster_bus import StreamSpec
from muster_local.store_size import fit_streams, smallest_size

MIB = 1 << 20
GIB = 1 << 30

EVENTS = StreamSpec(name="EVENTS", subjects=("e.>",), max_bytes=8 * GIB)
DEAD = StreamSpec(name="DEAD", subjects=("d.>",), max_bytes=2 * GIB)


def sizes(available: int, **held: int) -> dict[str, int]:
    fitted = fit_streams((EVENTS, DEAD), available_bytes=available, held=held)
    return {spec.name: spec.max_bytes for spec in fitted}


def test_with_enough_space_the_sizes_are_those_of_the_catalogue() -> None:
    assert sizes(20 * GIB) == {"EVENTS": 8 * GIB, "DEAD": 2 * GIB}
    assert sizes(500 * GIB) == {"EVENTS": 8 * GIB, "DEAD": 2 * GIB}


def test_with_less_the_streams_share_half_of_it_by_their_sizes() -> None:
    assert sizes(10 * GIB) == {"EVENTS": 4 * GIB, "DEAD": GIB}


def test_with_little_each_stream_has_its_smallest_size() -> None:
    assert sizes(0) == {"EVENTS": smallest_size(EVENTS), "DEAD": smallest_size(DEAD)}
    assert smallest_size(EVENTS) == 64 * MIB


def test_a_stream_is_never_smaller_than_what_it_holds() -> None:
    assert sizes(GIB, EVENTS=6 * GIB)["EVENTS"] == 6 * GIB + smallest_size(EVENTS)


def test_a_full_stream_keeps_its_size() -> None:
    assert sizes(GIB, EVENTS=8 * GIB)["EVENTS"] == 8 * GIB


def test_what_the_streams_store_does_not_change_their_sizes() -> None:
    assert sizes(10 * GIB, EVENTS=3 * GIB) == sizes(10 * GIB)
