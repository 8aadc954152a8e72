"""One sample of every event and of the job record, with every field set: the content of the files in ``v1``.

``python tests/golden/events/samples.py`` writes the files that are missing. An existing file is never rewritten: it is a
published version and must stay readable. A field that is added later gets a sample of its own.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from muster_core import events
from muster_core.models import (
    CleanPodPolicy,
    ElasticPolicy,
    Framework,
    HistoryEntry,
    Job,
    JobKind,
    JobRecord,
    Node,
    Phase,
    PlacementPolicy,
    Port,
    Problem,
    Progress,
    Reason,
    ReplicaRecord,
    ReplicaState,
    Resources,
    RestartPolicy,
    RestartScope,
    Role,
    RunPolicy,
    Severity,
    Strategy,
    SuccessPolicy,
    Taint,
    Template,
    Throughput,
    Toleration,
)

FOLDER = Path(__file__).parent / "v1"

GIB = 1024**3
AT = 1_700_000_000_000_000

AMOUNT = Resources(
    cpu=4000, memory=8 * GIB, gpu=1500, gpu_memory=2 * GIB, ephemeral_storage=GIB, extended={"rdma/hca": 1}
)

TEMPLATE = Template(
    image="train:1",
    command=("python", "train.py"),
    args=("--epochs", "10"),
    env={"DATA": "/data"},
    working_dir="/work",
    requests=AMOUNT,
    limits=Resources(cpu=8000),
    ports=(Port(name="grpc", number=2222),),
    labels={"team": "vision"},
    annotations={"note": "first run"},
    node_selector={"zone": "a"},
    tolerations=(Toleration(key="gpu", operator="Exists", value="", effect="NoSchedule"),),
    node_affinity={"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}},
    grace_s=60,
    pod={"spec": {"containers": [{"name": "main"}]}},
)

WARNING = Problem(
    code="Deprecated",
    path="spec.tfReplicaSpecs.Worker",
    message="is an old name",
    severity=Severity.WARNING,
    line=4,
    column=3,
    found="Worker",
    allowed="worker",
    fix="write worker",
)

JOB = Job(
    name="mnist",
    roles=(
        Role(
            name="worker",
            replicas=2,
            min=1,
            max=4,
            template=TEMPLATE,
            overrides={1: Template(command=("python", "other.py"))},
            restart_policy=RestartPolicy.EXIT_CODE,
        ),
    ),
    namespace="ml",
    queue="team-a",
    priority=5,
    preemptible=False,
    kind=JobKind.SERVICE,
    framework=Framework.TENSORFLOW,
    format="kubeflow",
    min_available=1,
    placement=PlacementPolicy(
        strategy=Strategy.SPREAD, topology="zone", topology_required=True, gpu_topology=True
    ),
    elastic=ElasticPolicy(policy="dragon", cool_down_s=30, step=2),
    run=RunPolicy(
        restart_scope=RestartScope.GANG,
        backoff_limit=6,
        active_deadline_s=3600,
        queue_deadline_s=600,
        start_timeout_s=120,
        ttl_s=86400,
        clean_pod_policy=CleanPodPolicy.NONE,
        success_policy=SuccessPolicy.ALL_WORKERS,
        suspend=True,
    ),
    labels={"app": "mnist"},
    annotations={"owner": "ann"},
    warnings=(WARNING,),
)

WHY = Reason(code="NoRoom", message="2 of 3 nodes lack a GPU", numbers={"nodes": 3, "short": 2})

REPLICA = ReplicaRecord(
    role="worker",
    index=1,
    attempt=2,
    generation=3,
    node="n1",
    restart=1,
    gpus=(0, 3),
    state=ReplicaState.EXITED,
    terminating=True,
    exit_code=137,
    signal=9,
    reason="OOMKilled",
    address="10.0.0.1:2222",
    not_before=AT,
    placed_at=AT + 1,
    launched_at=AT + 2,
    running_at=AT + 3,
    ended_at=AT + 4,
)

SAMPLES: dict[str, msgspec.Struct] = {
    "JobSubmitted": events.JobSubmitted(
        job_id="j-abcdefghijklmnop",
        request_id="r-1",
        submitter="ann",
        document="kind: TFJob\n",
        source_name="mnist.yaml",
        namespace="ml",
    ),
    "JobSubmitted.typed": events.JobSubmitted(job_id="j-abcdefghijklmnop", request_id="r-1", spec=JOB),
    "JobValidated": events.JobValidated(job=JOB, defaults_version=7),
    "JobValidated.part": events.JobValidated(
        job=JOB, part=1, parts=2, submission_id="j-abcdefghijklmnop", submitter="ann", submitted_at=AT
    ),
    "JobValidated.built": events.JobValidated(job=JOB, built_by="j-2345672345672345"),
    "JobRejected": events.JobRejected(problems=(WARNING,), name="mnist"),
    "JobWaiting": events.JobWaiting(reason=WHY),
    "JobPlaced": events.JobPlaced(
        attempt=2,
        generation=1,
        pool="local",
        replicas=(events.Assignment(role="worker", index=0, node="n1", gpus=(0, 1)),),
        reason=WHY,
    ),
    "JobResized": events.JobResized(
        attempt=2,
        generation=3,
        reason=WHY,
        added=(events.Assignment(role="worker", index=2, node="n2"),),
        removed=(events.ReplicaRef(role="worker", index=1),),
        policy="dragon",
    ),
    "JobResized.given": events.JobResized(
        attempt=2,
        generation=3,
        reason=WHY,
        removed=(events.ReplicaRef(role="worker", index=1),),
        policy="marginal_gain",
        beneficiary="j-2345672345672345",
    ),
    "JobResized.mended": events.JobResized(
        attempt=2,
        generation=3,
        reason=WHY,
        added=(events.Assignment(role="worker", index=1, node="n2"),),
        avoid=("n1",),
    ),
    "JobEvicted": events.JobEvicted(attempt=2, reason=WHY),
    "JobEvicted.avoiding": events.JobEvicted(attempt=2, reason=WHY, avoid=("n1",)),
    "ScaleProposed": events.ScaleProposed(
        role="worker", size=2, target=3, policy="dragon", attempt=2, generation=3, reason=WHY, gain=870
    ),
    "ScaleProposed.given": events.ScaleProposed(
        role="worker",
        size=3,
        target=2,
        policy="marginal_gain",
        attempt=2,
        generation=3,
        reason=WHY,
        gain=-473,
        removed=(events.ReplicaRef(role="worker", index=1),),
        beneficiary="j-2345672345672345",
        donors=2,
    ),
    "ProgressReported": events.ProgressReported(
        role="worker", index=0, attempt=2, step=1200, at=AT, metrics={"loss": "0.25", "accuracy": "0.9"}
    ),
    "ReplicasChanged": events.ReplicasChanged(
        changes=(
            events.ReplicaChange(
                role="worker",
                index=1,
                attempt=2,
                state=ReplicaState.EXITED,
                restart=1,
                exit_code=137,
                signal=9,
                reason="OOMKilled",
                address="10.0.0.1:2222",
                at=AT,
            ),
        )
    ),
    "CommandRequested": events.CommandRequested(
        command=events.Command.SCALE, request_id="r-2", by="ann", role="worker", target=4, message="more"
    ),
    "JobRestarting": events.JobRestarting(
        scope=RestartScope.REPLICA,
        attempt=2,
        reason=WHY,
        delay_ms=2000,
        replicas=(events.ReplicaRef(role="worker", index=1),),
    ),
    "JobRestarting.service": events.JobRestarting(
        scope=RestartScope.REPLICA,
        attempt=1,
        reason=WHY,
        delay_ms=1000,
        replicas=(events.ReplicaRef(role="notebook", index=0),),
        uncounted=1,
    ),
    "JobAdopted": events.JobAdopted(
        attempt=2,
        generation=3,
        replicas=(REPLICA,),
        reason=WHY,
        job=JOB,
        submission_id="j-2345672345672345",
        submitter="ann",
        built_by="j-3456345634563456",
        submitted_at=AT,
    ),
    "JobFinished": events.JobFinished(outcome=events.Outcome.TIMED_OUT, reason=WHY, attempt=2),
    "NodeChanged": events.NodeChanged(
        pool="local",
        node=Node(
            name="n1",
            allocatable=AMOUNT,
            foreign=Resources(cpu=100),
            pods=30,
            gpu_memory=16 * GIB,
            labels={"zone": "a"},
            taints=(Taint(key="gpu", value="yes", effect="NoExecute"),),
            ready=False,
            unschedulable=True,
            address="10.0.0.1",
        ),
        gone=True,
    ),
    "NodeChanged.shared": events.NodeChanged(
        pool="local",
        node=Node(name="n1", allocatable=AMOUNT, foreign=Resources(gpu=1500), foreign_gpus={0: 1000, 2: 500}),
    ),
    "CapacityChanged": events.CapacityChanged(
        pool="local",
        free=Resources(cpu=1000),
        allocatable=AMOUNT,
        waiting=3,
        waiting_feasible=2,
        oldest_wait_at=AT,
        decided_at=AT + 1,
    ),
    "JobRecord": JobRecord(
        submission_id="j-2345672345672345",
        job_id="j-abcdefghijklmnop",
        applied_sequence=42,
        phase=Phase.RUNNING,
        name="mnist",
        job=JOB,
        submitter="ann",
        format="kubeflow",
        trace="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        problems=(WARNING,),
        reason=WHY,
        attempt=2,
        generation=3,
        replicas=(REPLICA,),
        failures=1,
        evictions=2,
        not_before=AT,
        cancel_requested=True,
        delete_requested=True,
        submitted_at=AT,
        validated_at=AT + 1,
        queued_at=AT + 2,
        waiting_since=AT + 3,
        placed_at=AT + 4,
        started_at=AT + 5,
        running_at=AT + 6,
        finished_at=AT + 7,
        resized_at=AT + 8,
        history=(
            HistoryEntry(at=AT, event="JobSubmitted", source="gateway", reason="Submitted", message="by ann"),
        ),
    ),
    "JobRecord.built": JobRecord(
        job_id="j-abcdefghijklmnop",
        applied_sequence=9,
        built_by="j-2345672345672345",
        restarts=2,
        restarted_at=AT,
    ),
    "JobRecord.held": JobRecord(
        job_id="j-abcdefghijklmnop",
        applied_sequence=11,
        phase=Phase.SUSPENDED,
        active_from=AT + 5,
        requested_sizes={"worker": 4},
        node_failures=2,
        node_failed_at=AT,
        avoided={"n1": AT},
        cancelled="requested by ann",
        suspended=True,
        suspended_at=AT + 9,
        awaited_build=True,
    ),
    "JobRecord.measured": JobRecord(
        job_id="j-abcdefghijklmnop",
        applied_sequence=12,
        replicas=(msgspec.structs.replace(REPLICA, beneficiary="j-2345672345672345"),),
        resized_by="marginal_gain",
        progress=Progress(
            role="worker", index=0, attempt=2, generation=3, step=1200, at=AT, metrics={"loss": "0.25"}
        ),
        throughput=(Throughput(workers=2, steps=600, micros=60_000_000),),
    ),
    "JobRecord.commanded": JobRecord(
        job_id="j-abcdefghijklmnop",
        applied_sequence=43,
        cancel_requested=True,
        command_trace="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    ),
}
"""File name without its suffix -> sample."""


def encode(sample: msgspec.Struct) -> bytes:
    """Return the content of a sample's file: indented JSON."""
    return msgspec.json.format(msgspec.json.encode(sample), indent=2) + b"\n"


def write_missing() -> None:
    """Write the samples that have no file yet."""
    FOLDER.mkdir(exist_ok=True)
    for name, sample in SAMPLES.items():
        path = FOLDER / f"{name}.json"
        if not path.exists():
            path.write_bytes(encode(sample))


if __name__ == "__main__":
    write_missing()
