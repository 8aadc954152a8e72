"""Files of an MPI job, remote commands, and the start order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from muster_core.frameworks import (
    ConfigFile,
    accepts_remote_commands,
    effective_template,
    files,
    start_order_reason,
    starts_after,
)
from muster_core.models import (
    Framework,
    FrameworkOptions,
    Job,
    JobRecord,
    Reason,
    ReplicaState,
    Resources,
    Role,
    Template,
)

if TYPE_CHECKING:
    from .conftest import GangBuilder

MPI = (Framework.MPI, Framework.HOROVOD)
S = ReplicaState


def mpi(gang: GangBuilder, workers: int, most: int | None = None, **rest: object) -> Job:
    return gang.job(("launcher", 1, 1), ("worker", workers, most or workers), framework=Framework.MPI, **rest)


def text(record: JobRecord, job: Job, name: str) -> str:
    return files(record, job, remote_shell="#!/bin/sh\n")[name].content.decode()


def test_the_hostfile_has_the_replica_name_of_every_worker(gang: GangBuilder) -> None:
    job = mpi(gang, 2)

    assert text(gang.gang(job), job, "hostfile") == "demo-worker-0 slots=1\ndemo-worker-1 slots=1\n"


@pytest.mark.parametrize(("given", "gpu", "slots"), [("4", 0, 4), ("", 2000, 2), ("", 500, 1), ("", 0, 1)])
def test_slots_are_the_jobs_processes_else_its_gpus_else_one(
    gang: GangBuilder, given: str, gpu: int, slots: int
) -> None:
    role = Role(name="worker", replicas=1, min=1, max=1, template=Template(requests=Resources(gpu=gpu)))
    job = gang.job(framework=Framework.MPI, roles=(role,), options=FrameworkOptions(processes=given))

    assert text(gang.gang(job), job, "hostfile") == f"demo-worker-0 slots={slots}\n"
    assert text(gang.gang(job), job, "discover_hosts.sh") == f"#!/bin/sh\necho demo-worker-0:{slots}\n"


def test_host_discovery_lists_running_replicas_that_do_not_terminate(gang: GangBuilder) -> None:
    job = mpi(gang, 4)
    record = gang.record(
        gang.replica("launcher", 0),
        gang.replica("worker", 0),
        gang.replica("worker", 1, terminating=True),
        gang.replica("worker", 2, state=S.PLACED),
        gang.replica("worker", 3, state=S.EXITED, exit_code=1),
        gang.replica("worker", 4, attempt=1),
    )

    assert text(record, job, "discover_hosts.sh") == "#!/bin/sh\necho demo-worker-0:1\n"
    assert "demo-worker-1" not in text(record, job, "hostfile")
    assert "demo-worker-2" in text(record, job, "hostfile")


def test_scripts_are_executable_and_the_remote_shell_is_the_runtimes(gang: GangBuilder) -> None:
    job = mpi(gang, 1)
    found = files(gang.gang(job), job, remote_shell="#!/bin/sh\nexec there\n")

    assert {name: file.mode for name, file in found.items()} == {
        "hostfile": 0o644,
        "discover_hosts.sh": 0o755,
        "remote_shell.sh": 0o755,
    }
    assert found["remote_shell.sh"] == ConfigFile(content=b"#!/bin/sh\nexec there\n", mode=0o755)


@pytest.mark.parametrize("framework", [f for f in Framework if f not in MPI])
def test_other_frameworks_have_neither_files_nor_a_start_order(
    gang: GangBuilder, framework: Framework
) -> None:
    job = gang.job(("launcher", 1, 1), ("worker", 1, 1), framework=framework)

    assert files(gang.gang(job), job, remote_shell="x") == {}
    assert [starts_after(job, role) for role in ("launcher", "worker")] == [(), ()]
    assert not accepts_remote_commands(job, "worker")


@pytest.mark.parametrize("framework", MPI)
def test_the_launcher_starts_after_its_workers_and_runs_commands_in_them(
    gang: GangBuilder, framework: Framework
) -> None:
    job = gang.job(("launcher", 1, 1), ("worker", 1, 1), framework=framework)

    assert [starts_after(job, role) for role in ("launcher", "worker")] == [("worker",), ()]
    assert [accepts_remote_commands(job, role) for role in ("launcher", "worker")] == [False, True]


def held(gang: GangBuilder, *states: ReplicaState) -> Reason | None:
    """Return why the launcher waits for workers in these states."""
    job = mpi(gang, len(states))
    launcher = gang.replica("launcher", 0, state=S.PLACED)
    workers = [
        gang.replica("worker", index, state=state, running_at=7 if state in {S.RUNNING, S.EXITED} else 0)
        for index, state in enumerate(states)
    ]
    record = msgspec.structs.replace(gang.record(launcher, *workers), job=job)
    assert [start_order_reason(record, worker) for worker in workers] == [None] * len(workers)
    return start_order_reason(record, launcher)


def test_a_launcher_waits_until_all_workers_run_with_a_reason(gang: GangBuilder) -> None:
    assert held(gang, S.RUNNING, S.PLACED, S.LAUNCHED) == Reason(
        code="StartsAfter",
        message="waits until every worker runs: 1 of 3 do",
        numbers={"running": 1, "awaited": 3},
    )


@pytest.mark.parametrize("states", [(), (S.RUNNING, S.RUNNING), (S.RUNNING, S.EXITED)])
def test_a_launcher_starts_once_every_worker_has_run(
    gang: GangBuilder, states: tuple[ReplicaState, ...]
) -> None:
    assert held(gang, *states) is None


def test_replicas_of_an_earlier_attempt_do_not_wait(gang: GangBuilder) -> None:
    job = mpi(gang, 1)
    earlier = gang.replica("launcher", 0, attempt=1, state=S.PLACED)
    record = msgspec.structs.replace(gang.record(earlier, gang.replica("worker", 0, state=S.PLACED)), job=job)

    assert start_order_reason(record, earlier) is None


def test_a_worker_without_a_command_idles(gang: GangBuilder) -> None:
    quiet, loud = Template(image="mpi", env={"A": "1"}), Template(command=("sshd", "-De"))
    job = gang.job(
        framework=Framework.MPI,
        roles=(
            Role(name="launcher", replicas=1, min=1, max=1, template=quiet),
            Role(name="worker", replicas=2, min=2, max=2, template=quiet, overrides={1: loud}),
        ),
    )
    templates = [
        effective_template(job, gang.replica(*me)) for me in (("launcher", 0), ("worker", 0), ("worker", 1))
    ]

    assert templates == [quiet, msgspec.structs.replace(quiet, command=("sleep", "infinity")), loud]
    plain = msgspec.structs.replace(job, framework=Framework.PLAIN)
    assert effective_template(plain, gang.replica("worker", 0)) == quiet


def test_an_unknown_role_has_no_template(gang: GangBuilder) -> None:
    with pytest.raises(LookupError, match="demo has no role ps"):
        effective_template(mpi(gang, 1), gang.replica("ps", 0))
