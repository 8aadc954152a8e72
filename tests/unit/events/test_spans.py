"""The keys of spans name each effect once in a trace, however many jobs share it."""

from __future__ import annotations

from muster_events import spans


def keys_of(job_id: str) -> list[str]:
    by_attempt = [key(job_id, 1) for key in (spans.queued, spans.place, spans.launch, spans.restart)]
    by_generation = [
        spans.resize(job_id, 1, 2),
        *(spans.propose(job_id, 1, 2, why) for why in ("idle", "capacity")),
    ]
    by_replica = [key(job_id, "1/worker-0/0") for key in (spans.launch_of, spans.running)]
    once = [key(job_id) for key in (spans.validate, spans.run, spans.clean_up)]
    return [*by_attempt, *by_generation, *by_replica, *once]


def test_no_two_spans_of_a_trace_have_one_key() -> None:
    keys = keys_of("j-1") + keys_of("j-2")
    assert len(set(keys)) == len(keys)


def test_every_key_names_its_job() -> None:
    assert all(key.startswith("j-1/") for key in keys_of("j-1"))
