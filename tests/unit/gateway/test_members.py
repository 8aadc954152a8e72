"""Which replica is meant, and which of its ports."""

from __future__ import annotations

import pytest

from muster_gateway.members import NoSuchMember, NotThere, Port, member_of, port_of
from muster_rpc.v1 import job_pb2

RUNNING = job_pb2.REPLICA_STATE_RUNNING
LAUNCHED = job_pb2.REPLICA_STATE_LAUNCHED


def replica(
    role: str,
    index: int = 0,
    state: job_pb2.ReplicaState.ValueType = RUNNING,
    *,
    attempt: int = 1,
    leaving: bool = False,
    address: str = "",
    reason: str = "",
) -> job_pb2.Replica:
    return job_pb2.Replica(
        role=role,
        index=index,
        state=state,
        attempt=attempt,
        leaving=leaving,
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


def name_of(found: job_pb2.Replica) -> str:
    return f"{found.role}-{found.index}"


def test_unless_one_is_named_it_is_the_one_that_leads():
    everyone = (replica("ps"), replica("worker", 1), replica("worker"), replica("chief"))

    assert name_of(member_of(job(*everyone), "")) == "chief-0"
    assert name_of(member_of(job(*everyone[:3]), "")) == "worker-0"
    assert name_of(member_of(job(everyone[0]), "")) == "ps-0"


def test_of_those_that_lead_it_is_one_that_runs():
    found = member_of(job(replica("chief", state=LAUNCHED), replica("worker", 1)), "")

    assert name_of(found) == "worker-1"


@pytest.mark.parametrize("wanted", ["worker-1", "demo-worker-1"])
def test_a_replica_is_known_by_its_short_name_and_by_its_whole_one(wanted: str):
    assert name_of(member_of(job(replica("worker"), replica("worker", 1)), wanted)) == "worker-1"


def test_a_role_is_the_first_of_it_that_runs():
    found = member_of(
        job(replica("worker", state=LAUNCHED), replica("worker", 1), replica("chief")), "worker"
    )

    assert name_of(found) == "worker-1"


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("woker-1", "job demo has no replica woker-1: did you mean worker-1"),
        ("worker-9", "job demo has no replica worker-9: did you mean worker"),
        (
            "evaluation",
            "job demo has no replica evaluation: its roles are ps .0 to 1., worker .0 to 1., chief .0 to 1.",
        ),
    ],
)
def test_what_there_is_not_is_answered_with_what_there_is(wanted: str, words: str):
    with pytest.raises(NoSuchMember, match=words):
        member_of(job(replica("worker")), wanted)


@pytest.mark.parametrize(
    ("seen", "wanted", "words"),
    [
        (job(phase=job_pb2.PHASE_SUCCEEDED), "", "job demo has ended: Succeeded"),
        (
            job(phase=job_pb2.PHASE_QUEUED, reason="short of 1 GPU"),
            "",
            "no replica of job demo runs: the job is Queued: short of 1 GPU",
        ),
        (
            job(replica("worker", state=LAUNCHED, reason="ErrImagePull")),
            "worker-0",
            "worker-0 of job demo does not run: it is launched: ErrImagePull",
        ),
        (
            job(replica("worker", leaving=True)),
            "worker-0",
            "worker-0 of job demo does not run: the job is Running",
        ),
        (
            job(replica("worker", attempt=2)),
            "worker-0",
            "worker-0 of job demo does not run: the job is Running",
        ),
    ],
)
def test_what_does_not_run_is_answered_with_why(seen: job_pb2.Job, wanted: str, words: str):
    with pytest.raises(NotThere, match=words):
        member_of(seen, wanted)


PORTS = (("http", 8888), ("metrics", 9090))


def test_the_port_that_a_machine_shares_out_stands_for_the_first_that_is_declared():
    here = replica("worker", address="127.0.0.1:21007")
    seen = job(here, ports=PORTS)

    assert port_of(seen, here, 0) == Port(8888, 21007, "http")
    assert port_of(seen, here, 8888) == Port(8888, 21007, "http")
    assert port_of(seen, here, 9090) == Port(9090, 9090, "metrics")
    assert port_of(seen, here, 21007) == Port(21007, 21007)


def test_in_a_cluster_ports_are_what_they_are():
    there = replica("worker", address="demo-worker-0.default.svc:8888")

    assert port_of(job(there, ports=PORTS), there, 0) == Port(8888, 8888, "http")
    assert port_of(job(there), there, 22) == Port(22, 22)


def test_a_framework_s_port_is_not_taken_for_another_that_is_declared_before_it():
    there = replica("worker", address="demo-worker-0.default.svc:2222")
    seen = job(there, ports=PORTS, framework=job_pb2.FRAMEWORK_TENSORFLOW)

    assert port_of(seen, there, 0) == Port(8888, 8888, "http")
    assert port_of(seen, there, 2222) == Port(2222, 2222)


def test_without_a_declared_port_one_must_be_said():
    here = replica("worker")
    with pytest.raises(NotThere, match="worker-0 of job demo declares no port: say which"):
        port_of(job(here), here, 0)
    with pytest.raises(NotThere, match="70000 is no port"):
        port_of(job(here), here, 70000)
