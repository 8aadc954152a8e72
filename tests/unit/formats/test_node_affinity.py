"""Node affinities are checked before the scheduler gets them."""

import json

import pytest

from muster_formats import parse

AFFINITY = "spec.roles.worker.nodeAffinity"
MUST, PREFER = (f"{sort}DuringSchedulingIgnoredDuringExecution" for sort in ("required", "preferred"))


def problems_of(affinity: object) -> list[tuple[str, str]]:
    document = {
        "apiVersion": "muster.dev/v1",
        "kind": "Job",
        "metadata": {"name": "a"},
        "spec": {"roles": {"worker": {"image": "x", "nodeAffinity": affinity}}},
    }
    return [
        (problem.code, problem.path.removeprefix(AFFINITY))
        for problem in parse(json.dumps(document)).problems
    ]


def must(**expression: object) -> object:
    return {MUST: {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}


GOOD: dict[str, object] = {
    "labels": must(key="a", operator="In", values=["b", "c"]),
    "no label": must(key="example.com/a", operator="DoesNotExist"),
    "more than": must(key="a", operator="Gt", values=["3"]),
    "a node's name": {
        MUST: {
            "nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
            ]
        }
    },
    "a preference": {PREFER: [{"weight": 100, "preference": {}}]},
}


@pytest.mark.parametrize("affinity", GOOD.values(), ids=GOOD)
def test_a_valid_affinity_has_no_problems(affinity: object) -> None:
    assert problems_of(affinity) == []


EXPRESSION = f".{MUST}.nodeSelectorTerms[0].matchExpressions[0]"
BAD: dict[str, tuple[object, tuple[str, str]]] = {
    "no terms": ({MUST: {}}, ("Required", f".{MUST}.nodeSelectorTerms")),
    "an empty list of terms": ({MUST: {"nodeSelectorTerms": []}}, ("Required", f".{MUST}.nodeSelectorTerms")),
    "a bound that is no number": (must(key="a", operator="Gt", values=["b"]), ("WrongType", EXPRESSION)),
    "no key": (must(operator="Exists"), ("Required", f"{EXPRESSION}.key")),
    "no operator": (must(key="a"), ("Required", f"{EXPRESSION}.operator")),
    "an unknown operator": (must(key="a", operator="Is"), ("NotAllowed", f"{EXPRESSION}.operator")),
    "no values": (must(key="a", operator="In"), ("Conflict", EXPRESSION)),
    "values that are not compared": (
        must(key="a", operator="Exists", values=["b"]),
        ("Conflict", EXPRESSION),
    ),
    "two bounds": (must(key="a", operator="Lt", values=["1", "2"]), ("Conflict", EXPRESSION)),
    "no weight": ({PREFER: [{"preference": {}}]}, ("Required", f".{PREFER}[0].weight")),
    "a weight out of range": (
        {PREFER: [{"weight": 0, "preference": {}}]},
        ("OutOfRange", f".{PREFER}[0].weight"),
    ),
    "nothing preferred": ({PREFER: [{"weight": 1}]}, ("Required", f".{PREFER}[0].preference")),
    "a misspelt key": ({"required": {}}, ("UnknownField", ".required")),
}


@pytest.mark.parametrize(("affinity", "expected"), BAD.values(), ids=BAD)
def test_an_error_of_an_affinity_is_reported_at_its_path(affinity: object, expected: tuple[str, str]) -> None:
    assert problems_of(affinity) == [expected]
