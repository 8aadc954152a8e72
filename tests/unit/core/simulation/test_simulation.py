"""What happens in a simulated pool, and when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from muster_core.events import Command, JobPlaced, Outcome
from muster_core.models import Node, Phase, RestartPolicy, RestartScope, RunPolicy
from muster_core.simulation import SECOND, Simulation, fixed, scalable

if TYPE_CHECKING:
    from conftest import MakeJob, MakeSimulation


def times_of(simulated: Simulation, job_id: str) -> tuple[float | None, float | None, float | None]:
    """When a job was placed, ran and ended, in seconds."""
    one = simulated.recorder.jobs[job_id]
    instants = (one.placed_at, one.running_at, one.finished_at)
    placed, ran, ended = (None if instant is None else instant / SECOND for instant in instants)
    return placed, ran, ended


def test_a_job_is_placed_launches_computes_and_ends(simulation: MakeSimulation, job: MakeJob) -> None:
    simulated = simulation(launch_us=2 * SECOND)
    simulated.submit(job("a", 4), at=5 * SECOND, work=fixed(100))
    simulated.run()
    assert times_of(simulated, "a") == (5, 7, 107)
    assert simulated.recorder.jobs["a"].outcome is Outcome.SUCCEEDED
    assert simulated.recorder.jobs["a"].gpu_us == 4 * 102 * SECOND
    assert simulated.record("a") is None
    assert simulated.invalid_transitions == []


def test_a_gang_waits_for_capacity_while_later_jobs_pass_it(simulation: MakeSimulation, job: MakeJob) -> None:
    simulated = simulation(launch_us=0, stop_us=0)
    simulated.submit(job("a", 6), at=0, work=fixed(60))
    simulated.submit(job("b", 3), at=SECOND, work=fixed(10))
    simulated.submit(job("c", 2), at=2 * SECOND, work=fixed(10))
    simulated.run()
    assert times_of(simulated, "c") == (2, 2, 12)
    assert times_of(simulated, "b") == (60, 60, 70)
    assert simulated.recorder.jobs["b"].waited_us == 59 * SECOND


def test_a_simulation_can_be_paused_and_continued(simulation: MakeSimulation, job: MakeJob) -> None:
    simulated = simulation()
    simulated.submit(job("a", 6, servers=1), work=fixed(60))
    simulated.run(until=10 * SECOND)
    assert simulated.now == 10 * SECOND
    record = simulated.record("a")
    assert record is not None
    assert record.phase is Phase.RUNNING
    assert Counter(one.node for one in record.gang()) == {"n1": 5, "n2": 2}
    simulated.run()
    assert times_of(simulated, "a") == (0, 2, 62)


def test_parameter_servers_are_removed_when_the_workers_are_done(
    simulation: MakeSimulation, job: MakeJob
) -> None:
    simulated = simulation(stop_us=3 * SECOND)
    simulated.submit(job("a", 2, servers=1), work=fixed(10))
    simulated.run(until=13 * SECOND)
    record = simulated.record("a")
    assert record is not None
    assert record.terminal
    assert not record.settled
    simulated.run()
    assert simulated.record("a") is None
    assert simulated.now == 15 * SECOND


def test_more_workers_are_faster_by_amdahls_law(simulation: MakeSimulation, job: MakeJob) -> None:
    simulated = simulation(launch_us=0)
    simulated.submit(job("one", 1), work=scalable(100, serial=200))
    simulated.submit(job("six", 6), work=scalable(100, serial=200))
    simulated.run()
    assert times_of(simulated, "one")[2] == 100
    assert times_of(simulated, "six")[2] == pytest.approx(100 * (1 + 0.2 * 5) / 6)


def test_a_manual_resize_changes_the_speed(simulation: MakeSimulation, job: MakeJob) -> None:
    simulated = simulation(launch_us=0, stop_us=0)
    simulated.submit(job("a", 1, floor=1, most=4), work=scalable(100, serial=0))
    simulated.command("a", Command.SCALE, at=20 * SECOND, role="worker", target=4)
    simulated.command("a", Command.SCALE, at=30 * SECOND, role="worker", target=2)
    simulated.run()
    assert times_of(simulated, "a")[2] == 20 + 10 + 20
    assert simulated.recorder.jobs["a"].resizes == 2
    assert simulated.recorder.jobs["a"].largest == 4


def test_a_resize_may_cost_a_pause(simulation: MakeSimulation, job: MakeJob) -> None:
    simulated = simulation(launch_us=0, stop_us=0, pause_us=5 * SECOND)
    simulated.submit(job("a", 1, floor=1, most=4), work=scalable(100, serial=0))
    simulated.command("a", Command.SCALE, at=20 * SECOND, role="worker", target=4)
    simulated.run()
    assert times_of(simulated, "a")[2] == 20 + 5 + 20


def test_a_gang_that_loses_its_node_restarts_elsewhere_from_its_checkpoint(
    simulation: MakeSimulation, job: MakeJob, node: Callable[..., Node]
) -> None:
    simulated = simulation(node("n1"), node("n2"), launch_us=0, stop_us=0, checkpoint_us=30 * SECOND)
    again = job(
        "a", 3, restart_policy=RestartPolicy.ON_FAILURE, run=RunPolicy(restart_scope=RestartScope.GANG)
    )
    simulated.submit(again, work=fixed(100))
    simulated.node_down("n1", at=40 * SECOND)
    simulated.run(until=60 * SECOND)
    record = simulated.record("a")
    assert record is not None
    assert {one.node for one in record.gang()} == {"n2"}
    simulated.run()
    first, second = (entry.at for entry in simulated.journal if isinstance(entry.event, JobPlaced))
    again_after = (second - first) / SECOND
    assert again_after >= 40
    assert times_of(simulated, "a")[2] == again_after + 70
    timeline = simulated.recorder.jobs["a"]
    assert timeline.restarts + timeline.evictions == 1


def test_a_new_node_starts_jobs_that_wait_for_capacity(
    simulation: MakeSimulation, job: MakeJob, node: Callable[..., Node]
) -> None:
    simulated = simulation(node("n1"), launch_us=0)
    simulated.submit(job("a", 8), work=fixed(10))
    simulated.node_up(node("n2"), at=100 * SECOND)
    simulated.run()
    assert times_of(simulated, "a") == (100, 100, 110)


def test_a_failed_replica_ends_a_job_without_restarts(simulation: MakeSimulation, job: MakeJob) -> None:
    simulated = simulation()
    simulated.submit(job("a", 2), work=fixed(1000))
    simulated.fail_replica("a", "worker", 1, at=50 * SECOND, exit_code=3)
    simulated.run()
    assert simulated.recorder.jobs["a"].outcome is Outcome.FAILED
    assert times_of(simulated, "a")[2] == 50


def test_a_failed_replica_is_restarted_and_the_others_wait_for_it(
    simulation: MakeSimulation, job: MakeJob
) -> None:
    simulated = simulation(launch_us=0)
    again = job(
        "a", 2, restart_policy=RestartPolicy.ON_FAILURE, run=RunPolicy(restart_scope=RestartScope.REPLICA)
    )
    simulated.submit(again, work=fixed(100))
    simulated.fail_replica("a", "worker", 1, at=50 * SECOND)
    simulated.run()
    assert times_of(simulated, "a")[2] == 101


def test_deadlines_and_cancellation_use_virtual_time(simulation: MakeSimulation, job: MakeJob) -> None:
    simulated = simulation()
    simulated.submit(job("late", 2, run=RunPolicy(active_deadline_s=30)))
    simulated.submit(job("unwanted", 2))
    simulated.command("unwanted", Command.CANCEL, at=3600 * SECOND)
    simulated.run()
    assert simulated.recorder.jobs["late"].outcome is Outcome.TIMED_OUT
    assert times_of(simulated, "late")[2] == 32
    assert simulated.recorder.jobs["unwanted"].outcome is Outcome.CANCELLED


def test_a_starved_gang_gets_a_reservation_and_starts_within_it(
    simulation: MakeSimulation, job: MakeJob
) -> None:
    simulated = simulation(launch_us=0, stop_us=0)
    for number in range(60):
        simulated.submit(job(f"small-{number}", 2), at=number * 10 * SECOND, work=fixed(45))
    simulated.submit(job("whole", 8), at=100 * SECOND, work=fixed(10))
    simulated.run()
    placed = times_of(simulated, "whole")[0]
    assert placed is not None
    assert placed <= 100 + 30 + 45
