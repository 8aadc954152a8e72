"""The deployment in containers, as far as it can be checked without containers."""

from __future__ import annotations

import importlib
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import msgspec
import pytest
import yaml

from muster_bus.server import find_server, server_config
from muster_events.catalogue import SERVICES
from muster_gateway.settings import GatewaySettings
from muster_local import ProvisionSettings
from muster_pod_launcher.settings import PodLauncherSettings
from muster_runtimes.process import parse_nodes
from muster_scaler.settings import ScalerSettings
from muster_scheduler.settings import SchedulerSettings
from muster_service.settings import load_settings, misspelt_variables
from muster_spec_validator.settings import SpecValidatorSettings
from muster_status_tracker.settings import StatusTrackerSettings

ROOT = Path(__file__).resolve().parents[3]
SETTINGS: dict[str, type[msgspec.Struct]] = {
    "gateway": GatewaySettings,
    "spec-validator": SpecValidatorSettings,
    "scheduler": SchedulerSettings,
    "pod-launcher": PodLauncherSettings,
    "scaler": ScalerSettings,
    "status-tracker": StatusTrackerSettings,
}


class Service(msgspec.Struct, frozen=True):
    """The part of a service in ``compose.yaml`` that is checked."""

    image: str
    build: dict[str, str] = {}
    environment: dict[str, str | None] = {}
    depends_on: dict[str, Mapping[str, str]] = {}
    ports: list[str] = []


class Compose(msgspec.Struct, frozen=True):
    """The part of ``compose.yaml`` that is checked."""

    services: dict[str, Service]


def compose() -> Compose:
    return msgspec.convert(cast("object", yaml.safe_load((ROOT / "compose.yaml").read_text())), Compose)


def environment_of(name: str) -> dict[str, str]:
    """Return the variables of a service, with the defaults of those that the shell may set."""
    variables = compose().services[name].environment
    default = re.compile(r"\$\{\w+:-([^}]*)\}")
    return {key: default.sub(r"\1", value) for key, value in variables.items() if value is not None}


def test_every_service_runs() -> None:
    assert set(SERVICES) <= compose().services.keys()


@pytest.mark.parametrize("name", [*SERVICES, "provision"])
def test_a_service_runs_an_image_that_is_built_and_a_module_that_is_there(name: str) -> None:
    service = compose().services[name]
    target = service.build["target"]
    dockerfile = (ROOT / service.build["dockerfile"]).read_text()
    stage = re.search(rf"^FROM \S+ AS {target}\n((?:.+\n)+)", dockerfile, re.MULTILINE)
    assert stage is not None
    entry = re.search(r'^ENTRYPOINT \["/usr/bin/python3", "-m", "([\w.]+)"\]$', stage[1], re.MULTILINE)
    assert entry is not None
    importlib.import_module(entry[1])
    assert service.image == f"muster/{target}:${{MUSTER_TAG:-latest}}"


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_given_settings_that_it_has(name: str) -> None:
    environment = environment_of(name)
    settings = SETTINGS[name]
    load_settings(settings, environment, service=name)
    assert misspelt_variables(settings, environment, service=name) == []
    known = {field.upper() for field in settings.__struct_fields__}
    assert {variable.removeprefix("MUSTER_") for variable in environment} <= known


def test_provisioning_and_the_services_use_the_same_broker() -> None:
    broker = load_settings(ProvisionSettings, environment_of("provision")).bus_url
    assert {environment_of(name)["MUSTER_BUS_URL"] for name in SERVICES} == {broker}


def test_the_gateway_finds_the_others_by_their_names() -> None:
    settings = load_settings(GatewaySettings, environment_of("gateway"), service="gateway")
    targets = {
        settings.spec_validator_address,
        settings.status_tracker_address,
        settings.scheduler_address,
        settings.pod_launcher_address,
    }
    for target in targets:
        host, _, port = target.removeprefix("dns:///").partition(":")
        assert environment_of(host)["MUSTER_GRPC_ADDRESS"].endswith(f":{port}")


def test_the_nodes_can_be_understood() -> None:
    described = environment_of("pod-launcher")["MUSTER_NODES"]
    assert len(parse_nodes(described.split(";"))) == 2


def test_everything_is_published_on_the_loopback_interface_only() -> None:
    ports = [port for service in compose().services.values() for port in service.ports]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_the_broker_takes_its_configuration_which_is_that_of_muster_up(tmp_path: Path) -> None:
    config = ROOT / "deploy/nats/nats.conf"
    checked = subprocess.run(
        [find_server(), "--config", config, "-t"], capture_output=True, text=True, timeout=30, check=False
    )
    assert checked.returncode == 0, checked.stderr
    own = server_config(4222, tmp_path)
    for line in ("max_payload: 8MB", "sync_interval: always"):
        assert line in own
        assert re.search(rf"^\s*{line}$", config.read_text(), re.MULTILINE)
