"""What happens in a simulated pool, and when."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import pytest

from muster_core.events import Command, JobFinished, JobPlaced, JobWaiting, Outcome, StoredEvent
from muster_core.models import Node, Phase, RestartPolicy, RestartScope, RunPolicy
from muster_core.simulation import SECOND, World, fixed, replay, scalable

if TYPE_CHECKING:
    from conftest import MakeJob, MakeWorld


def story(world: World, job_id: str) -> tuple[float | None, float | None, float | None]:
    """When a job was placed, ran and ended, in seconds."""
    one = world.chronicle.jobs[job_id]
    instants = (one.placed_at, one.running_at, one.finished_at)
    placed, ran, ended = (None if instant is None else instant / SECOND for instant in instants)
    return placed, ran, ended


def test_a_job_is_placed_at_once_launches_computes_and_ends(world: MakeWorld, job: MakeJob) -> None:
    pool = world(launch_us=2 * SECOND)
    pool.submit(job("a", 4), at=5 * SECOND, work=fixed(100))
    pool.run()
    assert story(pool, "a") == (5, 7, 107)
    assert pool.chronicle.jobs["a"].outcome is Outcome.SUCCEEDED
    assert pool.chronicle.jobs["a"].gpu_us == 4 * 102 * SECOND
    assert pool.record("a") is None
    assert pool.invalid == []


def test_a_gang_waits_for_room_and_those_behind_it_do_not(world: MakeWorld, job: MakeJob) -> None:
    pool = world(launch_us=0, stop_us=0)
    pool.submit(job("a", 6), at=0, work=fixed(60))
    pool.submit(job("b", 3), at=SECOND, work=fixed(10))
    pool.submit(job("c", 2), at=2 * SECOND, work=fixed(10))
    pool.run()
    assert story(pool, "c") == (2, 2, 12)
    assert story(pool, "b") == (60, 60, 70)
    assert pool.chronicle.jobs["b"].waited_us == 59 * SECOND


def test_it_can_be_stopped_and_looked_at_on_the_way(world: MakeWorld, job: MakeJob) -> None:
    pool = world()
    pool.submit(job("a", 6, servers=1), work=fixed(60))
    pool.run(until=10 * SECOND)
    assert pool.now == 10 * SECOND
    assert pool.where("a") == {"n1": {"ps": (0,), "worker": (0, 1, 2, 3)}, "n2": {"worker": (4, 5)}}
    record = pool.record("a")
    assert record is not None
    assert record.phase is Phase.RUNNING
    pool.run()
    assert story(pool, "a") == (0, 2, 62)


def test_parameter_servers_leave_when_the_workers_are_done(world: MakeWorld, job: MakeJob) -> None:
    pool = world(stop_us=3 * SECOND)
    pool.submit(job("a", 2, servers=1), work=fixed(10))
    pool.run(until=13 * SECOND)
    record = pool.record("a")
    assert record is not None
    assert record.terminal
    assert not record.settled
    pool.run()
    assert pool.record("a") is None
    assert pool.now == 15 * SECOND


def test_work_is_done_sooner_by_more_workers_as_amdahl_says(world: MakeWorld, job: MakeJob) -> None:
    pool = world(launch_us=0)
    pool.submit(job("one", 1), work=scalable(100, serial=200))
    pool.submit(job("six", 6), work=scalable(100, serial=200))
    pool.run()
    assert story(pool, "one")[2] == 100
    assert story(pool, "six")[2] == pytest.approx(100 * (1 + 0.2 * 5) / 6)


def test_a_size_by_hand_changes_how_fast_it_goes(world: MakeWorld, job: MakeJob) -> None:
    pool = world(launch_us=0, stop_us=0)
    pool.submit(job("a", 1, floor=1, most=4), work=scalable(100, serial=0))
    pool.command("a", Command.SCALE, at=20 * SECOND, role="worker", target=4)
    pool.command("a", Command.SCALE, at=30 * SECOND, role="worker", target=2)
    pool.run()
    assert story(pool, "a")[2] == 20 + 10 + 20
    assert pool.chronicle.jobs["a"].resizes == 2
    assert pool.chronicle.jobs["a"].largest == 4


def test_a_change_of_size_may_cost_a_pause(world: MakeWorld, job: MakeJob) -> None:
    pool = world(launch_us=0, stop_us=0, pause_us=5 * SECOND)
    pool.submit(job("a", 1, floor=1, most=4), work=scalable(100, serial=0))
    pool.command("a", Command.SCALE, at=20 * SECOND, role="worker", target=4)
    pool.run()
    assert story(pool, "a")[2] == 20 + 5 + 20


def test_a_gang_whose_node_is_lost_starts_again_elsewhere_from_its_checkpoint(
    world: MakeWorld, job: MakeJob, node: Callable[..., Node]
) -> None:
    pool = world(node("n1"), node("n2"), launch_us=0, stop_us=0, checkpoint_us=30 * SECOND)
    again = job(
        "a", 3, restart_policy=RestartPolicy.ON_FAILURE, run=RunPolicy(restart_scope=RestartScope.GANG)
    )
    pool.submit(again, work=fixed(100))
    pool.node_down("n1", at=40 * SECOND)
    pool.run(until=60 * SECOND)
    assert set(pool.where("a")) == {"n2"}
    pool.run()
    first, second = (one.at for one in pool.journal.events if isinstance(one.event, JobPlaced))
    again_after = (second - first) / SECOND
    assert again_after >= 40
    assert story(pool, "a")[2] == again_after + 70
    told = pool.chronicle.jobs["a"]
    assert told.restarts + told.evictions == 1


def test_a_node_that_comes_lets_those_start_who_waited_for_it(
    world: MakeWorld, job: MakeJob, node: Callable[..., Node]
) -> None:
    pool = world(node("n1"), launch_us=0)
    pool.submit(job("a", 8), work=fixed(10))
    pool.node_up(node("n2"), at=100 * SECOND)
    pool.run()
    assert story(pool, "a") == (100, 100, 110)


def test_a_replica_that_fails_ends_a_job_without_restarts(world: MakeWorld, job: MakeJob) -> None:
    pool = world()
    pool.submit(job("a", 2), work=fixed(1000))
    pool.fail("a", "worker", 1, at=50 * SECOND, exit_code=3)
    pool.run()
    assert pool.chronicle.jobs["a"].outcome is Outcome.FAILED
    assert story(pool, "a")[2] == 50


def test_a_replica_that_fails_is_started_again_and_the_others_wait_for_it(
    world: MakeWorld, job: MakeJob
) -> None:
    pool = world(launch_us=0)
    again = job(
        "a", 2, restart_policy=RestartPolicy.ON_FAILURE, run=RunPolicy(restart_scope=RestartScope.REPLICA)
    )
    pool.submit(again, work=fixed(100))
    pool.fail("a", "worker", 1, at=50 * SECOND)
    pool.run()
    assert story(pool, "a")[2] == 101


def test_deadlines_and_cancelling_count_in_virtual_time(world: MakeWorld, job: MakeJob) -> None:
    pool = world()
    pool.submit(job("late", 2, run=RunPolicy(active_deadline_s=30)))
    pool.submit(job("unwanted", 2))
    pool.command("unwanted", Command.CANCEL, at=3600 * SECOND)
    pool.run()
    assert pool.chronicle.jobs["late"].outcome is Outcome.TIMED_OUT
    assert story(pool, "late")[2] == 32
    assert pool.chronicle.jobs["unwanted"].outcome is Outcome.CANCELLED


def test_a_gang_that_starves_gets_a_reservation_and_starts_within_it(world: MakeWorld, job: MakeJob) -> None:
    pool = world(launch_us=0, stop_us=0)
    for number in range(60):
        pool.submit(job(f"small-{number}", 2), at=number * 10 * SECOND, work=fixed(45))
    pool.submit(job("whole", 8), at=100 * SECOND, work=fixed(10))
    pool.run()
    placed = story(pool, "whole")[0]
    assert placed is not None
    assert placed <= 100 + 30 + 45


def test_the_same_world_twice_says_the_same(world: MakeWorld, job: MakeJob) -> None:
    def run() -> list[object]:
        pool = world()
        for number in range(40):
            pool.submit(job(f"j{number}", 1 + number % 7), at=number * 3 * SECOND, work=fixed(20 + number))
        pool.run()
        return list(pool.journal.entries)

    assert run() == run()


def test_its_journal_decides_alike_when_it_is_replayed(world: MakeWorld, job: MakeJob) -> None:
    pool = world(renewals=True)
    for number in range(40):
        pool.submit(job(f"j{number}", 1 + number % 7), at=number * 3 * SECOND, work=fixed(20 + number))
    pool.run()
    replayed = replay(pool.journal.entries, pool=pool.settings.pool)
    assert replayed.divergences == ()
    said = [one.event for one in pool.journal.events]
    assert replayed.decisions == sum(isinstance(event, JobPlaced | JobWaiting) for event in said)
    assert replayed.decisions > 40


def test_a_replay_says_where_a_stream_was_changed(world: MakeWorld, job: MakeJob) -> None:
    pool = world()
    pool.submit(job("a", 6), work=fixed(20))
    pool.submit(job("b", 6), at=5 * SECOND, work=fixed(20))
    pool.run()
    stream = [
        entry for entry in pool.journal.entries if not isinstance(getattr(entry, "event", None), JobPlaced)
    ]
    replayed = replay(stream, pool=pool.settings.pool)
    assert replayed.divergences[0].said is None
    assert [job_id for job_id, _ in replayed.divergences[0].decided] == ["a"]


def test_a_decision_may_say_what_the_one_before_left_unsaid_and_not_know_the_latest_events(
    world: MakeWorld, job: MakeJob
) -> None:
    pool = world()
    pool.submit(job("a", 8), work=fixed(20))
    for number, name in enumerate("bce"):
        pool.submit(job(name, 5), at=(1 + number) * SECOND, work=fixed(20))
    pool.run()
    entries = list(pool.journal.entries)
    events = pool.journal.events
    waits = {one.job_id: one for one in events if isinstance(one.event, JobWaiting)}
    (end,) = (one for one in events if isinstance(one.event, JobFinished) and one.job_id == "a")
    # The first decision says why b waits and not why c does; the second says it of c and e, before it has read that a has ended.
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
    assert replay(numbered, pool=pool.settings.pool).divergences == ()
