"""Selection of a replica, of its port, and restarts."""

from __future__ import annotations

import pytest

from muster_core.events import Command
from muster_gateway.replicas import (
    NotAvailable,
    ReplicaPort,
    UnknownReplica,
    port_of,
    restart_command,
    select_replica,
)
from muster_rpc.v1 import job_pb2

RUNNING = job_pb2.REPLICA_STATE_RUNNING
LAUNCHED = job_pb2.REPLICA_STATE_LAUNCHED


def replica(
    role: str,
    index: int = 0,
    state: job_pb2.ReplicaState.ValueType = RUNNING,
    *,
    attempt: int = 1,
    terminating: bool = False,
    address: str = "",
    reason: str = "",
) -> job_pb2.Replica:
    return job_pb2.Replica(
        role=role,
        index=index,
        state=state,
        attempt=attempt,
        terminating=terminating,
        address=address,
        reason=reason,
    )


def job(
    *replicas: job_pb2.Replica,
    ports: tuple[tuple[str, int], ...] = (),
    phase: job_pb2.Phase.ValueType = job_pb2.PHASE_RUNNING,
    reason: str = "",
    framework: job_pb2.Framework.ValueType = job_pb2.FRAMEWORK_PLAIN,
) -> job_pb2.Job:
    template = job_pb2.Template(ports=[job_pb2.Port(name=name, number=number) for name, number in ports])
    names = ("ps", "worker", "chief")
    roles = [job_pb2.Role(name=name, replicas=2, min=2, max=2, template=template) for name in names]
    status = job_pb2.JobStatus(
        phase=phase, attempt=1, replicas=replicas, reason=job_pb2.Reason(message=reason)
    )
    spec = job_pb2.JobSpec(name="demo", roles=roles, framework=framework)
    return job_pb2.Job(job_id="j-1", name="demo", spec=spec, status=status)


def selector(role: str, index: int | None = None) -> job_pb2.ReplicaSelector:
    return job_pb2.ReplicaSelector(role=role, index=index)


def name_of(found: job_pb2.Replica) -> str:
    return f"{found.role}-{found.index}"


def test_without_a_selector_the_leader_is_selected():
    replicas = (replica("ps"), replica("worker", 1), replica("worker"), replica("chief"))

    assert name_of(select_replica(job(*replicas), None)) == "chief-0"
    assert name_of(select_replica(job(*replicas[:3]), None)) == "worker-0"
    assert name_of(select_replica(job(replicas[0]), None)) == "ps-0"


def test_a_leader_that_does_not_run_is_passed_over():
    found = select_replica(job(replica("chief", state=LAUNCHED), replica("worker", 1)), None)

    assert name_of(found) == "worker-1"


def test_a_selector_with_an_index_is_one_replica():
    found = select_replica(job(replica("worker"), replica("worker", 1)), selector("worker", 1))

    assert name_of(found) == "worker-1"


def test_a_role_whose_name_ends_with_a_number_is_selected_by_its_name():
    seen = job(replica("stage-1"))
    seen.spec.roles.add(name="stage-1", replicas=1, max=1)

    assert name_of(select_replica(seen, selector("stage", 1))) == "stage-1-0"


def test_a_role_selects_its_first_running_replica():
    found = select_replica(
        job(replica("worker", state=LAUNCHED), replica("worker", 1), replica("chief")), selector("worker")
    )

    assert name_of(found) == "worker-1"


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (selector("woker", 1), "job demo has no replica woker-1: did you mean worker-1"),
        (selector("worker", 9), "job demo has no replica worker-9: did you mean worker"),
        (
            selector("evaluation"),
            "job demo has no replica evaluation: its roles are ps .0 to 1., worker .0 to 1., chief .0 to 1.",
        ),
    ],
)
def test_an_unknown_replica_is_answered_with_the_known_ones(wanted: job_pb2.ReplicaSelector, message: str):
    with pytest.raises(UnknownReplica, match=message):
        select_replica(job(replica("worker")), wanted)


@pytest.mark.parametrize(
    ("seen", "wanted", "message"),
    [
        (job(phase=job_pb2.PHASE_SUCCEEDED), None, "job demo has ended: Succeeded"),
        (
            job(phase=job_pb2.PHASE_QUEUED, reason="short of 1 GPU"),
            None,
            "no replica of job demo runs: the job is Queued: short of 1 GPU",
        ),
        (
            job(replica("worker", state=LAUNCHED, reason="ErrImagePull")),
            selector("worker", 0),
            "worker-0 of job demo does not run: it is launched: ErrImagePull",
        ),
        (
            job(replica("worker", terminating=True)),
            selector("worker", 0),
            "worker-0 of job demo does not run: the job is Running",
        ),
        (
            job(replica("worker", attempt=2)),
            selector("worker", 0),
            "worker-0 of job demo does not run: the job is Running",
        ),
    ],
)
def test_a_replica_that_does_not_run_is_answered_with_the_reason(
    seen: job_pb2.Job, wanted: job_pb2.ReplicaSelector | None, message: str
):
    with pytest.raises(NotAvailable, match=message):
        select_replica(seen, wanted)


PORTS = (("http", 8888), ("metrics", 9090))


def test_on_a_shared_machine_the_own_port_replaces_the_first_declared_port():
    here = replica("worker", address="127.0.0.1:21007")
    seen = job(here, ports=PORTS)

    assert port_of(seen, here, 0) == ReplicaPort(8888, 21007, "http")
    assert port_of(seen, here, 8888) == ReplicaPort(8888, 21007, "http")
    assert port_of(seen, here, 9090) == ReplicaPort(9090, 9090, "metrics")
    assert port_of(seen, here, 21007) == ReplicaPort(21007, 21007)


def test_in_a_cluster_ports_are_used_as_declared():
    there = replica("worker", address="demo-worker-0.default.svc:8888")

    assert port_of(job(there, ports=PORTS), there, 0) == ReplicaPort(8888, 8888, "http")
    assert port_of(job(there), there, 22) == ReplicaPort(22, 22)


def test_the_port_of_the_framework_is_not_confused_with_a_declared_port():
    there = replica("worker", address="demo-worker-0.default.svc:2222")
    seen = job(there, ports=PORTS, framework=job_pb2.FRAMEWORK_TENSORFLOW)

    assert port_of(seen, there, 0) == ReplicaPort(8888, 8888, "http")
    assert port_of(seen, there, 2222) == ReplicaPort(2222, 2222)


def test_without_a_declared_port_the_request_must_give_one():
    here = replica("worker")
    with pytest.raises(NotAvailable, match="worker-0 of job demo declares no port: give one"):
        port_of(job(here), here, 0)
    with pytest.raises(NotAvailable, match="port 70000 is out of range"):
        port_of(job(here), here, 70000)


def gang_replica(
    index: int,
    state: job_pb2.ReplicaState.ValueType = RUNNING,
    *,
    attempt: int = 2,
    terminating: bool = False,
) -> job_pb2.Replica:
    return job_pb2.Replica(role="worker", index=index, attempt=attempt, state=state, terminating=terminating)


def restarted(phase: job_pb2.Phase.ValueType, *replicas: job_pb2.Replica) -> job_pb2.Job:
    status = job_pb2.JobStatus(phase=phase, attempt=2, replicas=replicas)
    return job_pb2.Job(job_id="j-1", name="demo", status=status)


WORKER_1 = job_pb2.ReplicaRef(role="worker", index=1)


def test_a_restart_without_a_replica_restarts_the_gang():
    command = restart_command(restarted(job_pb2.PHASE_RUNNING, gang_replica(0)), None, "r-1")

    assert (command.command, command.request_id) == (Command.RESTART, "r-1")
    assert (command.role, command.target) == ("", None)


def test_a_restart_of_one_replica_names_it():
    seen = restarted(job_pb2.PHASE_RUNNING, gang_replica(0), gang_replica(1))
    command = restart_command(seen, WORKER_1, "r-1")

    assert (command.role, command.target) == ("worker", 1)


@pytest.mark.parametrize(
    "phase", [job_pb2.PHASE_QUEUED, job_pb2.PHASE_SUSPENDED, job_pb2.PHASE_RESTARTING, job_pb2.PHASE_EVICTED]
)
def test_a_job_without_an_allocation_cannot_be_restarted(phase: job_pb2.Phase.ValueType):
    with pytest.raises(NotAvailable, match="job demo has nothing to restart: it is"):
        restart_command(restarted(phase, gang_replica(0)), None, "r-1")


@pytest.mark.parametrize(
    "other", [gang_replica(7), gang_replica(1, attempt=1), gang_replica(1, terminating=True)]
)
def test_a_replica_outside_the_membership_cannot_be_restarted(other: job_pb2.Replica):
    with pytest.raises(NotAvailable, match="job demo has no replica worker-1 now"):
        restart_command(restarted(job_pb2.PHASE_RUNNING, gang_replica(0), other), WORKER_1, "r-1")


def test_a_replica_that_ended_cannot_be_restarted():
    gone = gang_replica(1, job_pb2.REPLICA_STATE_EXITED)
    with pytest.raises(NotAvailable, match="replica worker-1 of job demo does not run: it is exited"):
        restart_command(restarted(job_pb2.PHASE_RUNNING, gone), WORKER_1, "r-1")
