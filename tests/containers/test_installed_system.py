"""The installation of ``deploy/kubernetes`` on a real node: it becomes ready, runs a training job in pods, and the doctor finds its faults.

``muster_testing.containers.installation`` says what differs from the overlay ``production``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from planted_faults import OTHER_VERSION, OTHER_VERSION_IMAGE, ROUNDS, Fault

from muster import AsyncClient, Job
from muster_rpc.v1 import cluster_service_pb2, job_pb2
from muster_runtimes.kubernetes.labels import JOB_ID
from muster_testing.clocks import fake_time_library
from muster_testing.cluster import ControlPlane
from muster_testing.cluster.fixtures import need_node_tools, need_tools
from muster_testing.cluster.node import RealNode
from muster_testing.cluster.program import run_in_new_loop
from muster_testing.containers.base import ROOT
from muster_testing.containers.fixtures import skip_or_fail
from muster_testing.containers.images import TAG, BuiltImages, derive_image
from muster_testing.containers.installation import SERVICES, InstalledSystem
from muster_testing.doctor import DoctorResult, run_doctor

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

DIGITS_IMAGE = f"muster/digits:{TAG}"
#: Kubernetes pulls an image with the tag ``latest`` from its registry, also when the node has it.
DIGITS = (ROOT / "examples/digits/tfjob.yaml").read_text().replace("muster/digits:latest", DIGITS_IMAGE)
PUBLISHED = ("nats:2.15-alpine", "jaegertracing/jaeger:2.13.0")
TIMEOUT_S = 240.0

#: Changes the version as a release does; the compiled file would be used without a look at its source.
_CHANGE_VERSION = (
    "import importlib.util, pathlib, muster_service.version as v; source = pathlib.Path(v.__file__); "
    f"source.write_text(source.read_text().replace(v.VERSION, '{OTHER_VERSION}')); "
    "pathlib.Path(importlib.util.cache_from_source(v.__file__)).unlink()"
)


@pytest.fixture(scope="module")
def archive(all_images: BuiltImages, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The images of the installation, of the example and of another version, as one archive."""
    engine = all_images.engine
    derive_image(
        engine,
        OTHER_VERSION_IMAGE,
        f"FROM muster/scaler:{TAG}\nUSER 0:0\n"
        f'RUN ["/usr/bin/python3", "-c", "{_CHANGE_VERSION}"]\nUSER 10001:10001\n',
    )
    derive_image(
        engine,
        DIGITS_IMAGE,
        f"FROM muster/pod-launcher-process:{TAG}\nWORKDIR /srv/muster\nENV PYTHONSAFEPATH=\nENTRYPOINT []\n",
    )
    own = (f"muster/{name}:{TAG}" for name in (*SERVICES, "provision"))
    file = tmp_path_factory.mktemp("archive") / "images.tar"
    engine.run("save", "--output", file, *own, OTHER_VERSION_IMAGE, DIGITS_IMAGE, *PUBLISHED)
    return file


@pytest.fixture(scope="module")
def installed(
    cluster_tools: None, archive: Path, tmp_path_factory: pytest.TempPathFactory
) -> Generator[InstalledSystem]:
    """The installation, with every deployment available."""
    need_node_tools()
    need_tools("kubectl")
    with ControlPlane(tmp_path_factory.mktemp("control-plane"), service_accounts=True) as control_plane:
        run_in_new_loop(control_plane.start_scheduler())
        folder = tmp_path_factory.mktemp("node")
        node = RealNode(control_plane, folder=folder, images=[archive], offers_api_server=True)
        run_in_new_loop(node.start())
        try:
            installation = InstalledSystem(
                control_plane, node, folder=tmp_path_factory.mktemp("installation")
            )
            installation.apply()
            installation.wait_until_available()
            yield installation
        finally:
            run_in_new_loop(node.lose())


class Trained(msgspec.Struct, frozen=True):
    """The example after its end, its pods when it ran, and what its replicas have written."""

    job: Job
    pods: list[dict[str, Any]]
    output: str


def pods_of(installed: InstalledSystem, job_id: str) -> list[dict[str, Any]]:
    return installed.get("pods", "--namespace=default", "--selector", f"{JOB_ID}={job_id}")["items"]


@pytest.fixture(scope="module")
def trained(installed: InstalledSystem) -> Trained:
    """The example, submitted to the gateway and ended."""

    async def train() -> Trained:
        async with AsyncClient(installed.gateway) as muster, asyncio.timeout(TIMEOUT_S):
            (submitted,) = await muster.submit(DIGITS)
            async for seen in muster.watch(submitted.job_id):
                if seen.status.phase == job_pb2.PHASE_RUNNING:
                    break
            pods = pods_of(installed, submitted.job_id)
            job = await muster.wait(submitted.job_id)
            output = b"".join([chunk.data async for chunk in muster.logs(submitted.job_id)])
        return Trained(job, pods, output.decode())

    return run_in_new_loop(train())


async def found(installed: InstalledSystem, faults: Iterable[Fault]) -> None:
    """Return once the doctor finds each of the faults, and nothing else."""
    expected = [each for fault in faults for each in fault.results]
    results: list[DoctorResult] = []
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                code, results = await run_doctor(installed.gateway)
                assert code == any(each.status == "CHECK_STATUS_ERROR" for each in results)
                if all(any(each.describes(result) for result in results) for each in expected) and all(
                    any(each.describes(result) for each in expected) for result in results
                ):
                    return
                await asyncio.sleep(0.5)
    except TimeoutError:
        raise AssertionError(f"{expected} not found: {results}\n{installed.description()}") from None


async def until_mended(installed: InstalledSystem, faults: Iterable[Fault]) -> None:
    """Mend the faults, and return once the doctor finds nothing."""
    for mend in dict.fromkeys(fault.mend for fault in faults):
        await mend(installed)
    results: list[DoctorResult] = []
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while results := (await run_doctor(installed.gateway))[1]:
                for fault in faults:
                    if fault.comes_again and any(fault.results[0].describes(each) for each in results):
                        await fault.mend(installed)
                await asyncio.sleep(0.5)
    except TimeoutError:
        raise AssertionError(f"not mended: {results}\n{installed.description()}") from None


def ready_replicas(installed: InstalledSystem, kind: str) -> dict[str, int]:
    """Return the ready pods of the workloads of a kind, by name."""
    items: list[dict[str, Any]] = installed.get(kind)["items"]
    return {each["metadata"]["name"]: each["status"].get("readyReplicas", 0) for each in items}


def test_every_deployment_and_the_broker_of_three_are_ready(installed: InstalledSystem) -> None:
    assert ready_replicas(installed, "deployments") == {**dict.fromkeys(SERVICES, 2), "jaeger": 1}
    assert ready_replicas(installed, "statefulsets") == {"nats": 3}


async def test_the_doctor_finds_nothing_wrong(installed: InstalledSystem) -> None:
    async with AsyncClient(installed.gateway) as muster, asyncio.timeout(TIMEOUT_S):
        while True:
            results = (await muster.diagnose()).results
            if all(each.status == cluster_service_pb2.CHECK_STATUS_OK for each in results):
                break
            await asyncio.sleep(0.5)
    messages = {each.check: each.message for each in results}
    assert messages["broker"].endswith("3 servers, JetStream with sync_interval: always")
    assert messages["services"] == "12 instances of 6 services, all ready"
    assert messages["runtime"] == "kubernetes, with all permissions"


def test_the_example_has_trained_in_pods_beside_the_services(
    installed: InstalledSystem, trained: Trained
) -> None:
    # Its policy deletes what still runs at the end.
    left = pods_of(installed, trained.job.job_id)
    workers = [each for each in left if each["metadata"]["name"].startswith("digits-worker-")]

    assert trained.job.status.phase == job_pb2.PHASE_SUCCEEDED, (trained.job.status, trained.output[-2000:])
    assert "final test accuracy 0.9" in trained.output
    names = {each["metadata"]["name"] for each in trained.pods}
    assert {"digits-ps-0", "digits-worker-0", "digits-worker-1"} <= names
    assert {each["spec"]["nodeName"] for each in trained.pods} == {installed.node.name}
    assert "Succeeded" in {each["status"]["phase"] for each in workers}


def need_fake_time() -> None:
    try:
        fake_time_library()
    except FileNotFoundError as error:
        skip_or_fail(str(error))


def test_twelve_faults_are_planted() -> None:
    names = [fault.name for faults in ROUNDS.values() for fault in faults]
    assert len(set(names)) == len(names) >= 12


@pytest.mark.parametrize("name", ROUNDS)
async def test_planted_faults_are_found_and_gone_after_their_fixes(
    installed: InstalledSystem, trained: Trained, name: str
) -> None:
    faults = ROUNDS[name]
    if any(fault.needs_fake_time for fault in faults):
        need_fake_time()
    await until_mended(installed, ())
    for fault in faults:
        await fault.plant(installed)
    try:
        await found(installed, faults)
    finally:
        await until_mended(installed, faults)
