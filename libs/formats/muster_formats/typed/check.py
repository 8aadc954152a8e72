"""The rules for a job that came as data: what the documents' readers refuse must not come in by the other door."""

from __future__ import annotations

from dataclasses import dataclass

from muster_core.models import Job, Problem, Resources, Role, RunPolicy, Template, Toleration
from muster_core.models.problem_codes import Code
from muster_core.quantities import MAX_AMOUNT, MAX_SECONDS
from muster_formats.capabilities import Limits, no_limits
from muster_formats.names import (
    DNS_1035,
    DNS_1123,
    EXTENDED,
    LABEL_KEY,
    POLICY,
    QUEUE,
    VARIABLE,
)
from muster_formats.places import Place
from muster_formats.pods.kubeshare import SWITCH
from muster_formats.pods.resource_lists import GPU_NAMES
from muster_formats.pods.template import Main
from muster_formats.problems import Problems, Spot, shown
from muster_formats.rules import MAX_REPLICAS, apply_rules
from muster_formats.typed.options import check_options
from muster_formats.typed.raw import check_affinity, check_pod
from muster_formats.typed.values import Values

_MAX_INT32 = 2**31 - 1
_UNITS = {
    "cpu": "cpu_milli",
    "memory": "memory_bytes",
    "gpu": "gpu_milli",
    "gpu_memory": "gpu_memory_bytes",
    "ephemeral_storage": "ephemeral_storage_bytes",
}
_OPERATORS = ("Equal", "Exists")
_EFFECTS = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")
_JOB_PATHS = {
    "topology_required": "placement.topology_required",
    "suspend": "run.suspend",
    "policy": "elastic.policy",
    "backend": "options.rendezvous.backend",
    "conf": "options.rendezvous.conf",
    **{
        field: f"options.{field}"
        for field in (
            "processes",
            "rendezvous",
            "sparse_cluster",
            "evaluator_in_cluster",
            "model_dir",
            "parameters",
        )
    },
}


def check(job: Job, *, limits: Limits = no_limits) -> tuple[Problem, ...]:
    """Every rule that ``job`` breaks and each of the ``limits`` that it meets, with paths such as ``roles[0].replicas``."""
    problems = Problems()
    checker = _Checker(problems)
    checker.job(job)
    apply_rules(job, _Paths(job), problems, limits)
    return problems.ordered()


@dataclass(frozen=True)
class _Paths:
    """Places as paths into the typed job."""

    job: Job

    def spot(self, place: Place) -> Spot:
        """See ``Locator``."""
        if not place.role:
            return Spot(path=_JOB_PATHS.get(place.field, place.field))
        index = next((i for i, role in enumerate(self.job.roles) if role.name == place.role), 0)
        role = f"roles[{index}]"
        template = f"{role}.template" if place.index is None else f"{role}.overrides[{place.index}]"
        known = {
            "role": role,
            "template": template,
            "override": template,
            "overrides": template,
            "resources": f"{template}.requests",
        }
        return Spot(path=known.get(place.field, f"{role}.{place.field}"))

    def word(self, place: Place) -> str:
        """See ``Locator``."""
        return place.field


class _Checker:
    def __init__(self, problems: Problems) -> None:
        self._values = Values(problems)
        self._kubeshare = False

    def job(self, job: Job) -> None:
        self._values.name("name", job.name, DNS_1035)
        self._values.name("namespace", job.namespace, DNS_1123)
        if job.queue:
            self._values.name("queue", job.queue, QUEUE)
        self._values.range("priority", job.priority, -_MAX_INT32 - 1, _MAX_INT32)
        if job.min_available is not None:
            self._values.range("min_available", job.min_available, 1, MAX_REPLICAS)
        self._values.labels("labels", job.labels)
        self._values.keys("annotations", job.annotations, LABEL_KEY)
        if job.placement.topology:
            self._values.name("placement.topology", job.placement.topology, LABEL_KEY)
        if job.elastic.policy:
            self._values.name("elastic.policy", job.elastic.policy, POLICY)
        self._values.range("elastic.cool_down", job.elastic.cool_down_s, 0, MAX_SECONDS)
        self._values.range("elastic.step", job.elastic.step, 0, MAX_REPLICAS)
        self._run(job.run)
        check_options(job, self._values)
        self._kubeshare = job.annotations.get(SWITCH) == "true"
        seen: set[str] = set()
        for index, role in enumerate(job.roles):
            path = f"roles[{index}]"
            if role.name in seen:
                self._values.refuse(
                    Code.DUPLICATE, f"{path}.name", f"two roles are named {shown(role.name)}", found=role.name
                )
            seen.add(role.name)
            self._role(path, role)

    def _run(self, run: RunPolicy) -> None:
        self._values.range("run.backoff_limit", run.backoff_limit, 0, _MAX_INT32)
        for field, seconds in (
            ("active_deadline", run.active_deadline_s),
            ("queue_deadline", run.queue_deadline_s),
            ("start_timeout", run.start_timeout_s),
            ("ttl", run.ttl_s),
        ):
            if seconds is not None:
                self._values.range(f"run.{field}", seconds, 0, MAX_SECONDS)

    def _role(self, path: str, role: Role) -> None:
        self._values.name(f"{path}.name", role.name, DNS_1035)
        for field, count in (("replicas", role.replicas), ("min", role.min), ("max", role.max)):
            self._values.range(f"{path}.{field}", count, 0, MAX_REPLICAS)
        self._template(f"{path}.template", role.template)
        for index, template in sorted(role.overrides.items()):
            self._template(f"{path}.overrides[{index}]", template)

    def _template(self, path: str, template: Template) -> None:
        self._amounts(f"{path}.requests", template.requests)
        self._amounts(f"{path}.limits", template.limits)
        self._values.keys(f"{path}.env", template.env, VARIABLE)
        self._values.labels(f"{path}.labels", template.labels)
        self._values.keys(f"{path}.annotations", template.annotations, LABEL_KEY)
        self._values.labels(f"{path}.node_selector", template.node_selector)
        self._values.range(f"{path}.grace", template.grace_s, 0, MAX_SECONDS)
        self._values.no_nul(
            path,
            (template.image, template.working_dir, *template.command, *template.args, *template.env.values()),
        )
        names: set[str] = set()
        for index, port in enumerate(template.ports):
            self._values.name(f"{path}.ports[{index}].name", port.name, DNS_1123)
            self._values.range(f"{path}.ports[{index}].number", port.number, 1, 65535)
            if port.name in names:
                self._values.refuse(
                    Code.DUPLICATE,
                    f"{path}.ports[{index}].name",
                    f"two ports are named {shown(port.name)}",
                    found=port.name,
                )
            names.add(port.name)
        for index, toleration in enumerate(template.tolerations):
            self._toleration(f"{path}.tolerations[{index}]", toleration)
        check_affinity(f"{path}.node_affinity", template.node_affinity, self._values.problems)
        check_pod(f"{path}.pod", template.pod, Main(kubeshare=self._kubeshare), self._values.problems)

    def _toleration(self, path: str, toleration: Toleration) -> None:
        self._values.choice(f"{path}.operator", toleration.operator, _OPERATORS)
        self._values.choice(f"{path}.effect", toleration.effect, _EFFECTS)
        self._values.labels(path, {toleration.key: toleration.value} if toleration.key else {})
        if not toleration.key and toleration.operator == "Equal":
            words = "a toleration without a key has the operator Exists"
            self._values.refuse(Code.CONFLICT, f"{path}.operator", words, found="Equal", fix="write Exists")
        if toleration.value and toleration.operator == "Exists":
            words = "a toleration with the operator Exists has no value"
            found = toleration.value
            self._values.refuse(Code.CONFLICT, f"{path}.value", words, found=found, fix="remove the value")

    def _amounts(self, path: str, resources: Resources) -> None:
        for name, field in _UNITS.items():
            self._values.range(f"{path}.{field}", getattr(resources, name), 0, MAX_AMOUNT)
        for name, amount in resources.extended.items():
            at = f"{path}.extended.{name}"
            self._values.name(at, name, EXTENDED)
            self._values.range(at, amount, 0, MAX_AMOUNT)
            if name in GPU_NAMES:
                words = f"{name} is told by gpu_milli"
                self._values.refuse(
                    Code.NOT_ALLOWED, at, words, found=amount, fix="write gpu_milli: 1000 for each"
                )
