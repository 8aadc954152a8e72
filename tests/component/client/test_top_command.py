"""``muster top``: the nodes and the jobs in tables whose numbers stand under each other."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import yaml

from muster_rpc.v1 import cluster_service_pb2 as cluster, job_pb2
from muster_rpc.v1.job_pb2 import Resources

if TYPE_CHECKING:
    from conftest import GatewayDouble, Muster

MakeJob = Callable[..., job_pb2.Job]
MakeReplica = Callable[..., job_pb2.Replica]
GIB = 2**30


@pytest.fixture
def shared(gateway: GatewayDouble) -> None:
    """Two nodes; on the first two jobs share a GPU."""
    train = cluster.NodeReplica(
        replica=job_pb2.ReplicaRef(role="worker"),
        job="train",
        job_id="j-1",
        gpus=[0, 1],
        requests=Resources(gpu_milli=2000, cpu_milli=4000),
    )
    half = cluster.NodeReplica(
        replica=job_pb2.ReplicaRef(role="worker"),
        job="half",
        job_id="j-2",
        gpus=[2],
        requests=Resources(gpu_milli=500, memory_bytes=GIB),
    )
    train.state = half.state = job_pb2.REPLICA_STATE_RUNNING
    gateway.nodes = [
        cluster.Node(
            name="n1",
            address="10.0.0.1",
            ready=True,
            labels={"node-role.kubernetes.io/worker": ""},
            allocatable=Resources(cpu_milli=16_000, memory_bytes=64 * GIB, gpu_milli=4000),
            allocated=Resources(cpu_milli=4500, memory_bytes=GIB, gpu_milli=2500),
            foreign=Resources(cpu_milli=500, gpu_milli=1000),
            replicas=[train, half],
        ),
        cluster.Node(
            name="node-two",
            ready=True,
            unschedulable=True,
            allocatable=Resources(cpu_milli=8000, memory_bytes=8 * GIB),
        ),
    ]


@pytest.mark.usefixtures("shared")
def test_a_line_for_each_node_and_the_cluster_in_per_cent(muster: Muster) -> None:
    assert muster("top", "node").stdout == (
        "NAME       ADDRESS    ROLE     STATUS     GPU(TOTAL)   GPU(ALLOCATED)    CPU     MEMORY   FOREIGN\n"
        "n1         10.0.0.1   worker   ready               4              2.5   5/16   1Gi/64Gi   1 GPU, 0.5 CPU\n"
        "node-two                       cordoned                                  0/8    0Mi/8Gi\n"
        "\n"
        "Allocated on 2 nodes: GPU 2.5/4 (62.5 %), CPU 4.5/24 (18.7 %), memory 1Gi/72Gi (1.3 %)\n"
        "Used by others: 1 GPU, 0.5 CPU\n"
    )


@pytest.mark.usefixtures("shared")
def test_details_name_each_replica_with_its_gpus_and_its_share(muster: Muster) -> None:
    text = muster("top", "node", "-d").stdout
    assert (
        "NODE   REPLICA          JOB     STATE     GPUS   GPU   CPU   MEMORY\n"
        "n1     train-worker-0   train   running   0,1      2     4\n"
        "n1     half-worker-0    half    running   2      0.5     0      1Gi\n"
    ) in text


@pytest.mark.usefixtures("shared")
def test_one_node_is_asked_for_by_name(muster: Muster) -> None:
    assert muster("top", "node", "node-two").stdout.splitlines()[1].split()[:2] == ["node-two", "cordoned"]
    assert muster("top", "node", "n9").exit_code == 4


@pytest.mark.usefixtures("shared")
def test_programs_read_the_nodes_themselves(muster: Muster) -> None:
    output = json.loads(muster("top", "node", "-o", "json").stdout)
    assert [one["name"] for one in output] == ["n1", "node-two"]
    assert output[0]["replicas"][1]["job"] == "half"
    assert yaml.safe_load(muster("top", "node", "-o", "yaml").stdout) == output
    assert muster("top", "node", "-o", "name").stdout == "n1\nnode-two\n"


def test_a_thousand_nodes_come_in_pages_and_one_table(muster: Muster, gateway: GatewayDouble) -> None:
    gateway.page = 300
    gateway.nodes = [
        cluster.Node(
            name=f"node-{number:04}",
            ready=number > 0,
            allocatable=Resources(cpu_milli=32_000, memory_bytes=256 * GIB, gpu_milli=8000),
            allocated=Resources(gpu_milli=8000),
        )
        for number in range(1000)
    ]
    lines = muster("top", "node").stdout.splitlines()
    assert len(gateway.requests("ListNodes")) == 4
    assert len(lines) == 1003
    assert lines[1].split()[:3] == ["node-0000", "not", "ready"]
    assert max(map(len, lines)) <= 100
    assert lines[-1].startswith(
        "Allocated on 1000 nodes: GPU 8000/8000 (100.0 %), CPU 0/32000 (0.0 %), memory"
    )


def test_no_nodes_are_no_table(muster: Muster) -> None:
    answer = muster("top", "node")
    assert (answer.exit_code, answer.stdout) == (0, "")
    assert "no nodes" in answer.stderr
    assert json.loads(muster("top", "node", "-o", "json").stdout) == []


@pytest.fixture
def two_jobs(gateway: GatewayDouble, job: MakeJob, replica: MakeReplica) -> None:
    """One that runs with two workers of two GPUs, one of which is leaving, and one that waits for one."""
    running = job(
        job_pb2.PHASE_RUNNING,
        revision=1,
        name="train",
        job_id="j-train",
        replicas=(
            replica(0, job_pb2.REPLICA_STATE_RUNNING),
            replica(1, job_pb2.REPLICA_STATE_RUNNING),
            replica(2, job_pb2.REPLICA_STATE_RUNNING, terminating=True),
        ),
    )
    for one in running.status.replicas:
        one.name = one.name.replace("demo", "train")
    running.spec.roles[0].template.requests.gpu_milli = 2000
    waiting = job(job_pb2.PHASE_QUEUED, revision=2, name="waiting", job_id="j-waiting")
    waiting.spec.roles[0].replicas = 1
    waiting.spec.roles[0].overrides[0].requests.gpu_milli = 500
    ended = job(job_pb2.PHASE_SUCCEEDED, revision=3, name="ended", job_id="j-ended")
    gateway.publish(running, waiting, ended)


@pytest.mark.usefixtures("two_jobs")
def test_a_line_for_each_job_that_has_not_ended(muster: Muster) -> None:
    head, train, waiting, _, total = muster("top", "job").stdout.splitlines()
    assert head.split() == [
        "NAME",
        "STATUS",
        "QUEUE",
        "RUNNING",
        "GPU(REQUESTED)",
        "GPU(ALLOCATED)",
        "AGE",
        "NODES",
    ]
    assert train.split()[:6] == ["train", "Running", "research", "2/2", "4", "6"]
    assert train.endswith("n1, n2 and 1 more")
    assert waiting.split()[:6] == ["waiting", "Queued", "research", "0/1", "0.5", "0"]
    assert head.index("GPU(REQUESTED)") + len("GPU(REQUESTED)") == waiting.index("0.5") + 3
    assert total == "2 jobs: 6 of 4.5 GPUs allocated, 2 of 3 replicas running"
    assert "ended" in muster("top", "job", "--all").stdout


@pytest.mark.usefixtures("two_jobs")
def test_details_name_each_replica_with_an_allocation(muster: Muster) -> None:
    text = muster("top", "job", "-d").stdout
    rows = [line.split()[:6] for line in text.splitlines() if "worker-" in line]
    assert rows[0] == ["train", "worker-0", "running", "n1", "0", "2"]
    assert rows[2] == ["train", "worker-2", "running,", "terminating", "n3", "2"]


@pytest.mark.usefixtures("two_jobs")
def test_some_jobs_are_asked_for_by_name(muster: Muster) -> None:
    assert muster("top", "job", "waiting").stdout.splitlines()[-1] == (
        "1 job: 0 of 0.5 GPUs allocated, 0 of 1 replica running"
    )
    assert muster("top", "job", "missing").exit_code == 4
    output = json.loads(muster("top", "job", "train", "waiting", "-o", "json").stdout)
    assert [one["name"] for one in output] == ["train", "waiting"]
    assert muster("top", "job", "-o", "name").stdout == "j-train\nj-waiting\n"


def test_no_jobs_are_no_table(muster: Muster) -> None:
    answer = muster("top", "job")
    assert (answer.exit_code, answer.stdout) == (0, "")
    assert "no jobs" in answer.stderr
