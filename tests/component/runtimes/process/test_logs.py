"""Logs are readable while replicas write them and after their end."""

import asyncio
import subprocess

import pytest
from runtime_harness import TIMEOUT_S, RuntimeHarness, worker

from muster_runtimes import LogChunk
from muster_runtimes.process import ProcessOptions
from muster_runtimes.process.logs import CHUNK_BYTES
from muster_runtimes.process.shim import ReplicaLog


async def wrote(harness: RuntimeHarness, script: str, index: int = 0, restart: int = 0):
    runtime = harness.runtime()
    replica = worker(index, restart=restart)
    await runtime.start(harness.launch(replica, "sh", "-c", script))
    await harness.ended(runtime, replica)
    return runtime


async def test_stdout_and_stderr_are_one_log(harness: RuntimeHarness):
    runtime = await wrote(harness, "echo out; echo err >&2; echo out")

    assert await harness.output(runtime, worker()) == b"out\nerr\nout\n"


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
async def test_tail_returns_the_last_lines(harness: RuntimeHarness, script: str, tail: int, expected: bytes):
    runtime = await wrote(harness, script)

    assert await harness.output(runtime, worker(), tail=tail) == expected


async def test_a_long_log_comes_in_bounded_chunks(harness: RuntimeHarness):
    runtime = await wrote(harness, "head -c 200000 /dev/zero")
    chunks = [chunk async for chunk in runtime.logs("job-1", [worker()], follow=False, tail=None)]

    assert max(len(chunk.data) for chunk in chunks) <= CHUNK_BYTES
    assert sum(len(chunk.data) for chunk in chunks) == 200000


async def test_runs_of_a_replica_are_read_in_order(harness: RuntimeHarness):
    await wrote(harness, "echo second", restart=1)
    await wrote(harness, "echo other", index=1)
    runtime = await wrote(harness, "echo first")
    replicas = [worker(0, restart=1), worker(1), worker(0)]
    followed = [chunk.data async for chunk in runtime.logs("job-1", replicas, follow=True, tail=None)]

    assert await harness.output(runtime, *replicas) == b"first\nsecond\nother\n"
    assert followed.index(b"first\n") < followed.index(b"second\n")
    assert len(followed) == 3


async def test_without_replicas_all_logs_of_the_job_are_read(harness: RuntimeHarness):
    await wrote(harness, "echo one", index=1)
    runtime = await wrote(harness, "echo zero")
    chunks = [chunk async for chunk in runtime.logs("job-1", [], follow=False, tail=None)]

    assert [(chunk.replica.index, chunk.data) for chunk in chunks] == [(0, b"zero\n"), (1, b"one\n")]


async def test_following_interleaves_the_replicas_and_ends_when_they_have_ended(harness: RuntimeHarness):
    runtime = harness.runtime()
    script = "echo hello; while [ ! -e go ]; do sleep 0.02; done; echo bye"
    replicas = [worker(index) for index in range(3)]
    for replica in replicas:
        await runtime.start(harness.launch(replica, "sh", "-c", script))
    chunks: list[LogChunk] = []
    async with asyncio.timeout(TIMEOUT_S):
        async for chunk in runtime.logs("job-1", replicas, follow=True, tail=None):
            chunks.append(chunk)
            if len(chunks) == 3:
                (harness.workdir / "go").touch()

    assert sorted(chunk.replica for chunk in chunks[:3]) == replicas
    for replica in replicas:
        assert b"".join(c.data for c in chunks if c.replica == replica) == b"hello\nbye\n"


async def test_following_waits_for_a_replica_that_has_not_started(harness: RuntimeHarness):
    runtime = harness.runtime()
    await runtime.write_members("job-1", b"{}")
    following = asyncio.create_task(harness.wait_for_output(runtime, worker(), b"here"))
    await asyncio.sleep(0)
    await runtime.start(harness.launch(worker(), "echo", "here"))

    assert await following == b"here\n"


async def test_following_a_forgotten_job_ends(harness: RuntimeHarness):
    runtime = await wrote(harness, "echo once")
    await runtime.forget("job-1")

    assert [chunk async for chunk in runtime.logs("job-1", [worker()], follow=True, tail=None)] == []


async def test_a_bounded_log_keeps_its_newest_bytes_and_reports_what_it_dropped(harness: RuntimeHarness):
    runtime = harness.runtime(ProcessOptions(log_bytes=8192))
    await runtime.start(harness.launch(worker(), "sh", "-c", "seq 20000"))
    await harness.ended(runtime, worker())
    first, *rest = (await harness.output(runtime, worker())).split(b"\n", 1)
    written = "".join(f"{n}\n" for n in range(1, 20001)).encode()

    dropped = int(first.split()[1])
    assert first == b"[muster: %d older bytes of this log were dropped]" % dropped
    assert rest == [written[dropped:]]
    assert 8192 <= len(rest[0]) < 8192 + 4096
    assert await harness.output(runtime, worker(), tail=2) == b"19999\n20000\n"


def test_without_support_for_holes_the_whole_log_is_kept():
    with subprocess.Popen(["sh", "-c", "seq 20000"], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        descriptor = writer.stdout.fileno()
        output = ReplicaLog(descriptor, 1)
        output.trim()
        assert output.check_s is not None
        writer.stdout.read()
