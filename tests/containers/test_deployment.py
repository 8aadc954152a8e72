"""The deployment of ``compose.yaml``: a training job in it, its trace in a real Jaeger, killed containers, and scaling."""

from __future__ import annotations

import asyncio
import json
import re
import time
import urllib.parse
import urllib.request
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import cast

import pytest

from muster import AsyncClient, Job
from muster._trace.spans import read_documents
from muster.errors import Rejected
from muster_rpc.convert import event_name
from muster_rpc.v1 import job_pb2, job_service_pb2
from muster_testing.containers import Deployment
from muster_testing.containers.base import ROOT

SERVICES = ("gateway", "spec-validator", "scheduler", "pod-launcher", "scaler", "status-tracker")
DIGITS = (ROOT / "examples/digits/tfjob.yaml").read_text()
TIMEOUT_S = 120.0


@pytest.fixture
async def muster(deployment: Deployment) -> AsyncGenerator[AsyncClient]:
    """A client of the gateway."""
    async with AsyncClient(deployment.address) as client:
        yield client


def shell_job(name: str, command: str) -> str:
    """A job of one replica in the native format."""
    role = {"replicas": 1, "command": ["sh", "-c", command], "resources": {"cpu": "100m", "memory": "64Mi"}}
    document = {
        "apiVersion": "muster.dev/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"roles": {"worker": role}},
    }
    return json.dumps(document)


async def output_of(muster: AsyncClient, job_id: str) -> str:
    return b"".join([chunk.data async for chunk in muster.logs(job_id)]).decode()


async def ended(muster: AsyncClient, job_id: str) -> Job:
    """Return the job once it has ended."""
    async with asyncio.timeout(TIMEOUT_S):
        return await muster.wait(job_id)


async def wait_for(muster: AsyncClient, job_id: str, condition: Callable[[Job], bool]) -> Job:
    """Return the job once the condition holds."""
    async with asyncio.timeout(TIMEOUT_S):
        async for seen in muster.watch(job_id):
            if condition(seen):
                return seen
    raise AssertionError(f"{job_id} ended before the condition held")


async def page_of(muster: AsyncClient, job: str, port: int) -> bytes:
    """Return the answer of a job's web server, which may listen a little after the replica runs."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            answer = b""
            with suppress(Rejected):
                async with await muster.connect(job, port) as connection:
                    await connection.write(b"GET /page HTTP/1.0\r\n\r\n")
                    while more := await connection.read():
                        answer += more
            if answer:
                return answer
            await asyncio.sleep(0.2)


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


class StoredTrace:
    """A trace as Jaeger has stored it: every span that it was sent, also twice."""

    def __init__(self, text: str) -> None:
        self.spans: list[dict[str, str]] = []
        for document in read_documents(text):
            result = cast("dict[str, list[dict[str, object]]]", document.get("result", document))
            for resource in result["resourceSpans"]:
                self._add(cast("dict[str, dict[str, object]]", resource))

    def _add(self, resource: dict[str, dict[str, object]]) -> None:
        attributes = cast("list[dict[str, object]]", resource["resource"]["attributes"])
        (service,) = [one["value"] for one in attributes if one["key"] == "service.name"]
        name = cast("dict[str, str]", service)["stringValue"]
        for scope in cast("list[dict[str, list[dict[str, str]]]]", resource["scopeSpans"]):
            self.spans += [{**span, "service": name} for span in scope["spans"]]

    @property
    def services(self) -> set[str]:
        return {span["service"] for span in self.spans}

    @property
    def names(self) -> list[str]:
        return sorted(span["name"] for span in self.spans)

    @property
    def roots(self) -> list[str]:
        return [span["name"] for span in self.spans if not span.get("parentSpanId")]

    @property
    def orphans(self) -> list[str]:
        ids = {span["spanId"] for span in self.spans}
        return [
            span["name"]
            for span in self.spans
            if span.get("parentSpanId") and span["parentSpanId"] not in ids
        ]

    @property
    def repeated(self) -> list[str]:
        ids = [span["spanId"] for span in self.spans]
        return [span["name"] for span in self.spans if ids.count(span["spanId"]) > 1]


async def stored_trace(deployment: Deployment, trace_id: str) -> StoredTrace:
    """Return a trace once it has the span of the whole job, and no more spans have arrived for three seconds."""
    url = f"{deployment.trace_query_url}/api/v3/traces/{trace_id}"
    seen = StoredTrace("")
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            await asyncio.sleep(3)
            before, seen = seen, StoredTrace(await asyncio.to_thread(fetch, url))
            if "run" in seen.names and "clean up" in seen.names and seen.names == before.names:
                return seen


def assert_one_tree(trace: StoredTrace) -> None:
    assert trace.services == set(SERVICES), trace.names
    assert trace.roots == ["SubmitJob"]
    assert trace.orphans == []
    assert trace.repeated == []


async def test_the_example_grows_and_its_trace_in_jaeger_is_one_tree(
    deployment: Deployment, muster: AsyncClient
) -> None:
    (submitted,) = await muster.submit(DIGITS)
    job = await ended(muster, submitted.job_id)
    logs = await output_of(muster, submitted.job_id)

    assert job.status.phase == job_pb2.PHASE_SUCCEEDED, job.status
    assert re.search(r"final test accuracy 0\.9\d+", logs), logs[-2000:]
    resized = [entry.message for entry in job.status.history if event_name(entry.event) == "JobResized"]
    assert any("grow worker from 2 to" in message for message in resized), resized
    assert_one_tree(await stored_trace(deployment, submitted.trace_id))


async def killed_before_running(deployment: Deployment, muster: AsyncClient) -> job_service_pb2.SubmittedJob:
    """Kill pod-launcher and status-tracker before a job's replicas run; return the job."""
    killed = [*deployment.containers("pod-launcher"), *deployment.containers("status-tracker")]
    async with asyncio.timeout(3 * TIMEOUT_S):
        while True:
            (submitted,) = await muster.submit(DIGITS)
            await wait_for(muster, submitted.job_id, lambda job: bool(job.status.replicas))
            deployment.engine.run("kill", *killed)
            killed_at = time.time()
            deployment.engine.run("start", *killed)
            deployment.wait_until_healthy("pod-launcher", "status-tracker")
            history = (await muster.get(submitted.job_id)).status.history
            if not any(
                "running" in each.message and each.at.ToMicroseconds() < killed_at * 1e6 for each in history
            ):
                return submitted
            # They ran already. What pod-launcher has not sent yet of its spans is lost then.
            await muster.cancel(submitted.job_id)
            await ended(muster, submitted.job_id)


async def test_a_trace_is_one_tree_after_kills_between_launch_and_running(
    deployment: Deployment, muster: AsyncClient
) -> None:
    submitted = await killed_before_running(deployment, muster)
    job = await ended(muster, submitted.job_id)

    assert job.status.phase == job_pb2.PHASE_SUCCEEDED, job.status
    assert_one_tree(await stored_trace(deployment, submitted.trace_id))


async def test_replicas_run_as_a_user_of_their_job_without_the_services_environment(
    deployment: Deployment, muster: AsyncClient
) -> None:
    commands = {
        "user": "id -u",
        "environment": "cat /proc/1/environ | tr '\\0' '\\n'",
        "launcher": "for p in /proc/[0-9]*; do if grep -qs 'muster[_]pod_launcher' $p/cmdline; then cat $p/environ; fi; done",
        "jobs": "ls /var/lib/muster/replicas /var/lib/muster/replicas/jobs",
        "other": "cat /var/lib/muster/replicas/jobs/*/*/*/spec.json",
        "capabilities": "grep CapEff /proc/self/status",
        "variables": "env | grep -E '^MUSTER_(BUS_URL|OTLP_ENDPOINT|REPLICA_USERS|PROCESS_ROOT)'",
        "write": "touch /srv/muster/x /etc/x /var/lib/muster/x",
    }
    script = "; ".join(f"echo '[{name}]'; ({command}) 2>/dev/null" for name, command in commands.items())
    found: list[dict[str, str]] = []
    for name in ("first", "second"):
        (submitted,) = await muster.submit(shell_job(name, script + "; true"))
        await ended(muster, submitted.job_id)
        parts = re.split(r"\[(\w+)\]\n", await output_of(muster, submitted.job_id))
        found.append(dict(zip(parts[1::2], parts[2::2], strict=True)))

    users = [int(each.pop("user")) for each in found]
    assert all(20_000 <= user < 60_000 for user in users)
    assert users[0] != users[1]
    for each in found:
        assert each.pop("capabilities").split() == ["CapEff:", "0000000000000000"]
        assert each == dict.fromkeys(each, "")


async def test_commands_and_connections_reach_a_replica_of_another_user(
    deployment: Deployment, muster: AsyncClient
) -> None:
    server = "python -m http.server --bind 127.0.0.1 --directory $HOME 8000"
    (submitted,) = await muster.submit(shell_job("server", f"echo served > $HOME/page; {server}"))
    await wait_for(muster, submitted.job_id, lambda job: job.status.phase == job_pb2.PHASE_RUNNING)
    async with await muster.exec("server", ["id", "-u"]) as session:
        user = b"".join([output.data async for output in session])
    try:
        answer = await page_of(muster, "server", 8000)
    except BaseException:
        print(deployment.logs("gateway", "pod-launcher"))
        raise
    await muster.cancel(submitted.job_id)

    assert int(user) >= 20_000
    assert answer.endswith(b"served\n")


async def test_prometheus_scrapes_every_instance(deployment: Deployment) -> None:
    if "prometheus" not in deployment.services():
        pytest.skip("prometheus is not installed")
    query = urllib.parse.quote('up{job=~"muster-.*"} == 1')
    url = f"{deployment.metrics_url}/api/v1/query?query={query}"
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            result = json.loads(await asyncio.to_thread(fetch, url))["data"]["result"]
            if {each["metric"]["job"] for each in result} == {f"muster-{service}" for service in SERVICES}:
                return
            await asyncio.sleep(1)


async def test_every_container_is_restricted(deployment: Deployment) -> None:
    for service in deployment.services():
        for container in deployment.containers(service):
            host = cast("dict[str, object]", deployment.engine.inspect(container)["HostConfig"])
            assert host["ReadonlyRootfs"], service
            assert host["CapDrop"] == ["ALL"], service
            assert host["SecurityOpt"] == ["no-new-privileges:true"], service
            assert cast("int", host["Memory"]) > 0, service
            assert cast("int", host["PidsLimit"]) > 0, service
            assert bool(host["CapAdd"]) is (service == "pod-launcher"), service


async def test_services_are_scaled_and_a_second_pod_launcher_says_why_it_does_not_start(
    deployment: Deployment, muster: AsyncClient
) -> None:
    scaled = ("spec-validator", "scheduler", "scaler", "status-tracker")
    options = [option for service in scaled for option in ("--scale", f"{service}=2")]
    launchers = ("--scale", "pod-launcher=2")
    deployment.compose(
        "up", "--detach", "--no-build", "--no-recreate", *options, *launchers, *scaled, "pod-launcher"
    )
    try:
        deployment.wait_until_healthy(*scaled)
        first, second = deployment.containers("pod-launcher")
        async with asyncio.timeout(TIMEOUT_S):
            while "in another container" not in deployment.engine.logs(second):
                await asyncio.sleep(0.2)
        assert deployment.engine.health(first) == "healthy"
        assert deployment.engine.health(second) != "healthy"
        (submitted,) = await muster.submit(shell_job("scaled", "true"))
        job = await ended(muster, submitted.job_id)
        assert job.status.phase == job_pb2.PHASE_SUCCEEDED
        assert [len(deployment.containers(service)) for service in scaled] == [2] * len(scaled)
    finally:
        back = [option for service in (*scaled, "pod-launcher") for option in ("--scale", f"{service}=1")]
        deployment.compose("up", "--detach", "--no-build", "--no-recreate", *back, *scaled, "pod-launcher")


async def test_the_gateway_is_scaled_over_a_range_of_ports(deployment: Deployment) -> None:
    port = int(deployment.address.rpartition(":")[2])
    environment = {"MUSTER_GATEWAY_PORTS": f"{port}-{port + 3}"}
    try:
        deployment.compose(
            *("up", "--detach", "--no-build", "--no-deps", "--scale", "gateway=2", "gateway"),
            environment=environment,
        )
        deployment.wait_until_healthy("gateway")
        ports = [
            int(deployment.engine.run("port", container, "7000").rpartition(":")[2])
            for container in deployment.containers("gateway")
        ]
        assert len(set(ports)) == 2
        for each in ports:
            async with AsyncClient(f"127.0.0.1:{each}") as muster:
                assert [node.name async for node in muster.nodes()] == ["n1", "n2"]
    finally:
        deployment.compose("up", "--detach", "--no-build", "--no-deps", "gateway")
