"""A job that has ended and whose replicas may stay lets those go who wait for its end."""

from __future__ import annotations

import asyncio

from harness import Connect, Launcher

from muster_rpc.v1 import job_pb2

STAYS = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: stays}
spec:
  tfReplicaSpecs:
    PS:
      template: {spec: {containers: [{name: tensorflow, image: x, command: [sleep, "600"]}]}}
    Worker:
      template: {spec: {containers: [{name: tensorflow, image: x, command: ["true"]}]}}
"""


async def test_waiting_for_the_end_does_not_wait_for_what_stays(launch: Launcher, connect: Connect) -> None:
    async with launch() as system, connect(system) as muster:
        (submitted,) = await muster.submit(STAYS)
        async with asyncio.timeout(30):
            ended = await muster.wait(submitted.job_id)
        assert ended.status.phase == job_pb2.PHASE_SUCCEEDED
        (ps,) = [replica for replica in ended.status.replicas if replica.role == "ps"]
        assert ps.state == job_pb2.REPLICA_STATE_RUNNING
        await muster.delete(submitted.job_id)
