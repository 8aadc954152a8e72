"""One job of each framework, from its document to its success, with programs that fail if their environment is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from framework_jobs import EXAMPLES, example, read_logs

from muster import AsyncClient
from muster_core.models import Framework
from muster_rpc.v1 import job_pb2

if TYPE_CHECKING:
    from .conftest import Needs

pytestmark = [pytest.mark.xdist_group("frameworks"), pytest.mark.timeout(170)]

WORDS = {
    "plain/job": ["reader-0 met reader-0, worker-0, worker-1", "worker-1 met reader-0, worker-0, worker-1"],
    "tensorflow/job": ["chief-0 met chief-0, ps-0, worker-0, worker-1"],
    "tensorflow/tfjob": ["chief-0 met chief-0, ps-0, worker-0, worker-1"],
    "pytorch/job": [f"rank {rank} of 4 on node {rank // 2}: sum 6" for rank in range(4)],
    "pytorch/pytorchjob": [f"rank {rank} of 4 on node {rank // 2}: sum 6" for rank in range(4)],
    "mpi/job": [f"rank {rank} of 4 in worker-{rank // 2}: sum 10" for rank in range(4)],
    "mpi/mpijob": [f"rank {rank} of 4 in worker-{rank // 2}: sum 10" for rank in range(4)],
    "horovod/job": [f"rank {rank} of 2 in worker-{rank}, gloo on lo" for rank in range(2)],
    "xgboost/job": ["master-0 met rank 0, rank 1, rank 2"],
    "xgboost/xgboostjob": ["master-0 met rank 0, rank 1, rank 2"],
    "paddle/job": ["master-0 met server 0, trainer 0, trainer 1"],
    "paddle/paddlejob": ["master-0 met server 0, trainer 0, trainer 1"],
    "jax/job": ["worker-0 met process 0, process 1, process 2"],
    "jax/jaxjob": ["worker-0 met process 0, process 1, process 2"],
    "mxnet/job": ["scheduler-0 met scheduler-0, server-0, worker-0, worker-1"],
    "mxnet/mxjob": ["scheduler-0 met scheduler-0, server-0, worker-0, worker-1"],
}
"""The output of each document's replicas."""

ENDS = {
    "plain/job": "all 3 replicas of reader, worker exited with 0",
    "tensorflow/job": "chief-0 exited with 0",
    "tensorflow/tfjob": "chief-0 exited with 0",
    "pytorch/job": "all 2 replicas of worker exited with 0",
    "pytorch/pytorchjob": "master-0 exited with 0",
    "mpi/job": "launcher-0 exited with 0",
    "mpi/mpijob": "launcher-0 exited with 0",
    "horovod/job": "launcher-0 exited with 0",
    "xgboost/job": "master-0 exited with 0",
    "xgboost/xgboostjob": "master-0 exited with 0",
    "paddle/job": "master-0 exited with 0",
    "paddle/paddlejob": "master-0 exited with 0",
    "jax/job": "all 3 replicas of worker exited with 0",
    "jax/jaxjob": "all 3 replicas of worker exited with 0",
    "mxnet/job": "scheduler-0 exited with 0",
    "mxnet/mxjob": "scheduler-0 exited with 0",
}

TOOLS = {
    "mpi": ("mpirun", "openmpi-bin"),
    "horovod": ("mpirun", "openmpi-bin"),
    "pytorch": ("torchrun", "python3-torch"),
}


def test_every_framework_and_example_document_is_run() -> None:
    documents = {f"{path.parent.name}/{path.stem}" for path in EXAMPLES.glob("*/*.yaml")}

    assert documents - {"pytorch/elastic"} == WORDS.keys() == ENDS.keys()
    assert {name.partition("/")[0] for name in WORDS} == set(Framework)


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("document", WORDS)
async def test_a_job_of_the_framework_succeeds(muster: AsyncClient, document: str, needs: Needs) -> None:
    framework = document.partition("/")[0]
    if framework in TOOLS:
        needs(*TOOLS[framework])
    (submitted,) = await muster.submit(example(f"{document}.yaml", name=document.replace("/", "-")))

    job = await muster.wait(submitted.job_id)
    logs = await read_logs(muster, submitted.job_id)

    assert job.status.phase == job_pb2.PHASE_SUCCEEDED, f"{job.status}\n{logs}"
    assert job.status.reason.message == ENDS[document]
    assert [words for words in WORDS[document] if words not in logs] == [], logs
    assert all(replica.restart == 0 for replica in job.status.replicas)
    if framework in {"mpi", "horovod"}:
        began = {replica.role: replica.running_at.ToNanoseconds() for replica in job.status.replicas}
        assert began["launcher"] > began["worker"]
        # Open MPI complains about hosts that share what they should not, and often continues.
        assert "ERROR" not in logs
