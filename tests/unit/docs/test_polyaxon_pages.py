"""The documents on the pages of Polyaxon 0.x and of defaults are valid."""

import re
from pathlib import Path

import pytest

from muster_core.models import Severity
from muster_formats import parse
from muster_formats.defaults import parse_defaults
from muster_formats.polyaxon_v0.environment import V0JobEnvFields

DOCS = Path(__file__).resolve().parents[3] / "docs"


def examples(page: str) -> list[str]:
    return re.findall(r"^```yaml\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


def test_the_experiment_is_a_build_and_eleven_replicas() -> None:
    (document,) = examples("polyaxon-0.md")
    parsed = parse(document, name="mnist")
    assert parsed.problems == ()
    build, experiment = parsed.jobs
    assert experiment.built_by == build.name
    assert sum(role.replicas for role in experiment.roles) == 11
    worker = experiment.role("worker")
    assert worker
    assert worker.overrides[2].node_selector == {"disk": "fast"}
    assert worker.overrides[2].requests == worker.template.requests


def test_every_field_of_the_environment_is_on_the_page() -> None:
    page = (DOCS / "polyaxon-0.md").read_text()
    assert [key for key in V0JobEnvFields.fields() if f"`{key}" not in page and key != "index"] == []


@pytest.mark.parametrize("document", examples("defaults.md"))
def test_the_defaults_have_no_errors(document: str) -> None:
    parsed = parse_defaults(document)
    assert [problem for problem in parsed.problems if problem.severity is Severity.ERROR] == []
