"""Jobs of the whole system on a cluster: the six services, a real API server, and nodes that kwok plays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from runtime_room import KWOK, PATIENCE_S, KubeRoom

from muster import AsyncClient, Job
from muster_local.system import LocalOptions, LocalSystem
from muster_rpc.v1 import job_pb2
from muster_runtimes.kubernetes.labels import JOB_ID
from muster_testing.cluster import Cluster

_LAST_WORDS = 20_000

TFJOB = """
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {{name: digits, namespace: {namespace}}}
spec:
  cleanPodPolicy: {clean}
  tfReplicaSpecs:
    PS:
      replicas: 1
      template: {{spec: {{containers: [{{name: tensorflow, image: localhost/none:1}}]}}}}
    Worker:
      replicas: 2
      restartPolicy: {restart}
      template:
        metadata:
          annotations: {annotations}
        spec:
          nodeSelector: {{team: {namespace}}}
          volumes: [{{name: scratch, emptyDir: {{}}}}]
          containers:
            - name: tensorflow
              image: localhost/none:1
              command: [python, train.py]
              volumeMounts: [{{name: scratch, mountPath: /scratch}}]
              resources: {{requests: {{cpu: "{cpu}"}}, limits: {{memory: 64Mi}}}}
"""


def tfjob(
    namespace: str, *, clean: str = "Running", restart: str = "Never", cpu: str = "1", **played: str
) -> str:
    annotations = {KWOK + key.replace("_", "-"): value for key, value in played.items()}
    quoted = "{" + ", ".join(f'{key}: "{value}"' for key, value in annotations.items()) + "}"
    return TFJOB.format(namespace=namespace, clean=clean, restart=restart, cpu=cpu, annotations=quoted)


@asynccontextmanager
async def system_on(cluster: Cluster, folder: Path) -> AsyncGenerator[tuple[LocalSystem, AsyncClient]]:
    system = LocalSystem(folder / "data", LocalOptions(kubeconfig=cluster.kubeconfig, workdir=folder))
    async with system, AsyncClient(system.address) as muster:
        try:
            yield system, muster
        except BaseException:
            print(system.log_text()[-_LAST_WORDS:])
            raise


async def when(muster: AsyncClient, job_id: str, holds: Callable[[Job], bool]) -> Job:
    async with asyncio.timeout(PATIENCE_S):
        async for seen in muster.watch(job_id):
            if holds(seen):
                return seen
    raise AssertionError(f"{job_id} ended before that")


def runs(attempt: int) -> Callable[[Job], bool]:
    return lambda job: (
        job.status.phase == job_pb2.PHASE_RUNNING
        and {(r.attempt, r.state) for r in job.status.replicas} == {(attempt, job_pb2.REPLICA_STATE_RUNNING)}
    )


@pytest.fixture
def team(namespace: str) -> dict[str, str]:
    """The label of this test's own nodes."""
    return {"team": namespace}


async def test_a_tfjob_runs_to_its_end_and_leaves_nothing_when_deleted(
    cluster: Cluster, room: KubeRoom, tmp_path: Path, team: dict[str, str]
) -> None:
    await cluster.add_kwok_nodes(2, cpu="4", memory="8Gi", labels=team, prefix=room.namespace)
    async with system_on(cluster, tmp_path) as (_, muster):
        (job,) = await muster.submit(tfjob(room.namespace, run_for="2s"))
        await when(muster, job.job_id, runs(1))
        assert await room.names("services") == {"digits-ps-0", "digits-worker-0", "digits-worker-1"}

        ended = await muster.wait(job.job_id)
        assert ended.status.phase == job_pb2.PHASE_SUCCEEDED

        await muster.delete(job.job_id)
        for kind in ("pods", "services", "configmaps"):
            await room.until_gone(kind)


async def test_with_clean_pod_policy_all_the_pods_go_when_the_job_ends(
    cluster: Cluster, room: KubeRoom, tmp_path: Path, team: dict[str, str]
) -> None:
    await cluster.add_kwok_nodes(2, cpu="4", memory="8Gi", labels=team, prefix=room.namespace)
    async with system_on(cluster, tmp_path) as (_, muster):
        (job,) = await muster.submit(tfjob(room.namespace, clean="All", run_for="1s"))
        assert (await muster.wait(job.job_id)).status.phase == job_pb2.PHASE_SUCCEEDED
        await room.until_gone("pods")
        await room.until_gone("services")


async def test_a_gang_whose_member_is_refused_goes_back_to_its_queue(
    cluster: Cluster, room: KubeRoom, tmp_path: Path, team: dict[str, str]
) -> None:
    await cluster.add_kwok_nodes(1, cpu="8", memory="8Gi", labels=team, prefix=room.namespace)
    async with system_on(cluster, tmp_path) as (_, muster):
        (job,) = await muster.submit(tfjob(room.namespace, reject="OutOfcpu"))
        seen = await when(
            muster, job.job_id, lambda job: any("OutOfcpu" in entry.message for entry in job.status.history)
        )
        assert seen.status.failures == 0
        await muster.cancel(job.job_id)
        assert (await muster.wait(job.job_id)).status.phase == job_pb2.PHASE_CANCELLED


async def test_a_pod_that_someone_deletes_is_started_again_and_its_peers_run_on(
    cluster: Cluster, room: KubeRoom, tmp_path: Path, team: dict[str, str]
) -> None:
    await cluster.add_kwok_nodes(1, cpu="8", memory="8Gi", labels=team, prefix=room.namespace)
    async with system_on(cluster, tmp_path) as (_, muster):
        (job,) = await muster.submit(tfjob(room.namespace))
        await when(muster, job.job_id, runs(1))
        await room.delete_pod("digits-worker-1")
        again = await when(muster, job.job_id, lambda job: job.status.generation > 1 and runs(1)(job))
        restarts = {(one.role, one.index): one.restart for one in again.status.replicas}
        assert restarts == {("ps", 0): 0, ("worker", 0): 0, ("worker", 1): 1}
        assert (again.status.failures, again.status.evictions) == (0, 0)


async def test_a_launcher_that_is_killed_takes_up_where_it_was(
    cluster: Cluster, room: KubeRoom, tmp_path: Path, team: dict[str, str]
) -> None:
    await cluster.add_kwok_nodes(1, cpu="8", memory="8Gi", labels=team, prefix=room.namespace)
    async with system_on(cluster, tmp_path) as (system, muster):
        (job,) = await muster.submit(tfjob(room.namespace, run_for="6s"))
        await when(muster, job.job_id, runs(1))
        before = {pod.metadata.uid for pod in await room.pods()}
        system.kill("pod-launcher")
        await system.until_ready()
        assert (await muster.wait(job.job_id)).status.phase == job_pb2.PHASE_SUCCEEDED
        assert {pod.metadata.uid for pod in await room.pods()} <= before
        assert {pod.metadata.labels[JOB_ID] for pod in await room.pods()} == {job.job_id}
