"""Events of every published version stay readable, and current events are encoded as before."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec
import pytest

from muster_bus.messages import Incoming
from muster_core.models import JobRecord
from muster_events.catalogue import EVENTS
from muster_events.codec import decode_record, encode_record, read_job_event, read_pool_event
from muster_events.subjects import job_subject

HERE = Path(__file__).parent
_samples = runpy.run_path(str(HERE / "samples.py"))
SAMPLES = cast("dict[str, msgspec.Struct]", _samples["SAMPLES"])
encode = cast("Callable[[msgspec.Struct], bytes]", _samples["encode"])

FILES = sorted((HERE / "v1").glob("*.json"))
JOB_EVENTS = {spec.name for spec in EVENTS if "{job_id}" in spec.subject}


def read(name: str, data: bytes) -> msgspec.Struct:
    """Decode ``data`` as the services do."""
    kind = name.partition(".")[0]
    if kind == JobRecord.__name__:
        return decode_record(data)
    if kind in JOB_EVENTS:
        incoming = Incoming(subject=job_subject("j-abcdefghijklmnop", kind), data=data, stream_sequence=1)
        return read_job_event(incoming).event
    return read_pool_event(data)


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_stored_documents_are_still_read(path: Path) -> None:
    assert read(path.stem, path.read_bytes()) == SAMPLES[path.stem]


@pytest.mark.parametrize("name", SAMPLES)
def test_current_documents_equal_the_stored_ones(name: str) -> None:
    path = HERE / "v1" / f"{name}.json"

    assert path.read_bytes() == encode(SAMPLES[name]), "published events never change: add a sample instead"


def test_every_event_and_the_record_has_a_file() -> None:
    kinds = {path.stem.partition(".")[0] for path in FILES}

    assert kinds == {spec.name for spec in EVENTS} | {JobRecord.__name__}
    assert {path.stem for path in FILES} == set(SAMPLES)


def test_the_samples_set_every_field() -> None:
    """A field at its default is left out of the file, so only a sample that sets it pins its name."""
    left_out = {
        f"{kind}.{field.name}"
        for kind, samples in _by_kind().items()
        for field in msgspec.structs.fields(samples[0])
        if all(field.encode_name not in msgspec.json.decode(encode(sample)) for sample in samples)
    }

    assert left_out == set()


def test_the_record_in_its_bucket_is_the_compact_form_of_the_file() -> None:
    data = (HERE / "v1" / "JobRecord.json").read_bytes()

    assert msgspec.json.format(encode_record(decode_record(data)), indent=2) + b"\n" == data


def _by_kind() -> dict[str, list[msgspec.Struct]]:
    kinds: dict[str, list[msgspec.Struct]] = {}
    for sample in SAMPLES.values():
        kinds.setdefault(type(sample).__name__, []).append(sample)
    return kinds
