"""The checker finds every violation in made-up evidence, and none in evidence without one."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from cpu_delay import CpuDelay
from invariants import (
    AcknowledgedJob,
    Evidence,
    Figure,
    Invariant,
    JobState,
    Leftovers,
    ProcessUse,
    StatusSample,
    check,
)
from ledger import Ledger, Run, processes_of

GANG = AcknowledgedJob(job_id="j-gang", roles={"worker": (2, 2)}, cpu=1000)


def run(
    index: int,
    started: float,
    ended: float | None,
    *,
    attempt: int = 1,
    restart: int = 0,
    code: int | None = 0,
    node: str = "n1",
) -> Run:
    """A run of a worker of the gang."""
    return Run(
        job_id=GANG.job_id,
        role="worker",
        index=index,
        attempt=attempt,
        restart=restart,
        node=node,
        pid=100 + index,
        started=started,
        alive_at=ended,
        ended=ended,
        exit_code=code,
    )


WHOLE = (run(0, 1.0, 30.0), run(1, 1.2, 30.1))
IDLE = {"scheduler": ProcessUse(60.0, 20)}
SOUND = Evidence(
    runs=WHOLE,
    acknowledged=(GANG,),
    states={GANG.job_id: JobState(phase="SUCCEEDED")},
    samples=(StatusSample(at=5.0, job_id=GANG.job_id, revision=7, stored=7, age_s=0.0),),
    nodes={"n1": 2000},
    before=IDLE,
    after={"scheduler": ProcessUse(70.0, 22)},
    recovery_s=2.0,
)


def found_in(**changes: object) -> list[Invariant]:
    """Return the invariants that do not hold once the sound evidence is changed."""
    return [violation.invariant for violation in check(msgspec.structs.replace(SOUND, **changes))]


def test_sound_evidence_has_no_violation() -> None:
    assert check(SOUND) == []


@pytest.mark.parametrize(
    "states",
    [
        {},
        {GANG.job_id: JobState(phase="FAILED")},
        {GANG.job_id: JobState(phase="QUEUED")},
        {GANG.job_id: JobState(phase="CANCELLED")},
    ],
    ids=["missing", "failed", "never-ended", "cancelled"],
)
def test_an_acknowledged_job_without_its_outcome_is_lost(states: dict[str, JobState]) -> None:
    assert found_in(states=states) == [Invariant.ACKNOWLEDGED]


@pytest.mark.parametrize(
    "runs",
    [(), WHOLE[:1], (WHOLE[0], run(1, 1.2, 30.1, code=None))],
    ids=["no-run", "one-of-two", "killed"],
)
def test_a_success_that_the_ledger_lacks_is_lost(runs: tuple[Run, ...]) -> None:
    assert Invariant.ACKNOWLEDGED in found_in(runs=runs)


@pytest.mark.parametrize(
    "second",
    [
        run(0, 40.0, 50.0, restart=1),
        run(0, 40.0, 50.0),
    ],
    ids=["restarted-after-success", "same-run-again"],
)
def test_a_replica_that_runs_again_after_its_success_runs_twice(second: Run) -> None:
    assert found_in(runs=(*WHOLE, second)) == [Invariant.ONCE]


def test_a_replica_that_begins_while_it_runs_on_another_node_runs_twice() -> None:
    other = run(0, 10.0, 30.0, attempt=2, node="n2")
    assert Invariant.ONCE in found_in(runs=(*WHOLE, other), nodes={"n1": 2000, "n2": 2000})


def test_a_replica_may_run_again_after_it_failed() -> None:
    job = msgspec.structs.replace(GANG, may_restart=True)
    first = run(0, 0.5, 0.9, code=1)
    assert found_in(runs=(first, run(0, 1.0, 30.0, restart=1), WHOLE[1]), acknowledged=(job,)) == []


def test_a_gang_runs_partially_if_a_replica_begins_long_after_the_others() -> None:
    assert found_in(runs=(WHOLE[0], run(1, 20.0, 30.0))) == [Invariant.WHOLE]


def test_a_gang_runs_partially_if_a_replica_never_begins() -> None:
    assert Invariant.WHOLE in found_in(runs=WHOLE[:1])


def test_a_gang_runs_partially_if_a_replica_goes_on_long_after_another_was_killed() -> None:
    assert Invariant.WHOLE in found_in(runs=(WHOLE[0], run(1, 1.2, 5.0, code=None)))


def test_a_gang_that_shrinks_is_whole() -> None:
    elastic = msgspec.structs.replace(GANG, roles={"worker": (1, 2)})
    shrunk = (WHOLE[0], run(1, 1.2, 5.0, code=143))
    assert found_in(acknowledged=(elastic,), runs=shrunk) == []


def test_an_answer_that_lacks_an_old_event_is_stale() -> None:
    stale = StatusSample(at=5.0, job_id=GANG.job_id, revision=6, stored=7, age_s=3.0)
    assert found_in(samples=(*SOUND.samples, stale)) == [Invariant.FRESH]


def test_an_answer_may_be_late_by_the_time_in_which_the_services_had_no_cpu() -> None:
    late = StatusSample(at=5.0, job_id=GANG.job_id, revision=6, stored=7, age_s=3.0, waited_s=2.0)
    assert found_in(samples=(late,)) == []
    assert found_in(samples=(msgspec.structs.replace(late, waited_s=1.9),)) == [Invariant.FRESH]


def test_a_status_that_the_machine_may_have_delayed_for_long_is_not_judged() -> None:
    late = StatusSample(at=5.0, job_id=GANG.job_id, revision=6, stored=7, age_s=60.0, waited_s=2.1)
    assert found_in(samples=(late,)) == []


async def test_the_time_in_which_a_process_has_no_cpu_is_seen_and_that_in_which_it_is_stopped_is_not() -> (
    None
):
    cpus = os.cpu_count() or 1
    spin = [sys.executable, "-S", "-c", "while True: pass"]
    busy = [await asyncio.create_subprocess_exec(*spin) for _ in range(3 * cpus)]
    try:
        async with CpuDelay.watching(lambda: [busy[0].pid]) as cpu_delay:
            began = time.monotonic()
            await asyncio.sleep(1.5)
            busy[0].send_signal(signal.SIGSTOP)
            await asyncio.sleep(0.5)
            stopped = time.monotonic()
            await asyncio.sleep(1)
            assert cpu_delay.waited_s(began, stopped) > 0.1
            assert cpu_delay.waited_s(stopped, time.monotonic()) == 0
    finally:
        for process in busy:
            process.kill()
            await process.wait()


def test_a_job_that_an_answer_lacks_is_stale() -> None:
    missing = StatusSample(at=5.0, job_id=GANG.job_id, revision=0, stored=7, age_s=3.0)
    assert found_in(samples=(missing,)) == [Invariant.FRESH]


@pytest.mark.parametrize(
    "state", [JobState(phase="FAILED", failures=1), JobState(phase="SUCCEEDED", attempt=2)]
)
def test_a_job_that_the_fault_hits_may_fail_and_restart(state: JobState) -> None:
    killed = (WHOLE[0], run(1, 1.2, 5.0, code=None))
    hit = frozenset({GANG.job_id})
    assert found_in(hit=hit, states={GANG.job_id: state}, runs=killed) == []
    assert found_in(hit=frozenset({"j-other"}), states={GANG.job_id: state}, runs=killed) != []


@pytest.mark.parametrize("states", [{}, {GANG.job_id: JobState(phase="RUNNING")}])
def test_a_job_that_the_fault_hits_must_end(states: dict[str, JobState]) -> None:
    assert found_in(hit=frozenset({GANG.job_id}), states=states) == [Invariant.ACKNOWLEDGED]


def test_the_replicas_of_jobs_that_may_be_lost_count_on_their_nodes() -> None:
    other = msgspec.structs.replace(run(0, 2.0, 20.0), job_id="j-forgotten")
    forgotten = msgspec.structs.replace(GANG, job_id="j-forgotten")
    assert found_in(runs=(*WHOLE, other), forgotten=(forgotten,)) == [Invariant.CAPACITY]


def test_replicas_beyond_the_capacity_of_a_node_overcommit_it() -> None:
    assert found_in(nodes={"n1": 1500}) == [Invariant.CAPACITY]


def test_a_replica_on_an_unknown_node_overcommits_it() -> None:
    assert found_in(nodes={"n2": 2000}) == [Invariant.CAPACITY]


def test_a_replica_that_begins_when_another_ends_overcommits_nothing() -> None:
    wide = msgspec.structs.replace(GANG, job_id="j-wide", roles={"worker": (1, 1)}, cpu=2000)
    after = msgspec.structs.replace(run(0, 30.1, 31.0), job_id="j-wide")
    states = {**SOUND.states, "j-wide": JobState(phase="SUCCEEDED")}
    assert found_in(acknowledged=(GANG, wide), runs=(*WHOLE, after), states=states) == []


def test_a_killed_replica_counts_until_it_was_last_seen() -> None:
    wide = msgspec.structs.replace(GANG, job_id="j-wide", roles={"worker": (1, 1)}, cpu=2000)
    killed = msgspec.structs.replace(run(0, 1.0, 9.5, code=None), job_id="j-wide", alive_at=9.0)
    states = {**SOUND.states, "j-wide": JobState(phase="CANCELLED")}
    wide = msgspec.structs.replace(wide, outcome="CANCELLED")
    for alive_at, found in ((9.0, []), (9.4, [Invariant.CAPACITY])):
        seen = msgspec.structs.replace(killed, alive_at=alive_at)
        later = [msgspec.structs.replace(one, started=9.2) for one in WHOLE]
        assert found_in(acknowledged=(GANG, wide), runs=(seen, *later), states=states) == found


@pytest.mark.parametrize(
    "state",
    [
        JobState(phase="SUCCEEDED", failures=1),
        JobState(phase="SUCCEEDED", evictions=1),
    ],
)
def test_a_job_that_failed_or_was_evicted_by_a_fault_of_the_services_was_disturbed(state: JobState) -> None:
    assert found_in(states={GANG.job_id: state}) == [Invariant.UNDISTURBED]


@pytest.mark.parametrize("kind", ["processes", "folders", "leases", "consumers", "records"])
def test_what_is_left_after_the_deletion_of_all_jobs_is_reported(kind: str) -> None:
    assert found_in(leftovers=Leftovers(**{kind: ("one",)})) == [Invariant.CLEAN]


@pytest.mark.parametrize(
    "after",
    [{}, {"scheduler": ProcessUse(120.0, 20)}, {"scheduler": ProcessUse(60.0, 60)}],
    ids=["gone", "memory", "descriptors"],
)
def test_a_process_that_is_gone_or_has_grown_is_reported(after: dict[str, ProcessUse]) -> None:
    assert found_in(after=after) == [Invariant.RESOURCES]


def test_a_process_that_ended_although_the_fault_did_not_concern_it_is_reported() -> None:
    assert found_in(restarted=("scaler",)) == [Invariant.STEADY]


@pytest.mark.parametrize("recovery_s", [None, 90.0])
def test_a_system_that_ends_no_new_job_in_time_is_reported(recovery_s: float | None) -> None:
    assert found_in(recovery_s=recovery_s) == [Invariant.RECOVERY]


@pytest.mark.parametrize(
    ("value", "found"), [(250.0, []), (251.0, [Invariant.FIGURES]), (float("nan"), [Invariant.FIGURES])]
)
def test_a_figure_beyond_its_bound_is_reported(value: float, found: list[Invariant]) -> None:
    assert found_in(figures=(Figure("p99 ms", value, 250.0),)) == found


def environment(folder: Path) -> dict[str, str]:
    """The environment of a replica whose run folder is `folder`."""
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text(json.dumps({"node": "n7"}))
    identity = {"JOB_ID": "j-one", "ROLE": "worker", "INDEX": "3", "ATTEMPT": "2", "GENERATION": "4"}
    return {f"MUSTER_{name}": value for name, value in identity.items()} | {
        "MUSTER_PROGRESS_FILE": str(folder / "progress.json")
    }


def test_a_replica_records_who_it_is_and_how_it_ended(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    env = environment(tmp_path / "jobs/j-one/2/worker-3.1")
    assert subprocess.run(ledger.command(0, "exit=7"), env=env, check=False).returncode == 7

    (seen,) = ledger.runs()
    identity = (seen.job_id, seen.role, seen.index, seen.attempt, seen.restart, seen.node)
    assert identity == ("j-one", "worker", 3, 2, 1, "n7")
    assert seen.exit_code == 7
    assert seen.ended is not None
    assert seen.ended >= seen.started


def test_a_line_of_the_ledger_that_is_being_written_is_read_once_it_is_whole(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    env = environment(tmp_path / "jobs/j-one/2/worker-3.1")
    subprocess.run(ledger.command(0), env=env, check=True)
    start, end = ledger.path.read_bytes().splitlines(keepends=True)
    ledger.path.write_bytes(start + end[:-10])
    ledger = Ledger(ledger.path)
    assert [run.exit_code for run in ledger.runs()] == [None]

    ledger.path.write_bytes(start + end)
    assert [run.exit_code for run in ledger.runs()] == [0]


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGKILL, None)])
def test_a_replica_that_is_stopped_or_killed_has_an_end(
    tmp_path: Path, sent: signal.Signals, code: int | None
) -> None:
    ledger = Ledger(tmp_path / "ledger")
    env = environment(tmp_path / "jobs/j-one/2/worker-3.1")
    with subprocess.Popen(ledger.command(600, "flood=1"), env=env, stdout=subprocess.PIPE) as process:
        # The output comes after the start is recorded and the signal handler set.
        assert process.stdout is not None
        assert len(process.stdout.read(1 << 20)) == 1 << 20
        assert processes_of(ledger.path) == [f"pid {process.pid}"]
        os.kill(process.pid, sent)
    ledger.observe()

    (seen,) = ledger.runs()
    assert seen.exit_code == code
    assert seen.ended is not None
    assert processes_of(ledger.path) == []
