"""The rules for a job that came as data: what the documents' readers refuse must not come in by the other door."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from muster_core.dialects.codes import Code
from muster_core.dialects.names import (
    DNS_1035,
    DNS_1123,
    LABEL_KEY,
    LABEL_VALUE,
    POLICY,
    QUEUE,
    RESOURCE_NAME,
    VARIABLE,
    Rule,
)
from muster_core.dialects.places import Place
from muster_core.dialects.problems import Problems, Spot, shown
from muster_core.dialects.rules import MAX_REPLICAS, apply_rules
from muster_core.models import Job, Problem, Resources, Role, RunPolicy, Template
from muster_core.quantities import MAX_AMOUNT, MAX_SECONDS

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


def check(job: Job) -> tuple[Problem, ...]:
    """Every rule that ``job`` breaks, with paths such as ``roles[0].replicas``; empty where it is good."""
    problems = Problems()
    checker = _Checker(problems)
    checker.job(job)
    apply_rules(job, _Paths(job), problems)
    return problems.ordered()


@dataclass(frozen=True)
class _Paths:
    """Places as paths into the typed job."""

    job: Job

    def spot(self, place: Place) -> Spot:
        """See ``Locator``."""
        if not place.role:
            return Spot(
                path="placement.topology_required" if place.field == "topology_required" else place.field
            )
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
        self._problems = problems

    def job(self, job: Job) -> None:
        self._name("name", job.name, DNS_1035)
        self._name("namespace", job.namespace, DNS_1123)
        if job.queue:
            self._name("queue", job.queue, QUEUE)
        self._range("priority", job.priority, -_MAX_INT32 - 1, _MAX_INT32)
        if job.min_available is not None:
            self._range("min_available", job.min_available, 1, MAX_REPLICAS)
        self._labels("labels", job.labels)
        self._keys("annotations", job.annotations, LABEL_KEY)
        if job.placement.topology:
            self._name("placement.topology", job.placement.topology, LABEL_KEY)
        if job.elastic.policy:
            self._name("elastic.policy", job.elastic.policy, POLICY)
        self._range("elastic.cool_down", job.elastic.cool_down_s, 0, MAX_SECONDS)
        self._range("elastic.step", job.elastic.step, 0, MAX_REPLICAS)
        self._run(job.run)
        seen: set[str] = set()
        for index, role in enumerate(job.roles):
            path = f"roles[{index}]"
            if role.name in seen:
                self._refuse(
                    Code.DUPLICATE, f"{path}.name", f"two roles are named {shown(role.name)}", found=role.name
                )
            seen.add(role.name)
            self._role(path, role)

    def _run(self, run: RunPolicy) -> None:
        self._range("run.backoff_limit", run.backoff_limit, 0, _MAX_INT32)
        for field, seconds in (
            ("active_deadline", run.active_deadline_s),
            ("queue_deadline", run.queue_deadline_s),
            ("start_timeout", run.start_timeout_s),
            ("ttl", run.ttl_s),
        ):
            if seconds is not None:
                self._range(f"run.{field}", seconds, 0, MAX_SECONDS)

    def _role(self, path: str, role: Role) -> None:
        self._name(f"{path}.name", role.name, DNS_1035)
        for field, count in (("replicas", role.replicas), ("min", role.min), ("max", role.max)):
            self._range(f"{path}.{field}", count, 0, MAX_REPLICAS)
        self._template(f"{path}.template", role.template)
        for index, template in sorted(role.overrides.items()):
            self._template(f"{path}.overrides[{index}]", template)

    def _template(self, path: str, template: Template) -> None:
        self._amounts(f"{path}.requests", template.requests)
        self._amounts(f"{path}.limits", template.limits)
        self._keys(f"{path}.env", template.env, VARIABLE)
        self._labels(f"{path}.labels", template.labels)
        self._keys(f"{path}.annotations", template.annotations, LABEL_KEY)
        self._labels(f"{path}.node_selector", template.node_selector)
        self._range(f"{path}.grace", template.grace_s, 0, MAX_SECONDS)
        self._no_nul(
            path,
            (template.image, template.working_dir, *template.command, *template.args, *template.env.values()),
        )
        names: set[str] = set()
        for index, port in enumerate(template.ports):
            self._name(f"{path}.ports[{index}].name", port.name, DNS_1123)
            self._range(f"{path}.ports[{index}].number", port.number, 1, 65535)
            if port.name in names:
                self._refuse(
                    Code.DUPLICATE,
                    f"{path}.ports[{index}].name",
                    f"two ports are named {shown(port.name)}",
                    found=port.name,
                )
            names.add(port.name)
        for index, toleration in enumerate(template.tolerations):
            at = f"{path}.tolerations[{index}]"
            self._choice(f"{at}.operator", toleration.operator, _OPERATORS)
            self._choice(f"{at}.effect", toleration.effect, _EFFECTS)

    def _amounts(self, path: str, resources: Resources) -> None:
        for name, amount in resources.amounts().items():
            at = f"{path}.{_UNITS.get(name, f'extended.{name}')}"
            self._range(at, amount, 0, MAX_AMOUNT)
            if name not in _UNITS and not name.startswith("hugepages-"):
                self._name(at, name, RESOURCE_NAME)

    def _name(self, path: str, name: str, rule: Rule) -> None:
        if not name:
            self._refuse(
                Code.REQUIRED, path, f"{path.rsplit('.', 1)[-1]} is not given", found="", allowed=rule.words
            )
        elif not rule.allows(name):
            self._refuse(
                Code.BAD_NAME, path, rule.message(name), found=name, allowed=rule.words, fix=rule.remedy(name)
            )

    def _keys(self, path: str, mapping: Mapping[str, str], rule: Rule) -> None:
        for key in mapping:
            self._name(f"{path}.{key}", key, rule)

    def _labels(self, path: str, labels: Mapping[str, str]) -> None:
        self._keys(path, labels, LABEL_KEY)
        for key, value in labels.items():
            if not LABEL_VALUE.allows(value):
                self._refuse(
                    Code.BAD_NAME,
                    f"{path}.{key}",
                    LABEL_VALUE.message(value),
                    found=value,
                    allowed=LABEL_VALUE.words,
                )

    def _range(self, path: str, value: int, low: int, high: int) -> None:
        if not low <= value <= high:
            bound = f"the least is {low}" if value < low else f"the most is {high}"
            words = f"{path.rsplit('.', 1)[-1]} is {shown(value)}; {bound}"
            self._refuse(Code.OUT_OF_RANGE, path, words, found=value, allowed=f"{low} to {high}")

    def _choice(self, path: str, value: str, allowed: tuple[str, ...]) -> None:
        if value not in allowed:
            names = ", ".join(name for name in allowed if name)
            self._refuse(
                Code.NOT_ALLOWED,
                path,
                f"{path.rsplit('.', 1)[-1]} is one of {names}",
                found=value,
                allowed=names,
            )

    def _no_nul(self, path: str, texts: Iterable[str]) -> None:
        if any("\0" in text for text in texts):
            words = "the character U+0000 can be in no name, argument or variable"
            self._refuse(Code.CONTROL_CHARACTER, path, words, found="U+0000", fix="remove it")

    def _refuse(
        self, code: Code, path: str, message: str, *, found: object, allowed: str = "", fix: str = ""
    ) -> None:
        told = shown(found) if found != "" else ""
        self._problems.add(code, Spot(path=path), message, found=told, allowed=allowed, fix=fix)
