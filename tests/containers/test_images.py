"""Each image runs without privileges, becomes healthy, is small, and says what it is made of."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from secrets import token_hex
from typing import cast

import pytest

from muster_bus import BusSettings
from muster_local import provision_bus
from muster_testing.broker import Broker
from muster_testing.cluster import Cluster
from muster_testing.cluster.program import free_port
from muster_testing.containers import Engine
from muster_testing.containers.base import ROOT
from muster_testing.containers.contents import ImageContents
from muster_testing.containers.images import LICENCES, SOURCE, TAG

MB = 1_000_000
LIMITS = {
    "gateway": 120 * MB,
    "spec-validator": 120 * MB,
    "scheduler": 120 * MB,
    "scaler": 120 * MB,
    "status-tracker": 120 * MB,
    "pod-launcher": 150 * MB,
    "provision": 120 * MB,
}
SERVICES = [name for name in LIMITS if name != "provision"]
PROGRAMS = re.compile(r"^(usr/)?(local/)?s?bin/(?P<name>.+)$")
INSTALLED = re.compile(r"-packages/(?P<name>[^/]+)-(?P<version>[^-/]+)\.dist-info$")
#: The packages of a lock for Linux.
LOCKED = re.compile(r"^([A-Za-z0-9._-]+)==[^\s;]+ (?!; sys_platform == 'win32')", re.MULTILINE)
UNPRIVILEGED = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
TIMEOUT_S = 60.0

Contents = Callable[[str], ImageContents]


@contextmanager
def container(engine: Engine, image: str, *options: str) -> Generator[str]:
    """Run a container of an image of Muster, and remove it afterwards; yields its name."""
    name = f"muster-test-{token_hex(4)}"
    try:
        engine.run("run", "--detach", "--name", name, *options, f"muster/{image}:{TAG}")
        yield name
    finally:
        engine.run("rm", "--force", "--volumes", name)


def canonical(name: str) -> str:
    """Return the name of a package as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def wait_until(engine: Engine, name: str, wanted: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while (seen := engine.health(name)) != wanted:
        assert not seen.startswith("exited"), f"{seen}: {engine.logs(name)}"
        assert time.monotonic() < deadline, f"{seen}: {engine.logs(name)}"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def contents(images: Engine, tmp_path_factory: pytest.TempPathFactory) -> Contents:
    """Returns the files of an image, which are exported once."""
    folder = tmp_path_factory.mktemp("contents")

    @cache
    def of(image: str) -> ImageContents:
        return ImageContents(images, f"muster/{image}:{TAG}", folder / f"{image}.tar")

    return of


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Generator[Broker]:
    """A broker of this machine."""
    with Broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


def on_this_machine(broker: Broker) -> tuple[str, ...]:
    """Options for a container that uses the network of this machine."""
    return (
        *("--network", "host", "--env", f"MUSTER_BUS_URL={broker.url}", "--health-interval", "1s"),
        *("--env", f"MUSTER_METRICS_ADDRESS=127.0.0.1:{free_port()}"),
        *("--env", "MUSTER_GRPC_ADDRESS=127.0.0.1:0"),
    )


def test_the_provision_image_creates_what_the_services_need(images: Engine, broker: Broker) -> None:
    options = ("--network", "host", "--env", f"MUSTER_BUS_URL={broker.url}")
    with container(images, "provision", *options, *UNPRIVILEGED) as name:
        code = images.run("wait", name).strip()
        assert code == "0", images.logs(name)


@pytest.mark.parametrize("service", SERVICES)
async def test_an_image_runs_without_privileges_and_becomes_healthy(
    images: Engine, broker: Broker, service: str
) -> None:
    await provision_bus(BusSettings(url=broker.url))
    own = ("--tmpfs", "/var/lib/muster:uid=10001,gid=10001") if service == "pod-launcher" else ()
    with container(images, service, *on_this_machine(broker), *UNPRIVILEGED, *own) as name:
        wait_until(images, name, "healthy")
        user = images.run("inspect", "--format", "{{.Config.User}}", name).strip()
        images.run("stop", "--time", "10", name)
        code = images.run("wait", name).strip()
    assert (user, code) == ("10001:10001", "0")


async def test_an_image_is_unhealthy_without_its_broker(images: Engine, broker: Broker) -> None:
    options = on_this_machine(broker)
    url = f"MUSTER_BUS_URL=nats://127.0.0.1:{free_port()}"
    with container(
        images, "scheduler", *options, "--env", url, "--health-start-period", "1ms", "--health-retries", "1"
    ) as name:
        wait_until(images, name, "unhealthy")


async def test_the_pod_launcher_image_uses_a_real_cluster(
    images: Engine, broker: Broker, cluster: Cluster, tmp_path: Path
) -> None:
    await provision_bus(BusSettings(url=broker.url))
    kubeconfig = cluster.kubeconfig
    kubeconfig.chmod(0o644)
    mount = ("--volume", f"{kubeconfig.parent}:{kubeconfig.parent}:ro", "--user", "0:0")
    settings = ("--env", "MUSTER_RUNTIME=kubernetes", "--env", f"MUSTER_KUBECONFIG={kubeconfig}")
    own = ("--tmpfs", "/var/lib/muster", "--tmpfs", "/tmp")
    with container(
        images, "pod-launcher", *on_this_machine(broker), *UNPRIVILEGED, *own, *mount, *settings
    ) as name:
        wait_until(images, name, "healthy")


@pytest.mark.parametrize("image", LIMITS)
def test_an_image_is_small(images: Engine, image: str) -> None:
    assert images.image_bytes(f"muster/{image}:{TAG}") < LIMITS[image]


@pytest.mark.parametrize("image", LIMITS)
def test_an_image_has_no_program_but_python_and_its_probe(contents: Contents, image: str) -> None:
    found = {match["name"] for path in contents(image).members if (match := PROGRAMS.match(path))}
    assert {name for name in found if not name.startswith("python")} == {"muster-probe"}
    assert {"python", "python3"} < found


@pytest.mark.parametrize("image", [*LIMITS, "pod-launcher-process"])
def test_packages_are_compiled_and_there_is_no_pip(contents: Contents, image: str) -> None:
    paths = [path for path in contents(image).members if path.startswith("usr/")]
    sources = {path for path in paths if path.endswith(".py") and "-packages/" in path}
    compiled = {re.sub(r"__pycache__/([^/]+)\.cpython-\d+\.pyc$", r"\1.py", path) for path in paths}
    assert len(sources) > 500
    # Templates and the like that are no Python of this version.
    assert len(sources - compiled) <= 5, sources - compiled
    assert not [path for path in paths if re.search(r"-packages/(pip|setuptools|hatchling)/", path)]
    assert not {"etc/pip.conf", "wheels", "members", "build"} & contents(image).members.keys()


@pytest.mark.parametrize("image", [*LIMITS, "pod-launcher-process"])
def test_the_bill_of_materials_lists_every_package(contents: Contents, image: str) -> None:
    files = contents(image)
    document = json.loads(files.read(f"usr/share/sbom/muster-{image}.cdx.json"))
    listed = {(canonical(each["name"]), each["version"]) for each in document["components"]}
    installed = {
        (canonical(found["name"]), found["version"])
        for path in files.members
        if (found := INSTALLED.search(path))
    }
    debian = {path.rpartition("/")[2] for path in files.members if "/status.d/" in path}

    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.5")
    assert document["metadata"]["component"]["name"] == f"muster-{image}"
    assert installed <= listed
    assert {"libc6", "libssl3", "ca-certificates"} <= debian
    assert {name for name, _ in listed - installed} == {canonical(name) for name in debian}
    assert all(each["purl"].startswith(("pkg:pypi/", "pkg:deb/debian/")) for each in document["components"])


@pytest.mark.parametrize("image", LIMITS)
def test_an_image_has_the_packages_of_its_lock_and_its_members_only(contents: Contents, image: str) -> None:
    lock = ROOT / (
        "deploy/images/provision.lock" if image == "provision" else f"services/{image}/requirements.lock"
    )
    names = {found["name"] for path in contents(image).members if (found := INSTALLED.search(path))}
    packages = {canonical(name) for name in names}
    members = {name for name in packages if name == "muster" or name.startswith("muster-")}

    assert packages - members == {canonical(name) for name in LOCKED.findall(lock.read_text())}
    services = {name for name in members if name.removeprefix("muster-") in SERVICES}
    assert services == ({f"muster-{image}"} if image in SERVICES else set())


@pytest.mark.parametrize("image", [*LIMITS, "pod-launcher-process"])
def test_the_labels_say_what_the_image_is(images: Engine, image: str) -> None:
    config = cast("dict[str, dict[str, str]]", images.inspect(f"muster/{image}:{TAG}")["Config"])
    labels = config["Labels"]
    prefix = "org.opencontainers.image."
    assert labels[f"{prefix}title"].startswith(f"Muster {image.removesuffix('-process')}")
    assert re.fullmatch(r"\d+\.\d+\.\d+", labels[f"{prefix}version"])
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?", labels[f"{prefix}revision"])
    assert labels[f"{prefix}source"] == SOURCE
    assert labels[f"{prefix}licenses"] == LICENCES
