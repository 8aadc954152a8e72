"""Documents of queues: fields, errors with source locations, writing."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from muster_core.models import (
    ELASTIC_POLICIES,
    Problem,
    QueueElastic,
    QueuePolicy,
    QueueSpec,
    ResourceLimits,
    Resources,
    Severity,
)
from muster_formats.queues import (
    ElasticPolicyName,
    holds_queues,
    parse_queues,
    queue_schema,
    queues_text,
    to_native_queue,
)

ROOT = Path(__file__).parents[3]
HEAD = "apiVersion: muster.dev/v1\nkind: Queue\n"


def one(spec: str, name: str = "a") -> str:
    return f"{HEAD}metadata: {{name: {name}}}\nspec: {spec}\n"


def problems_of(problem: Problem) -> tuple[str, int, str]:
    return problem.code, problem.line, problem.path


def test_every_field_is_read() -> None:
    document = """
apiVersion: muster.dev/v1
kind: Queue
metadata:
  name: vision
spec:
  parent: research
  guaranteed: {cpu: 4, memory: 8Gi, gpu: 2500m, gpuMemory: 3Gi, ephemeralStorage: 1Gi, example.com/fpga: 2}
  limit: {nvidia.com/gpu: 8}
  weight: 3
  policy: drf
  starvationAfter: 1m
  preemptsWithin: true
  reclaims: false
  namespaces: [vision, staging]
  elastic: {policy: max_min, idlePeriod: 5s, coolDown: 10s, step: 2, minGain: 0.5}
"""
    parsed = parse_queues(document)

    assert not parsed.problems
    assert parsed.queues == (
        QueueSpec(
            name="vision",
            parent="research",
            guaranteed=Resources(
                cpu=4000,
                memory=8 << 30,
                gpu=2500,
                gpu_memory=3 << 30,
                ephemeral_storage=1 << 30,
                extended={"example.com/fpga": 2},
            ),
            limit=ResourceLimits(gpu=8000),
            weight=3,
            policy=QueuePolicy.DRF,
            starvation_after_s=60,
            preempts_within=True,
            reclaims=False,
            namespaces=("vision", "staging"),
            elastic=QueueElastic(policy="max_min", idle_period_s=5, cool_down_s=10, step=2, min_gain=500),
        ),
    )


def test_a_queue_needs_only_a_name() -> None:
    assert parse_queues(f"{HEAD}metadata: {{name: a}}").queues == (QueueSpec(name="a"),)


@pytest.mark.parametrize(
    ("document", "problems"),
    [
        ("{", ["NotYaml"]),
        ("", ["EmptyDocument"]),
        ("3", ["WrongType"]),
        ("kind: Queue", ["UnsupportedKind"]),
        ("apiVersion: muster.dev/v1\nkind: Job\n", ["UnsupportedKind"]),
        (f"{HEAD}spec: {{}}", ["Required"]),
        (one("{wieght: 3}"), ["UnknownField"]),
        (one("{weight: 0}"), ["OutOfRange"]),
        (one("{policy: lifo}"), ["NotAllowed"]),
        (one("{limit: {gpu: many}}"), ["BadQuantity"]),
        (one("{elastic: {policy: dragons}}"), ["NotAllowed"]),
        (one("{namespaces: [A_b]}"), ["BadName"]),
        (one("{starvationAfter: soon}"), ["BadDuration"]),
        (one("{}", name="Big"), ["BadName"]),
        (one("{parent: a}"), ["Cycle"]),
        (one("{}") + "---\n" + one("{}"), ["Duplicate"]),
        (one("{guaranteed: {gpu: 4}, limit: {gpu: 2}}"), ["AboveLimit"]),
    ],
)
def test_an_error_is_reported_with_its_path(document: str, problems: list[str]) -> None:
    parsed = parse_queues(document)

    assert [problem.code for problem in parsed.problems][: len(problems)] == problems
    assert not parsed.queues


def test_an_error_of_the_queue_tree_is_reported_at_its_line() -> None:
    parsed = parse_queues(
        one("\n  guaranteed:\n    gpu: 2", "top")
        + "---\n"
        + one("\n  parent: top\n  guaranteed: {gpu: 3}", "low")
    )

    (problem,) = parsed.problems
    assert problems_of(problem) == ("Overcommitted", 6, "spec.guaranteed.gpu")
    assert problem.message == "queue top: its children are guaranteed 3 GPU, and the queue itself 2"
    assert problem.fix


def test_a_parent_may_be_outside_of_the_text() -> None:
    parsed = parse_queues(one("\n  weight: 2\n  parent: elsewhere"))

    assert parsed.queues
    (found,) = parsed.located(
        [Problem(code="UnknownParent", path="a.parent", message="there is no queue elsewhere")]
    )
    assert problems_of(found) == ("UnknownParent", 6, "spec.parent")


def test_a_problem_of_a_queue_outside_of_the_text_is_not_located() -> None:
    problem = Problem(code="Overcommitted", path="other.guaranteed.gpu", message="too much")

    assert parse_queues(one("{}")).located([problem]) == (problem,)


def test_a_limit_of_zero_is_a_limit() -> None:
    parsed = parse_queues(one("{limit: {gpu: 0}}"))

    assert parsed.queues[0].limit == ResourceLimits(gpu=0)
    assert parsed.problems == ()


def test_a_guarantee_of_zero_is_warned_about() -> None:
    parsed = parse_queues(one("{guaranteed: {gpu: 0}}"))

    assert [(one.severity, one.message) for one in parsed.problems] == [
        (Severity.WARNING, "gpu: 0 has no effect: it guarantees nothing")
    ]


def test_documents_of_queues_are_detected() -> None:
    assert holds_queues(one("{}"))
    assert holds_queues("kind: Defaults\n---\nkind: Queue")
    assert holds_queues(json.dumps([{"kind": "Queue"}]))
    assert not holds_queues("kind: Defaults")
    assert not holds_queues("{")


resources = st.builds(
    Resources,
    cpu=st.integers(0, 10**6),
    memory=st.integers(0, 10**12),
    gpu=st.integers(0, 10**6),
    gpu_memory=st.integers(0, 10**10),
    ephemeral_storage=st.integers(0, 10**12),
    extended=st.dictionaries(st.just("example.com/fpga"), st.integers(1, 99)),
)
limits = st.builds(
    # Not below any guarantee; a limit of an extended resource may be 0.
    ResourceLimits,
    cpu=st.none() | st.integers(10**6, 10**7),
    memory=st.none() | st.integers(10**12, 10**13),
    gpu=st.none() | st.integers(10**6, 10**7),
    extended=st.dictionaries(st.just("example.com/tape"), st.integers(0, 9)),
)
elastic = st.builds(
    QueueElastic,
    policy=st.sampled_from(("", *ELASTIC_POLICIES)),
    idle_period_s=st.integers(0, 10**6),
    cool_down_s=st.integers(0, 10**6),
    step=st.integers(0, 99),
    min_gain=st.integers(0, 9999),
)
specs = st.builds(
    QueueSpec,
    name=st.just("a"),
    parent=st.sampled_from(("", "b")),
    guaranteed=resources,
    limit=limits,
    weight=st.integers(1, 10**6),
    policy=st.sampled_from(QueuePolicy),
    starvation_after_s=st.integers(0, 10**6),
    preempts_within=st.booleans(),
    reclaims=st.booleans(),
    namespaces=st.lists(st.sampled_from(("x", "y-1", "true", "1")), unique=True).map(tuple),
    elastic=st.none() | elastic,
)


@settings(deadline=None)
@given(specs)
def test_written_queues_are_read_back(spec: QueueSpec) -> None:
    assert parse_queues(queues_text([spec])).queues == (spec,)
    assert parse_queues(json.dumps([{**to_native_queue(spec), "status": {"running": 3}}])).queues == (spec,)


def test_the_example_has_no_errors() -> None:
    parsed = parse_queues((ROOT / "examples" / "queues" / "queues.yaml").read_bytes())

    assert [spec.name for spec in parsed.queues] == ["research", "vision", "speech", "sweeps"]
    assert not parsed.problems


def test_the_schema_is_current_and_agrees_with_the_reader() -> None:
    folder = ROOT / "docs" / "schema"
    made = importlib.util.spec_from_file_location("generate", folder / "generate.py")
    assert made
    assert made.loader
    module = importlib.util.module_from_spec(made)
    made.loader.exec_module(module)
    spec = json.loads(json.dumps(queue_schema()))["properties"]["spec"]

    assert (folder / "queue.schema.json").read_text() == module.rendered("queue.schema.json"), (
        "run: make docs"
    )
    assert spec["properties"]["policy"] == {
        "enum": ["fifo_skip", "strict_fifo", "drf"],
        "description": "Order of its jobs; fifo_skip by default.",
    }


def test_the_documented_elastic_policies_are_those_of_the_core() -> None:
    assert tuple(word.value for word in ElasticPolicyName) == ELASTIC_POLICIES
