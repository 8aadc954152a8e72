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

    command: list[str] = []
    environment: dict[str, str] = {}
    depends_on: dict[str, Mapping[str, str]] = {}
    ports: list[str] = []


class Compose(msgspec.Struct, frozen=True):
    """The part of ``compose.yaml`` that is checked."""

    services: dict[str, Service]


def compose() -> Compose:
    return msgspec.convert(cast("object", yaml.safe_load((ROOT / "compose.yaml").read_text())), Compose)


def test_every_service_runs() -> None:
    assert set(SERVICES) <= compose().services.keys()


@pytest.mark.parametrize("name", [*SERVICES, "provision"])
def test_a_service_runs_a_module_that_is_there(name: str) -> None:
    *python, module = compose().services[name].command
    assert python == ["python", "-m"]
    importlib.import_module(module)


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_given_settings_that_it_has(name: str) -> None:
    environment = compose().services[name].environment
    settings = SETTINGS[name]
    load_settings(settings, environment, service=name)
    assert misspelt_variables(settings, environment, service=name) == []
    known = {field.upper() for field in settings.__struct_fields__}
    assert {variable.removeprefix("MUSTER_") for variable in environment} <= known


def test_provisioning_and_the_services_use_the_same_broker() -> None:
    services = compose().services
    broker = load_settings(ProvisionSettings, services["provision"].environment).bus_url
    assert {services[name].environment["MUSTER_BUS_URL"] for name in SERVICES} == {broker}


def test_the_gateway_finds_the_others_by_their_names() -> None:
    services = compose().services
    settings = load_settings(GatewaySettings, services["gateway"].environment, service="gateway")
    targets = {
        settings.spec_validator_address,
        settings.status_tracker_address,
        settings.scheduler_address,
        settings.pod_launcher_address,
    }
    for target in targets:
        host, _, port = target.removeprefix("dns:///").partition(":")
        assert services[host].environment["MUSTER_GRPC_ADDRESS"].endswith(f":{port}")


def test_the_nodes_can_be_understood() -> None:
    described = compose().services["pod-launcher"].environment["MUSTER_NODES"]
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


def test_the_image_installs_every_member() -> None:
    text = (ROOT / "deploy/images/Dockerfile").read_text()
    members = sorted(p.parent.relative_to(ROOT) for p in ROOT.glob("*/*/pyproject.toml"))
    assert len(members) >= 13
    for member in members:
        assert re.search(rf"\b{member}\b", text), member
