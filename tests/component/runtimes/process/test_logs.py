"""What replicas write can be read while they write and after they ended."""

import asyncio
import subprocess

import pytest
from process_room import PATIENCE_S, Room, worker

from muster_runtimes import LogChunk
from muster_runtimes.process import ProcessOptions
from muster_runtimes.process.logs import CHUNK_BYTES
from muster_runtimes.process.shim import ReplicaLog


async def wrote(room: Room, script: str, index: int = 0, restart: int = 0):
    runtime = room.runtime()
    replica = worker(index, restart=restart)
    await runtime.start(room.launch(replica, "sh", "-c", script))
    await room.ended(runtime, replica)
    return runtime


async def test_both_outputs_are_one_log(room: Room):
    runtime = await wrote(room, "echo out; echo err >&2; echo out")

    assert await room.output(runtime, worker()) == b"out\nerr\nout\n"


@pytest.mark.parametrize(
    ("script", "tail", "expected"),
    [
        ("seq 5", 2, b"4\n5\n"),
        ("seq 5; printf half", 2, b"5\nhalf"),
        ("seq 3", 3, b"1\n2\n3\n"),
        ("seq 3", 9, b"1\n2\n3\n"),
        ("seq 3", 0, b""),
        ("true", 3, b""),
        ("echo; echo; echo", 2, b"\n\n"),
        ("seq 100000", 20000, "".join(f"{n}\n" for n in range(80001, 100001)).encode()),
    ],
)
async def test_tail_is_the_last_lines(room: Room, script: str, tail: int, expected: bytes):
    runtime = await wrote(room, script)

    assert await room.output(runtime, worker(), tail=tail) == expected


async def test_a_long_log_comes_in_bounded_chunks(room: Room):
    runtime = await wrote(room, "head -c 200000 /dev/zero")
    chunks = [chunk async for chunk in runtime.logs("job-1", [worker()], follow=False, tail=None)]

    assert max(len(chunk.data) for chunk in chunks) <= CHUNK_BYTES
    assert sum(len(chunk.data) for chunk in chunks) == 200000


async def test_the_runs_of_a_replica_come_in_their_order(room: Room):
    await wrote(room, "echo second", restart=1)
    await wrote(room, "echo other", index=1)
    runtime = await wrote(room, "echo first")
    replicas = [worker(0, restart=1), worker(1), worker(0)]
    followed = [chunk.data async for chunk in runtime.logs("job-1", replicas, follow=True, tail=None)]

    assert await room.output(runtime, *replicas) == b"first\nsecond\nother\n"
    assert followed.index(b"first\n") < followed.index(b"second\n")
    assert len(followed) == 3


async def test_no_replicas_means_all_of_the_job(room: Room):
    await wrote(room, "echo one", index=1)
    runtime = await wrote(room, "echo zero")
    chunks = [chunk async for chunk in runtime.logs("job-1", [], follow=False, tail=None)]

    assert [(chunk.replica.index, chunk.data) for chunk in chunks] == [(0, b"zero\n"), (1, b"one\n")]


async def test_following_interleaves_the_replicas_and_ends_when_they_have_ended(room: Room):
    runtime = room.runtime()
    script = "echo hello; while [ ! -e go ]; do sleep 0.02; done; echo bye"
    replicas = [worker(index) for index in range(3)]
    for replica in replicas:
        await runtime.start(room.launch(replica, "sh", "-c", script))
    chunks: list[LogChunk] = []
    async with asyncio.timeout(PATIENCE_S):
        async for chunk in runtime.logs("job-1", replicas, follow=True, tail=None):
            chunks.append(chunk)
            if len(chunks) == 3:
                (room.workdir / "go").touch()

    assert sorted(chunk.replica for chunk in chunks[:3]) == replicas
    for replica in replicas:
        assert b"".join(c.data for c in chunks if c.replica == replica) == b"hello\nbye\n"


async def test_following_waits_for_a_replica_that_has_not_begun(room: Room):
    runtime = room.runtime()
    await runtime.write_members("job-1", b"{}")
    following = asyncio.create_task(room.says(runtime, worker(), b"here"))
    await asyncio.sleep(0)
    await runtime.start(room.launch(worker(), "echo", "here"))

    assert await following == b"here\n"


async def test_following_a_job_that_is_forgotten_ends(room: Room):
    runtime = await wrote(room, "echo once")
    await runtime.forget("job-1")

    assert [chunk async for chunk in runtime.logs("job-1", [worker()], follow=True, tail=None)] == []


async def test_a_log_keeps_its_newest_bytes_and_says_what_it_dropped(room: Room):
    runtime = room.runtime(ProcessOptions(log_bytes=8192))
    await runtime.start(room.launch(worker(), "sh", "-c", "seq 20000"))
    await room.ended(runtime, worker())
    first, *rest = (await room.output(runtime, worker())).split(b"\n", 1)
    written = "".join(f"{n}\n" for n in range(1, 20001)).encode()

    dropped = int(first.split()[1])
    assert first == b"[muster: %d older bytes of this log were dropped]" % dropped
    assert rest == [written[dropped:]]
    assert 8192 <= len(rest[0]) < 8192 + 4096
    assert await room.output(runtime, worker(), tail=2) == b"19999\n20000\n"


def test_a_file_system_that_cannot_drop_keeps_everything():
    with subprocess.Popen(["sh", "-c", "seq 20000"], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        descriptor = writer.stdout.fileno()
        output = ReplicaLog(descriptor, 1)
        output.trim()
        assert output.check_s is not None
        writer.stdout.read()
