"""Kubernetes' Job: which Jobs are gangs, and which fields are supported."""

from typing import Any

import pytest
import yaml

from muster_core.models import CleanPodPolicy, Framework, RestartPolicy, Role, Severity
from muster_formats import Parsed, parse


def parsed(*, restart: str | None = "Never", env: list[dict[str, str]] | None = None, **spec: Any) -> Parsed:
    container = {"name": "c", "image": "x", **({"env": env} if env else {})}
    pod = {"containers": [container], **({"restartPolicy": restart} if restart else {})}
    document = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "small"},
        "spec": {"template": {"spec": pod}, **spec},
    }
    return parse(yaml.safe_dump(document))


def errors(parsed: Parsed) -> list[tuple[str, str]]:
    return [(p.code, p.path) for p in parsed.problems if p.severity is Severity.ERROR]


def role_of(parsed: Parsed) -> Role:
    assert errors(parsed) == []
    (role,) = parsed.jobs[0].roles
    return role


def test_a_job_is_one_role_without_a_framework() -> None:
    read = parsed()
    assert read.problems == ()
    (job,) = read.jobs
    assert (job.framework, job.format, job.run.backoff_limit) == (Framework.PLAIN, "batchjob", 6)
    assert job.run.clean_pod_policy is CleanPodPolicy.RUNNING
    assert job.roles[0].name == "worker"


COUNTS: dict[str, tuple[dict[str, Any], int]] = {
    "nothing given": ({}, 1),
    "one completion": ({"completions": 1}, 1),
    "all at once": ({"completions": 4, "parallelism": 4}, 4),
    "more at once than there are": ({"completions": 3, "parallelism": 8}, 3),
    "a work queue": ({"parallelism": 5}, 5),
}


@pytest.mark.parametrize(("spec", "count"), COUNTS.values(), ids=COUNTS)
def test_the_gang_is_the_replicas_that_run_at_the_same_time(spec: dict[str, Any], count: int) -> None:
    role = role_of(parsed(**spec))
    assert (role.min, role.replicas, role.max) == (count, count, count)


BAD: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "waves": ({"completions": 8, "parallelism": 2}, ("Unsupported", "spec.parallelism")),
    "one after the other": ({"completions": 8}, ("Unsupported", "spec.completions")),
    "held back by parallelism": ({"parallelism": 0}, ("Unsupported", "spec.parallelism")),
    "indexes without completions": (
        {"completionMode": "Indexed", "parallelism": 2},
        ("Required", "spec.completions"),
    ),
    "no completions": ({"completions": 0}, ("NothingToRun", "spec.completions")),
    "failures of an index": ({"backoffLimitPerIndex": 1}, ("Unsupported", "spec.backoffLimitPerIndex")),
    "indexes that may fail": ({"maxFailedIndexes": 1}, ("Unsupported", "spec.maxFailedIndexes")),
    "a success of some": ({"successPolicy": {"rules": []}}, ("Unsupported", "spec.successPolicy")),
    "a count in words": ({"completions": "three"}, ("WrongType", "spec.completions")),
    "a mode that is none": ({"completionMode": "indexed"}, ("NotAllowed", "spec.completionMode")),
    "no template": ({"template": None}, ("Required", "spec.template")),
    "always again": ({"restart": "Always"}, ("NotAllowed", "spec.template.spec.restartPolicy")),
    "no restart policy": ({"restart": None}, ("Required", "spec.template.spec.restartPolicy")),
}


@pytest.mark.parametrize(("given", "expected"), BAD.values(), ids=BAD)
def test_an_error_is_reported_at_its_path(given: dict[str, Any], expected: tuple[str, str]) -> None:
    assert errors(parsed(**given)) == [expected]


def test_completions_in_waves_are_rejected_with_a_fix() -> None:
    (problem,) = parsed(completions=8, parallelism=2).problems
    assert problem.fix == "write parallelism: 8, or submit several Jobs"


POLICIES = {
    ("OnFailure", 6): RestartPolicy.ON_FAILURE,
    ("Never", 6): RestartPolicy.ON_FAILURE,
    ("OnFailure", 0): RestartPolicy.ON_FAILURE,
    ("Never", 0): RestartPolicy.NEVER,
}


@pytest.mark.parametrize(("given", "policy"), POLICIES.items(), ids=map(str, POLICIES))
def test_failed_pods_are_replaced_within_the_backoff_limit(
    given: tuple[str, int], policy: RestartPolicy
) -> None:
    restart, limit = given
    assert role_of(parsed(restart=restart, backoffLimit=limit)).restart_policy is policy


def test_replicas_of_an_indexed_job_get_their_index() -> None:
    indexed: dict[str, Any] = {"completions": 2, "parallelism": 2, "completionMode": "Indexed"}
    template = role_of(parsed(**indexed)).template
    assert template.env == {"JOB_COMPLETION_INDEX": "$(MUSTER_INDEX)"}
    assert template.pod["spec"]["containers"][0]["env"] == [
        {"name": "JOB_COMPLETION_INDEX", "value": "$(MUSTER_INDEX)"}
    ]


def test_a_variable_of_the_document_is_not_replaced() -> None:
    own = [{"name": "JOB_COMPLETION_INDEX", "value": "7"}]
    template = role_of(parsed(completions=1, completionMode="Indexed", env=own)).template
    assert template.env == {"JOB_COMPLETION_INDEX": "7"}
    assert template.pod["spec"]["containers"][0]["env"] == own


@pytest.mark.parametrize(
    "given",
    [
        {"podFailurePolicy": {"rules": []}},
        {"podReplacementPolicy": "Failed"},
        {"selector": {"matchLabels": {}}},
        {"manualSelector": True},
        {"managedBy": "example.com/controller"},
    ],
    ids=lambda given: next(iter(given)),
)
def test_a_field_without_effect_is_a_warning(given: dict[str, Any]) -> None:
    read = parsed(**given)
    assert [(p.code, p.path) for p in read.problems] == [("Ignored", f"spec.{next(iter(given))}")]
    assert len(read.jobs) == 1


def test_the_run_policy_is_read() -> None:
    read = parsed(activeDeadlineSeconds=60, ttlSecondsAfterFinished=5, suspend=True, backoffLimit=0)
    run = read.jobs[0].run
    assert (run.active_deadline_s, run.ttl_s, run.suspend, run.backoff_limit) == (60, 5, True, 0)
