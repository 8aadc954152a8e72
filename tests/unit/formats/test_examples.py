"""The examples: good ones have no problems, bad ones the problem that they document."""

from pathlib import Path

import pytest

from muster_core.models import Framework
from muster_formats import parse, render_problems

EXAMPLES = Path(__file__).parents[3] / "examples"
GOOD = sorted((*EXAMPLES.glob("digits/*.yaml"), *EXAMPLES.glob("hello/*.yaml")))
BAD = {
    "bad-name": ("BadName", "metadata.name", 5),
    "bad-quantity": (
        "BadQuantity",
        "spec.tfReplicaSpecs.Worker.template.spec.containers[0].resources.limits.memory",
        25,
    ),
    "container-not-tensorflow": (
        "Required",
        "spec.tfReplicaSpecs.Worker.template.spec.containers[0].name",
        22,
    ),
    "duplicate-key": ("DuplicateKey", "spec.roles.worker.replicas", 11),
    "min-above-max": ("Conflict", "spec.min-instances", 7),
    "missing-container": ("Required", "spec.tfReplicaSpecs.Worker.template.spec.containers", 21),
    "misspelt-key": ("UnknownField", "spec.tfReplicaSpecs.Worker.replica", 18),
    "native-min-above-max": ("Conflict", "spec.roles.worker.min", 11),
    "native-misspelt-key": ("UnknownField", "spec.roles.worker.comand", 12),
    "negative-replicas": ("OutOfRange", "spec.tfReplicaSpecs.Worker.replicas", 18),
    "not-yaml": ("NotYaml", "", 12),
    "two-chiefs": ("OutOfRange", "spec.tfReplicaSpecs.Chief.replicas", 18),
    "unknown-kind": ("UnsupportedKind", "kind", 3),
    "wrong-type": ("WrongType", "spec.roles.worker.replicas", 10),
}


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_a_good_example_has_no_problems(path: Path) -> None:
    parsed = parse(path.read_bytes())
    assert len(parsed.jobs) == 1
    assert parsed.problems == ()


def test_both_formats_of_the_digits_example_are_the_same_job() -> None:
    tfjob, native = (
        parse((EXAMPLES / "digits" / name).read_text()).jobs[0] for name in ("tfjob.yaml", "job.yaml")
    )
    assert tfjob.framework is native.framework is Framework.TENSORFLOW
    for one, other in zip(tfjob.roles, native.roles, strict=True):
        assert (one.name, one.min, one.replicas, one.max) == (
            other.name,
            other.min,
            other.replicas,
            other.max,
        )
        assert one.template.requests == other.template.requests
        assert one.template.command == other.template.command
        assert one.restart_policy is other.restart_policy


@pytest.mark.parametrize(("name", "expected"), BAD.items(), ids=BAD)
def test_a_bad_example_has_the_one_problem_in_its_first_line(
    name: str, expected: tuple[str, str, int]
) -> None:
    text = (EXAMPLES / "bad" / f"{name}.yaml").read_text()
    parsed = parse(text)
    assert parsed.jobs == ()
    assert [(p.code, p.path, p.line) for p in parsed.problems] == [expected]
    assert f"{name}.yaml:{expected[2]}:" in render_problems(parsed.problems, text, f"{name}.yaml")


def test_every_bad_example_is_tested() -> None:
    assert {path.stem for path in (EXAMPLES / "bad").glob("*.yaml")} == set(BAD)
