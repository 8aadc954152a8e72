"""Real containers: their files, logs and ends."""

from __future__ import annotations

from collections.abc import Sequence

from kubernetes_harness import MEMBERS_AT_FIRST, KubernetesHarness, python_job

from muster_core.models import Framework, ReplicaState
from muster_runtimes import ReplicaId
from muster_runtimes.kubernetes import KubernetesRuntime
from muster_testing.cluster.node import RealNode


async def written(
    runtime: KubernetesRuntime,
    replicas: Sequence[ReplicaId],
    *,
    follow: bool = False,
    tail: int | None = None,
) -> str:
    """The output of replicas."""
    chunks = runtime.logs(replicas[0].job_id, replicas, follow=follow, tail=tail)
    return b"".join([chunk.data async for chunk in chunks]).decode()


async def test_a_program_reads_its_members_and_files_from_the_config_map(
    harness: KubernetesHarness, real_node: RealNode
) -> None:
    program = "import os; print(open(os.environ['MUSTER_MEMBERS']).read()); print(os.environ['TF_CONFIG'])"
    job = python_job(harness.job(workers=2, framework=Framework.TENSORFLOW), program)
    async with harness.runtime() as runtime:
        await harness.launch(runtime, job, harness.replica(), node=real_node.name)
        end = await harness.ended(runtime, harness.replica())
        output = await written(runtime, [harness.replica()])
    assert (end.state, end.exit_code) == (ReplicaState.EXITED, 0)
    assert '"generation":1' in output
    assert f"mnist-worker-1.{harness.namespace}.svc:2222" in output


async def test_a_program_reads_its_members_from_the_pods_annotation(
    harness: KubernetesHarness, real_node: RealNode
) -> None:
    job = python_job(harness.job(), "import os; print(open(os.environ['MUSTER_MEMBERS']).read())")
    async with harness.runtime() as runtime:
        await harness.launch(runtime, job, harness.replica(), node=real_node.name)
        end = await harness.ended(runtime, harness.replica())
        assert await harness.names("configmaps") == set()
        output = await written(runtime, [harness.replica()])
    assert (end.state, end.exit_code) == (ReplicaState.EXITED, 0)
    assert output == MEMBERS_AT_FIRST.decode() + "\n"


async def test_a_log_can_be_followed_before_its_replica_runs(
    harness: KubernetesHarness, real_node: RealNode
) -> None:
    program = "import time\nfor i in range(3): print('line', i); time.sleep(0.3)"
    async with harness.runtime() as runtime:
        await harness.launch(
            runtime, python_job(harness.job(), program), harness.replica(), node=real_node.name
        )
        assert await written(runtime, [harness.replica()], follow=True) == "line 0\nline 1\nline 2\n"


async def test_a_log_is_archived_until_the_job_is_forgotten(
    harness: KubernetesHarness, real_node: RealNode
) -> None:
    job = python_job(harness.job(), "print('one'); print('two'); raise SystemExit(3)")
    async with harness.runtime() as runtime:
        await harness.launch(runtime, job, harness.replica(), node=real_node.name)
        end = await harness.ended(runtime, harness.replica())
        assert (end.state, end.exit_code) == (ReplicaState.EXITED, 3)
        runtime.confirm_recorded(harness.job_id, [harness.replica()])
        await harness.until_finalizers_removed()
        await runtime.remove_replicas(harness.job_id)
        await harness.until_gone("pods")

        assert await written(runtime, [harness.replica()]) == "one\ntwo\n"
        assert await written(runtime, [harness.replica()], tail=1) == "two\n"
        await runtime.forget(harness.job_id)
    assert not (harness.path / "logs" / harness.job_id).exists()


async def test_a_stopped_replica_has_its_grace_period(
    harness: KubernetesHarness, real_node: RealNode
) -> None:
    program = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('saved'), sys.exit(0)))\n"
        "print('up')\n"
        "time.sleep(600)"
    )
    async with harness.runtime() as runtime:
        await harness.launch(
            runtime, python_job(harness.job(), program), harness.replica(), node=real_node.name
        )
        chunks = runtime.logs(harness.job_id, [harness.replica()], follow=True, tail=None)
        assert (await anext(chunks)).data == b"up\n"
        await runtime.stop(harness.replica(), grace_s=20)
        assert b"".join([chunk.data async for chunk in chunks]) == b"saved\n"
        end = await harness.ended(runtime, harness.replica())
        runtime.confirm_recorded(harness.job_id, [harness.replica()])
        await harness.until_gone("pods")
        assert await written(runtime, [harness.replica()]) == "up\nsaved\n"
    assert (end.state, end.exit_code) == (ReplicaState.EXITED, 0)


async def test_a_missing_image_rejects_the_gang(harness: KubernetesHarness, real_node: RealNode) -> None:
    async with harness.runtime(start_s=3.0) as runtime:
        await harness.launch(runtime, harness.job(), harness.replica(), node=real_node.name)
        end = await harness.ended(runtime, harness.replica())
    assert end.state is ReplicaState.REJECTED
    assert "localhost/none:1" in end.reason


async def test_an_instance_reads_the_logs_of_another_instances_job(
    harness: KubernetesHarness, real_node: RealNode
) -> None:
    async with harness.runtime() as runtime, harness.runtime(partitions=0) as other:
        await harness.launch(
            runtime, python_job(harness.job(), "print('hello')"), harness.replica(), node=real_node.name
        )
        async with other.watch_job(harness.job_id):
            assert await written(other, [harness.replica()], follow=True) == "hello\n"
        assert list(other.job_observations(harness.job_id)) == []
