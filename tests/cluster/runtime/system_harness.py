"""The services of ``muster up`` on a cluster, and helpers for TFJobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from kubernetes_harness import KWOK, TIMEOUT_S

from muster import AsyncClient, Job
from muster_local import LocalOptions, LocalSystem
from muster_rpc.v1 import job_pb2
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
    async with asyncio.timeout(TIMEOUT_S):
        async for seen in muster.watch(job_id):
            if holds(seen):
                return seen
    raise AssertionError(f"{job_id} ended before that")


def runs(attempt: int) -> Callable[[Job], bool]:
    return lambda job: (
        job.status.phase == job_pb2.PHASE_RUNNING
        and {(r.attempt, r.state) for r in job.status.replicas} == {(attempt, job_pb2.REPLICA_STATE_RUNNING)}
    )
