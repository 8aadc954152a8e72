"""Job records and nodes as messages."""

from __future__ import annotations

import msgspec

from muster_core.models import (
    Framework,
    HistoryEntry,
    Job,
    JobRecord,
    Node,
    Phase,
    Reason,
    ReplicaRecord,
    ReplicaState,
    Resources,
    Role,
    Taint,
    Template,
)
from muster_rpc.convert import (
    event_name,
    micros_from_proto,
    node_to_proto,
    record_to_proto,
    resources_from_proto,
)
from muster_rpc.v1 import cluster_service_pb2, job_pb2

SECOND = 1_000_000
SUBMITTED = 1_700_000_000 * SECOND


def job() -> Job:
    roles = (
        Role(name="ps", replicas=1, min=1, max=1, template=Template()),
        Role(name="worker", replicas=2, min=1, max=4, template=Template()),
    )
    return Job(name="demo", namespace="ml", roles=roles)


def replica(role: str, index: int, state: ReplicaState, **more: object) -> ReplicaRecord:
    base = ReplicaRecord(role=role, index=index, attempt=1, generation=1, node="n1", state=state)
    return msgspec.structs.replace(base, **more)


def record(**more: object) -> JobRecord:
    base = JobRecord(
        job_id="j-aaaaaaaaaaaaaaaa",
        applied_sequence=42,
        name="demo",
        job=job(),
        trace="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        attempt=1,
        generation=1,
        submitted_at=SUBMITTED,
    )
    return msgspec.structs.replace(base, **more)


def conditions(message: job_pb2.Job) -> dict[str, str]:
    return {
        condition.type: job_pb2.ConditionStatus.Name(condition.status).removeprefix("CONDITION_STATUS_")
        for condition in message.status.conditions
    }


def test_a_record_has_its_identity_phase_and_revision():
    message = record_to_proto(record(phase=Phase.RUNNING, built_by="j-bbbbbbbbbbbbbbbb"))
    assert (message.job_id, message.name, message.namespace) == ("j-aaaaaaaaaaaaaaaa", "demo", "ml")
    assert message.built_by == "j-bbbbbbbbbbbbbbbb"
    assert message.trace_id == "0af7651916cd43dd8448eb211c80319c"
    assert message.revision == 42
    assert message.status.phase == job_pb2.PHASE_RUNNING
    assert micros_from_proto(message.status.submitted_at) == SUBMITTED
    assert not message.status.HasField("finished_at")


def test_a_job_that_is_not_validated_has_no_spec():
    message = record_to_proto(record(job=None, phase=Phase.SUBMITTED, trace=""))
    assert not message.HasField("spec")
    assert message.trace_id == ""


def test_a_replica_that_waits_for_others_has_the_reason():
    launcher = Role(name="launcher", replicas=1, min=1, max=1, template=Template())
    mpi = Job(name="demo", roles=(launcher, job().roles[1]), framework=Framework.MPI)
    stored = record(
        job=mpi,
        replicas=(replica("launcher", 0, ReplicaState.PLACED), replica("worker", 0, ReplicaState.LAUNCHED)),
    )

    first, second = record_to_proto(stored).status.replicas

    assert (first.reason, second.reason) == ("waits until every worker runs: 0 of 1 do", "")


def test_replicas_are_counted_by_role_without_removed_ones():
    message = record_to_proto(
        record(
            phase=Phase.RUNNING,
            replicas=(
                replica("worker", 0, ReplicaState.EXITED, exit_code=0),
                replica("worker", 1, ReplicaState.LAUNCHED),
                replica("worker", 2, ReplicaState.EXITED, signal=9),
                replica("worker", 3, ReplicaState.EXITED, signal=15, terminating=True),
                replica("worker", 4, ReplicaState.REMOVED),
            ),
        )
    )
    ps, worker = message.status.roles
    assert (ps.role, ps.pending + ps.active + ps.succeeded + ps.failed) == ("ps", 0)
    assert (worker.pending, worker.active, worker.succeeded, worker.failed) == (1, 0, 1, 1)
    assert [r.name for r in message.status.replicas][:2] == ["demo-worker-0", "demo-worker-1"]


def test_exit_code_zero_differs_from_no_exit_code():
    ended = replica("worker", 0, ReplicaState.EXITED, exit_code=0)
    running = replica("worker", 1, ReplicaState.RUNNING)
    first, second = record_to_proto(record(replicas=(ended, running))).status.replicas
    assert first.HasField("exit_code")
    assert not second.HasField("exit_code")


def test_a_list_has_no_history():
    line = HistoryEntry(at=SUBMITTED, event="JobSubmitted", source="gateway", reason="Submitted")
    stored = record(history=(line,))
    assert [event_name(entry.event) for entry in record_to_proto(stored).status.history] == ["JobSubmitted"]
    assert not record_to_proto(stored, history=False).status.history


def test_conditions_follow_the_life_of_the_job():
    times = {"placed_at": SUBMITTED + SECOND, "running_at": SUBMITTED + 2 * SECOND}
    running = record_to_proto(record(phase=Phase.RUNNING, **times))
    assert conditions(running) == {"Created": "TRUE", "Placed": "TRUE", "Running": "TRUE"}

    done = record(phase=Phase.SUCCEEDED, finished_at=SUBMITTED + 9 * SECOND, **times)
    ended = record_to_proto(done)
    assert conditions(ended) == {
        "Created": "TRUE",
        "Placed": "FALSE",
        "Running": "FALSE",
        "Succeeded": "TRUE",
    }
    assert micros_from_proto(ended.status.conditions[-1].last_transition_at) == SUBMITTED + 9 * SECOND


def test_a_failed_condition_has_the_reason():
    reason = Reason(code="BackoffLimitExceeded", message="worker-0 failed 4 times", numbers={"failures": 4})
    failed = record_to_proto(record(phase=Phase.TIMED_OUT, reason=reason, finished_at=SUBMITTED + SECOND))
    last = failed.status.conditions[-1]
    assert (last.type, last.status, last.reason) == (
        "Failed",
        job_pb2.CONDITION_STATUS_TRUE,
        "BackoffLimitExceeded",
    )
    assert failed.status.reason.numbers["failures"] == 4


def test_a_pause_has_the_time_of_its_event():
    entries = (
        HistoryEntry(at=SUBMITTED + 5 * SECOND, event="JobRestarting", source="status-tracker"),
        HistoryEntry(at=SUBMITTED + 6 * SECOND, event="ReplicasChanged", source="pod-launcher"),
    )
    message = record_to_proto(record(phase=Phase.RESTARTING, history=entries))
    restarting = message.status.conditions[-1]
    assert restarting.type == "Restarting"
    assert micros_from_proto(restarting.last_transition_at) == SUBMITTED + 5 * SECOND


def test_a_node_has_its_resources_taints_and_replicas():
    node = Node(
        name="n1",
        allocatable=Resources(cpu=4000, gpu=2000),
        labels={"zone": "a"},
        taints=(Taint(key="gpu", value="yes"),),
    )
    held = Resources(cpu=500, gpu=1000)
    replica = cluster_service_pb2.NodeReplica(job="demo", job_id="j-aaaaaaaaaaaaaaaa", gpus=[1])
    message = node_to_proto(node, pool="local", allocated=held, replicas=[replica])
    assert (message.name, message.pool, message.ready) == ("n1", "local", True)
    assert resources_from_proto(message.allocated) == held
    assert message.taints[0].effect == job_pb2.TAINT_EFFECT_NO_SCHEDULE
    assert list(message.replicas[0].gpus) == [1]
