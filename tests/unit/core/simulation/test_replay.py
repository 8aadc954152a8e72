"""A replay repeats the scheduler's decisions and reports every difference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from muster_core.events import JobFinished, JobPlaced, JobWaiting, StoredEvent
from muster_core.simulation import SECOND, fixed, replay

if TYPE_CHECKING:
    from conftest import MakeJob, MakeSimulation


def test_a_replayed_journal_gives_the_same_decisions(simulation: MakeSimulation, job: MakeJob) -> None:
    simulated = simulation(renewals=True)
    for number in range(40):
        simulated.submit(job(f"j{number}", 1 + number % 7), at=number * 3 * SECOND, work=fixed(20 + number))
    simulated.run()
    replayed = replay(simulated.journal, pool=simulated.settings.pool)
    assert replayed.divergences == ()
    events = [entry.event for entry in simulated.journal]
    assert replayed.decisions == sum(isinstance(event, JobPlaced | JobWaiting) for event in events)
    assert replayed.decisions > 40


def test_a_missing_decision_is_a_divergence(simulation: MakeSimulation, job: MakeJob) -> None:
    simulated = simulation()
    simulated.submit(job("a", 6), work=fixed(20))
    simulated.submit(job("b", 6), at=5 * SECOND, work=fixed(20))
    simulated.run()
    stream = [entry for entry in simulated.journal if not isinstance(entry.event, JobPlaced)]
    replayed = replay(stream, pool=simulated.settings.pool)
    assert replayed.divergences[0].published is None
    assert [job_id for job_id, _ in replayed.divergences[0].decided] == ["a"]


def test_a_decision_may_complete_the_one_before_and_precede_the_latest_events(
    simulation: MakeSimulation, job: MakeJob
) -> None:
    simulated = simulation()
    simulated.submit(job("a", 8), work=fixed(20))
    for number, name in enumerate("bce"):
        simulated.submit(job(name, 5), at=(1 + number) * SECOND, work=fixed(20))
    simulated.run()
    entries = simulated.journal
    events = [entry for entry in entries if isinstance(entry, StoredEvent)]
    waits = {one.job_id: one for one in events if isinstance(one.event, JobWaiting)}
    (end,) = (one for one in events if isinstance(one.event, JobFinished) and one.job_id == "a")
    # The first decision publishes why b waits but not why c does; the second publishes it for c and e, before it reads the end of a.
    b, c, after = (entries.index(one) for one in (waits["b"], waits["c"], end))
    stream = [
        *entries[:b],
        *entries[b + 1 : c],
        waits["b"],
        *(one for one in entries[c + 1 : after + 1] if one is not waits["e"]),
        *(msgspec.structs.replace(one, at=end.at) for one in (waits["c"], waits["e"])),
        *entries[after + 1 :],
    ]
    numbered = [
        msgspec.structs.replace(one, sequence=number) if isinstance(one, StoredEvent) else one
        for number, one in enumerate(stream, 1)
    ]
    assert replay(numbered, pool=simulated.settings.pool).divergences == ()
