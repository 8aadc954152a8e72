"""Platform defaults replace the empty fields of a job, by its category."""

from typing import Any

import pytest

from muster_core.models import AppliedDefaults, Category, Job, JobKind, Role, Template, Toleration
from muster_formats import parse
from muster_formats.defaults import CategoryDefaults, PlatformDefaults, apply_defaults, category_of

GPU = (Toleration(key="gpu", operator="Exists"),)
ZONE: dict[str, Any] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
DEFAULTS = PlatformDefaults(
    experiments=CategoryDefaults(node_selector={"for": "experiments"}, tolerations=GPU, node_affinity=ZONE),
    jobs=CategoryDefaults(node_selector={"for": "jobs"}),
    builds=CategoryDefaults(node_selector={"for": "builds"}),
)


def role(name: str = "worker", template: Template | None = None, **fields: Any) -> Role:
    return Role(
        name=name, replicas=1, min=1, max=1, template=template or Template(command=("true",)), **fields
    )


def applied(template: Template, defaults: PlatformDefaults = DEFAULTS, **fields: Any) -> Template:
    job = Job(name="job", roles=(role(template=template),), **fields)
    return apply_defaults(job, defaults, 3).roles[0].template


@pytest.mark.parametrize(
    ("kind", "category"),
    [(JobKind.BATCH, "experiments"), (JobKind.SERVICE, "jobs"), (JobKind.BUILD, "builds")],
)
def test_a_job_has_the_category_of_its_kind(kind: JobKind, category: str) -> None:
    job = Job(name="job", roles=(role(),), kind=kind)
    assert category_of(job).value == category
    assert apply_defaults(job, DEFAULTS, 1).roles[0].template.node_selector == {"for": category}


def test_a_job_may_set_its_category() -> None:
    job = Job(name="job", roles=(role(),), kind=JobKind.BATCH, category=Category.JOBS)
    assert apply_defaults(job, DEFAULTS, 1).roles[0].template.node_selector == {"for": "jobs"}


def test_every_empty_field_is_replaced() -> None:
    template = applied(Template(command=("true",)))
    assert template == Template(
        command=("true",), node_selector={"for": "experiments"}, tolerations=GPU, node_affinity=ZONE
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("node_selector", {"mine": "own"}),
        ("tolerations", (Toleration(operator="Exists"),)),
        ("node_affinity", {"preferredDuringSchedulingIgnoredDuringExecution": []}),
    ],
)
def test_a_field_of_the_job_is_not_merged_with_its_default(field: str, value: Any) -> None:
    template = applied(Template(**{field: value}))
    assert getattr(template, field) == value
    assert [
        name for name in ("node_selector", "tolerations", "node_affinity") if not getattr(template, name)
    ] == []


def test_overrides_get_defaults_of_their_own_and_the_fields_are_recorded() -> None:
    worker = role(
        template=Template(node_selector={"a": "b"}),
        overrides={2: Template(tolerations=(Toleration(operator="Exists"),))},
    )
    job = apply_defaults(Job(name="job", roles=(worker, role("ps"))), DEFAULTS, 7)
    assert job.roles[0].overrides[2].node_selector == {"for": "experiments"}
    assert job.defaults == AppliedDefaults(
        category=Category.EXPERIMENTS,
        version=7,
        fields=(
            "worker.tolerations",
            "worker.node_affinity",
            "worker[2].node_selector",
            "worker[2].node_affinity",
            "ps.node_selector",
            "ps.tolerations",
            "ps.node_affinity",
        ),
    )


def test_the_raw_pod_template_gets_the_same_defaults() -> None:
    pod = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "main"}], "affinity": None}}
    template = applied(Template(pod=pod))
    assert template.pod == {
        "metadata": {"labels": {"a": "b"}},
        "spec": {
            "containers": [{"name": "main"}],
            "nodeSelector": {"for": "experiments"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "affinity": {"nodeAffinity": ZONE},
        },
    }
    assert pod["spec"] == {"containers": [{"name": "main"}], "affinity": None}


def test_a_job_without_defaults_of_its_category_records_their_version() -> None:
    job = apply_defaults(Job(name="job", roles=(role(),)), PlatformDefaults(), 2)
    assert job.defaults == AppliedDefaults(category=Category.EXPERIMENTS, version=2)
    assert job.roles == (role(),)


def test_a_polyaxon_field_falls_back_to_the_platform_default() -> None:
    (job,) = parse(
        """
        {version: 1, kind: experiment, framework: tensorflow, run: {cmd: train}, environment: {
          node_selector: {of: master},
          replicas: {n_workers: 3, n_ps: 1,
            default_worker: {tolerations: [{key: worker, operator: Exists}]},
            worker: [{index: 1, node_selector: {of: one}}]}}}
        """
    ).jobs
    given = apply_defaults(job, DEFAULTS, 1)
    master, worker, ps = given.roles
    assert [
        t.node_selector for t in (master.template, worker.template, worker.overrides[1], ps.template)
    ] == [{"of": "master"}, {"for": "experiments"}, {"of": "one"}, {"for": "experiments"}]
    own = (Toleration(key="worker", operator="Exists"),)
    assert [t.tolerations for t in (master.template, worker.template, worker.overrides[1], ps.template)] == [
        GPU,
        own,
        own,
        GPU,
    ]
