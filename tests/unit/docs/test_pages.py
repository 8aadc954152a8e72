"""The pages agree with the code on documents and settings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from muster_core.models import Severity
from muster_formats import parse
from muster_formats.native.fields import (
    BuildFields,
    ElasticFields,
    JobSpecFields,
    OptionFields,
    OverrideFields,
    PlacementFields,
    RendezvousFields,
    RoleFields,
    RunFields,
)
from muster_formats.schema import Table
from muster_gateway.settings import GatewaySettings
from muster_local.provision import ProvisionSettings
from muster_pod_launcher.settings import PodLauncherSettings
from muster_scaler.settings import ScalerSettings
from muster_scheduler.settings import SchedulerSettings
from muster_service.settings import describe_settings
from muster_spec_validator.settings import SpecValidatorSettings
from muster_status_tracker.settings import StatusTrackerSettings

DOCS = Path(__file__).resolve().parents[3] / "docs"
SETTINGS = (
    GatewaySettings,
    PodLauncherSettings,
    ScalerSettings,
    SchedulerSettings,
    SpecValidatorSettings,
    StatusTrackerSettings,
)
KNOWN = {row.variable for settings in (*SETTINGS, ProvisionSettings) for row in describe_settings(settings)}
OF_ONE_SERVICE = "MUSTER_SCHEDULER_BUS_URL"


def native_examples() -> list[str]:
    return re.findall(r"^```yaml\n(.*?)^```$", (DOCS / "native.md").read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("document", native_examples())
def test_the_native_examples_have_no_errors(document: str) -> None:
    parsed = parse(document)
    assert [problem for problem in parsed.problems if problem.severity is Severity.ERROR] == []
    assert len(parsed.jobs) == document.count("apiVersion:")


TABLES = [
    JobSpecFields,
    RoleFields,
    OverrideFields,
    PlacementFields,
    ElasticFields,
    RunFields,
    OptionFields,
    RendezvousFields,
    BuildFields,
]


@pytest.mark.parametrize("table", TABLES)
def test_every_native_field_is_shown(table: type[Table]) -> None:
    page = (DOCS / "native.md").read_text()
    for key in table.fields():
        assert re.search(rf"\b{key}(:|`)", page), key


def test_every_setting_is_in_the_table_of_operations() -> None:
    named = set(re.findall(r"`(MUSTER_[A-Z_]+)`", (DOCS / "operations.md").read_text()))
    assert named - {OF_ONE_SERVICE} == KNOWN
