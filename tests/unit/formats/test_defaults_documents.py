"""Platform defaults are read from Polyaxon's configuration and from native documents."""

import importlib.util
import json
from pathlib import Path

import msgspec
import pytest
import yaml

from muster_core.models import Category, Severity, Toleration
from muster_formats.defaults import (
    CategoryDefaults,
    PlatformDefaults,
    defaults_schema,
    defaults_text,
    parse_defaults,
    to_native_defaults,
)

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden" / "defaults"
ZONES = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}]
    }
}
DEFAULTS = PlatformDefaults(
    experiments=CategoryDefaults(
        node_selector={"polyaxon.com": "gpu-nodes"},
        tolerations=(Toleration(key="gpu", operator="Exists", effect="NoSchedule"),),
    ),
    jobs=CategoryDefaults(node_affinity=ZONES),
    builds=CategoryDefaults(node_selector={"polyaxon.com": "builds"}),
)


def problems_of(text: str) -> list[tuple[str, str, Severity]]:
    return [(problem.code, problem.path, problem.severity) for problem in parse_defaults(text).problems]


def test_polyaxon_s_configuration_is_read_with_warnings_for_the_rest() -> None:
    parsed = parse_defaults((GOLDEN / "polyaxon_config.yml").read_bytes())
    assert parsed.defaults == DEFAULTS
    assert {(problem.code, problem.severity) for problem in parsed.problems} == {
        ("Ignored", Severity.WARNING)
    }
    assert [problem.path for problem in parsed.problems] == [
        "rbac",
        "postgresql",
        "nodeSelectors.core",
        "tolerations.resourcesDaemon",
    ]


def test_the_native_format_gives_the_same_defaults() -> None:
    text = (GOLDEN / "native.yaml").read_text()
    parsed = parse_defaults(text)
    assert (parsed.defaults, parsed.problems) == (DEFAULTS, ())
    assert to_native_defaults(DEFAULTS) == yaml.safe_load(text)


def test_the_native_text_is_read_back() -> None:
    assert parse_defaults(defaults_text(DEFAULTS)).defaults == DEFAULTS
    assert parse_defaults(defaults_text(PlatformDefaults())).defaults == PlatformDefaults()


def test_defaults_are_kept_as_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(DEFAULTS), type=PlatformDefaults) == DEFAULTS


def test_every_category_has_its_defaults() -> None:
    assert [DEFAULTS.of(category) for category in Category] == [
        DEFAULTS.experiments,
        DEFAULTS.jobs,
        DEFAULTS.builds,
    ]


def test_the_older_name_of_node_selectors_is_a_warning() -> None:
    parsed = parse_defaults("nodeSelector: {jobs: {a: b}}")
    assert parsed.defaults == PlatformDefaults(jobs=CategoryDefaults(node_selector={"a": "b"}))
    assert [(problem.code, problem.path) for problem in parsed.problems] == [("Misspelt", "nodeSelector")]


def test_a_key_that_may_be_misspelt_gets_a_suggestion() -> None:
    (problem,) = parse_defaults("affinity: {}\ntoleration: {experiments: []}").problems
    assert (problem.severity, problem.fix) == (Severity.WARNING, "did you mean tolerations?")


NATIVE = "apiVersion: muster.dev/v1\nkind: Defaults\n"
ERRORS = {
    "an empty document": ("", ("EmptyDocument", "")),
    "no YAML": ("a: [", ("NotYaml", "")),
    "no mapping": ("[1]", ("WrongType", "")),
    "no defaults": ("rbac: {}", ("UnsupportedKind", "")),
    "a job": ("apiVersion: muster.dev/v1\nkind: Job", ("UnsupportedKind", "kind")),
    "another version": ("apiVersion: muster.dev/v2\nkind: Defaults", ("UnsupportedKind", "apiVersion")),
    "two documents": (f"{NATIVE}spec: {{}}\n---\n{NATIVE}spec: {{}}", ("Conflict", "")),
    "no spec": (NATIVE, ("Required", "spec")),
    "an unknown category": (f"{NATIVE}spec: {{experiment: {{}}}}", ("UnknownField", "spec.experiment")),
    "an unknown field": (
        f"{NATIVE}spec: {{jobs: {{affinity: {{}}}}}}",
        ("UnknownField", "spec.jobs.affinity"),
    ),
    "an unknown category of Polyaxon's": (
        "nodeSelectors: {experiment: {}}",
        ("UnknownField", "nodeSelectors.experiment"),
    ),
    "a label that is none": ("nodeSelectors: {jobs: {a: 'b c'}}", ("BadName", "nodeSelectors.jobs.a")),
    "a toleration without a key": ("tolerations: {jobs: [{value: x}]}", ("Conflict", "tolerations.jobs[0]")),
    "an affinity without terms": (
        "affinity: {jobs: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {}}}}",
        (
            "Required",
            "affinity.jobs.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms",
        ),
    ),
}


@pytest.mark.parametrize(("text", "problem"), ERRORS.values(), ids=ERRORS)
def test_an_error_is_reported_and_no_defaults_are_returned(text: str, problem: tuple[str, str]) -> None:
    assert problems_of(text) == [(*problem, Severity.ERROR)]
    assert parse_defaults(text).defaults is None


def test_the_schema_file_is_current() -> None:
    folder = ROOT / "docs" / "schema"
    spec = importlib.util.spec_from_file_location("generate", folder / "generate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    name = "defaults.schema.json"
    assert (folder / name).read_text() == module.rendered(name), "run: python docs/schema/generate.py"
    assert json.loads((folder / name).read_text()) == defaults_schema()
