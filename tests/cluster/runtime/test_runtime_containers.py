"""Real containers: what they are given, what they write, and how they end."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from runtime_room import MEMBERS_AT_FIRST, KubeRoom

from muster_core.models import Framework, Job, ReplicaState
from muster_runtimes import ReplicaId
from muster_runtimes.kubernetes import KubernetesRuntime
from muster_testing.cluster.images import PYTHON_IMAGE
from muster_testing.cluster.node import RealNode


def python(job: Job, program: str) -> Job:
    """``job`` with this program in every replica."""
    role = job.roles[0]
    template = msgspec.structs.replace(
        role.template, image=PYTHON_IMAGE, command=("python3", "-uc", program), grace_s=2
    )
    return msgspec.structs.replace(job, roles=(msgspec.structs.replace(role, template=template),))


async def written(
    runtime: KubernetesRuntime,
    replicas: Sequence[ReplicaId],
    *,
    follow: bool = False,
    tail: int | None = None,
) -> str:
    """What the replicas wrote."""
    chunks = runtime.logs(replicas[0].job_id, replicas, follow=follow, tail=tail)
    return b"".join([chunk.data async for chunk in chunks]).decode()


async def test_a_program_finds_its_members_and_its_files(room: KubeRoom, real_node: RealNode) -> None:
    program = "import os; print(open(os.environ['MUSTER_MEMBERS']).read()); print(os.environ['TF_CONFIG'])"
    job = python(room.job(workers=2, framework=Framework.TENSORFLOW), program)
    async with room.runtime() as runtime:
        await room.launch(runtime, job, room.replica(), node=real_node.name)
        end = await room.ended(runtime, room.replica())
        said = await written(runtime, [room.replica()])
    assert (end.state, end.exit_code) == (ReplicaState.EXITED, 0)
    assert '"generation":1' in said
    assert f"mnist-worker-1.{room.namespace}.svc:2222" in said


async def test_a_program_finds_its_members_where_no_config_map_has_them(
    room: KubeRoom, real_node: RealNode
) -> None:
    job = python(room.job(), "import os; print(open(os.environ['MUSTER_MEMBERS']).read())")
    async with room.runtime() as runtime:
        await room.launch(runtime, job, room.replica(), node=real_node.name)
        end = await room.ended(runtime, room.replica())
        assert await room.names("configmaps") == set()
        said = await written(runtime, [room.replica()])
    assert (end.state, end.exit_code) == (ReplicaState.EXITED, 0)
    assert said == MEMBERS_AT_FIRST.decode() + "\n"


async def test_a_log_is_followed_from_before_its_replica_runs(room: KubeRoom, real_node: RealNode) -> None:
    program = "import time\nfor i in range(3): print('line', i); time.sleep(0.3)"
    async with room.runtime() as runtime:
        await room.launch(runtime, python(room.job(), program), room.replica(), node=real_node.name)
        assert await written(runtime, [room.replica()], follow=True) == "line 0\nline 1\nline 2\n"


async def test_a_log_is_kept_after_its_pod_until_the_job_is_forgotten(
    room: KubeRoom, real_node: RealNode
) -> None:
    job = python(room.job(), "print('one'); print('two'); raise SystemExit(3)")
    async with room.runtime() as runtime:
        await room.launch(runtime, job, room.replica(), node=real_node.name)
        end = await room.ended(runtime, room.replica())
        assert (end.state, end.exit_code) == (ReplicaState.EXITED, 3)
        runtime.confirm_recorded(room.job_id, [room.replica()])
        await room.until_let_go()
        await runtime.remove_replicas(room.job_id)
        await room.until_gone("pods")

        assert await written(runtime, [room.replica()]) == "one\ntwo\n"
        assert await written(runtime, [room.replica()], tail=1) == "two\n"
        await runtime.forget(room.job_id)
    assert not (room.path / "logs" / room.job_id).exists()


async def test_a_replica_that_is_stopped_is_given_its_grace(room: KubeRoom, real_node: RealNode) -> None:
    program = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('saved'), sys.exit(0)))\n"
        "print('up')\n"
        "time.sleep(600)"
    )
    async with room.runtime() as runtime:
        await room.launch(runtime, python(room.job(), program), room.replica(), node=real_node.name)
        chunks = runtime.logs(room.job_id, [room.replica()], follow=True, tail=None)
        assert (await anext(chunks)).data == b"up\n"
        await runtime.stop(room.replica(), grace_s=20)
        assert b"".join([chunk.data async for chunk in chunks]) == b"saved\n"
        end = await room.ended(runtime, room.replica())
        runtime.confirm_recorded(room.job_id, [room.replica()])
        await room.until_gone("pods")
        assert await written(runtime, [room.replica()]) == "up\nsaved\n"
    assert (end.state, end.exit_code) == (ReplicaState.EXITED, 0)


async def test_an_image_that_is_not_there_sends_the_gang_back(room: KubeRoom, real_node: RealNode) -> None:
    async with room.runtime(start_s=3.0) as runtime:
        await room.launch(runtime, room.job(), room.replica(), node=real_node.name)
        end = await room.ended(runtime, room.replica())
    assert end.state is ReplicaState.REJECTED
    assert "localhost/none:1" in end.reason


async def test_a_copy_that_does_not_look_after_a_job_can_read_its_logs(
    room: KubeRoom, real_node: RealNode
) -> None:
    async with room.runtime() as runtime, room.runtime(partitions=0) as other:
        await room.launch(runtime, python(room.job(), "print('hello')"), room.replica(), node=real_node.name)
        async with other.watch_job(room.job_id):
            assert await written(other, [room.replica()], follow=True) == "hello\n"
        assert list(other.job_observations(room.job_id)) == []
