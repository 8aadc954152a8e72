"""Exec and port-forward into real containers, through the API server, with the deployment's permissions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from deployment_permissions import pod_launcher_kubeconfig
from kubernetes_harness import KubernetesHarness, python_job
from system_harness import runs, system_on, when

from muster import AsyncClient, InvalidDocument, Rejected
from muster_core.models import Job, Port
from muster_runtimes import ExecCommand, ExecResult, ExecSession, ReplicaUnreachable, TerminalSize
from muster_runtimes.kubernetes import KubernetesRuntime
from muster_testing.cluster import Cluster
from muster_testing.cluster.images import PYTHON_IMAGE
from muster_testing.cluster.node import RealNode

TIMEOUT_S = 60
# Answers what it is sent in capital letters, and listens no longer after a word.
SHOUT = """
import socket
server = socket.create_server(("", 8888))
print("listening")
while True:
    caller, _ = server.accept()
    while received := caller.recv(65536):
        caller.sendall(received.upper())
        if received.endswith(b"bye"):
            break
    caller.close()
"""
SERVICE = """
apiVersion: muster.dev/v1
kind: Job
metadata: {{name: notes, namespace: {namespace}}}
spec:
  kind: service
  roles:
    notebook:
      image: {image}
      command: [python3, -m, http.server, "8888"]
      workingDir: /tmp
      nodeSelector: {{kubernetes.io/hostname: {node}}}
      ports: [{{name: http, containerPort: 8888}}]
      resources: {{cpu: 100m{gpu}}}
"""
UPPER = "import sys; sys.stdout.write(sys.stdin.read().upper())"
# A kubelet tells a terminal's size once the command runs, which then hears of it as of any change.
SIZE = """
import os, time
give_up = time.monotonic() + 10
while os.get_terminal_size().columns == 0 and time.monotonic() < give_up:
    time.sleep(0.01)
print(*os.get_terminal_size())
"""


def with_large_output(job: Job) -> Job:
    role = python_job(job, SHOUT).roles[0]
    template = msgspec.structs.replace(role.template, ports=(Port(name="http", number=8888),))
    return msgspec.structs.replace(job, roles=(msgspec.structs.replace(role, template=template),))


async def listening(harness: KubernetesHarness, runtime: KubernetesRuntime, node: str) -> None:
    await harness.launch(runtime, with_large_output(harness.job()), harness.replica(), node=node)
    async with asyncio.timeout(TIMEOUT_S):
        async for chunk in runtime.logs(harness.job_id, [harness.replica()], follow=True, tail=None):
            if b"listening" in chunk.data:
                return


async def ran(
    runtime: KubernetesRuntime,
    harness: KubernetesHarness,
    words: Sequence[str],
    *,
    stdin: bytes | None = None,
) -> tuple[bytes, bytes, ExecResult]:
    command = ExecCommand(argv=tuple(words), has_input=stdin is not None)
    async with runtime.access.execute(harness.replica(), command) as execution:

        async def feed() -> None:
            await execution.write(stdin or b"")
            await execution.end_input()

        feeding = asyncio.create_task(feed())
        out, err, ended = await collect_output(execution)
        await feeding
        return out, err, ended


async def collect_output(execution: ExecSession) -> tuple[bytes, bytes, ExecResult]:
    out, err = b"", b""
    async with asyncio.timeout(TIMEOUT_S):
        async for written in execution.output():
            if written.is_error:
                err += written.data
            else:
                out += written.data
        return out, err, await execution.ended()


async def test_exec_and_port_forward_work_with_the_deployments_permissions(
    cluster: Cluster, harness: KubernetesHarness, real_node: RealNode, tmp_path: Path
) -> None:
    harness.kubeconfig = await pod_launcher_kubeconfig(cluster, tmp_path / "kubeconfig")
    async with harness.runtime() as runtime:
        await listening(harness, runtime, real_node.name)

        line = "echo $MUSTER_ROLE; echo oh >&2; exit 7"
        assert await ran(runtime, harness, ["sh", "-c", line]) == (b"worker\n", b"oh\n", ExecResult(7))
        much = b"some words\n" * 20_000
        out, _, ended = await ran(runtime, harness, ["python3", "-c", UPPER], stdin=much)
        assert (out == much.upper(), ended) == (True, ExecResult(0))

        # Input may be in flight when a command ends.
        for _ in range(5):
            assert (await ran(runtime, harness, ["sh", "-c", "exit 3"], stdin=much[:50_000]))[
                2
            ] == ExecResult(3)

        _, _, ended = await ran(runtime, harness, ["no-such-program"])
        assert ended.exit_code == 127
        assert "no-such-program" in ended.message
        _, _, ended = await ran(runtime, harness, ["/etc"])
        assert ended.exit_code == 126

        terminal = ExecCommand(argv=("python3", "-c", SIZE), has_input=True, terminal=TerminalSize(50, 132))
        async with runtime.access.execute(harness.replica(), terminal) as execution:
            assert await collect_output(execution) == (b"132 50\r\n", b"", ExecResult(0))

        async with runtime.access.connect(harness.replica(), 8888) as connection, asyncio.timeout(TIMEOUT_S):
            for words in (b"hello", much, b"good bye"):
                sending = asyncio.create_task(connection.write(words))
                received = b""
                while len(received) < len(words):
                    received += await connection.read()
                await sending
                assert received == words.upper()
            assert await connection.read() == b""

        async with asyncio.timeout(TIMEOUT_S):
            async with runtime.access.connect(harness.replica(), 22) as connection:
                with pytest.raises(ConnectionError, match="nothing listens on this port in the pod"):
                    await connection.read()


async def test_an_instance_accesses_another_instances_job(
    harness: KubernetesHarness, real_node: RealNode
) -> None:
    async with harness.runtime() as runtime, harness.runtime(partitions=0) as other:
        await listening(harness, runtime, real_node.name)
        with pytest.raises(ReplicaUnreachable, match="worker-0 is not running"):
            await ran(other, harness, ["true"])
        async with other.watch_job(harness.job_id):
            assert await ran(other, harness, ["echo", "here"]) == (b"here\n", b"", ExecResult(0))


async def test_a_user_needs_only_the_gateway(
    cluster: Cluster, harness: KubernetesHarness, real_node: RealNode, tmp_path: Path
) -> None:
    values = {"namespace": harness.namespace, "image": PYTHON_IMAGE, "node": real_node.name}
    async with system_on(cluster, tmp_path) as (_, muster):
        with pytest.raises(InvalidDocument) as refused:
            await muster.submit(SERVICE.format(gpu=", gpu: 500m", **values))
        assert "Kubernetes cannot share a GPU" in {one.message for one in refused.value.problems}

        (job,) = await muster.submit(SERVICE.format(gpu="", **values))
        await when(muster, job.job_id, runs(1))
        line = "echo hello > /tmp/note.txt; pwd"
        async with await muster.exec(job.job_id, ["sh", "-c", line]) as execution:
            assert [output.data async for output in execution] == [b"/tmp\n"]
        assert (execution.replica, execution.exit_code) == ("notebook-0", 0)

        async with asyncio.timeout(TIMEOUT_S):
            while b"hello" not in (answer := await fetched(muster, job.job_id)):
                assert answer == b""
                await asyncio.sleep(0.1)
        await muster.cancel(job.job_id)
        await muster.wait(job.job_id)


async def fetched(muster: AsyncClient, job_id: str) -> bytes:
    """The response of the service; empty while it does not listen yet."""
    answer = b""
    try:
        async with await muster.connect(job_id) as connection:
            await connection.write(b"GET /note.txt HTTP/1.0\r\n\r\n")
            await connection.end()
            while data := await connection.read():
                answer += data
    except Rejected as error:
        assert "nothing listens on this port in the pod" in str(error)
    return answer
