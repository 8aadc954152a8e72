"""A TrainJob's trainer and the patches of its runtime -> the PodTemplateSpec that they come to.

The template is put together from the document's own nodes and read like any other; what is wrong with it is told where it was written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from muster_core.models.problem_codes import Code
from muster_formats.cursor import Cursor, warn_idle
from muster_formats.relocated import Relocated
from muster_formats.table import Section
from muster_formats.trainjob.keys import (
    ContainerPatchKeys,
    JobPatchKeys,
    JobSetPatchKeys,
    JobSetSpecPatchKeys,
    JobSpecPatchKeys,
    PodOverrideKeys,
    PodPatchKeys,
    PodTemplatePatchKeys,
    ReplicatedJobPatchKeys,
    RuntimePatchKeys,
    RuntimeSpecPatchKeys,
    SpecKeys,
    TargetKeys,
    TrainerKeys,
)
from muster_formats.yaml_builder import Entry, Node

NODE = "node"
"""What the runtimes call the trainer's job, and its container."""

_TRAINER = (TrainerKeys.image, TrainerKeys.command, TrainerKeys.args, TrainerKeys.env)
_MERGED = frozenset({"nodeSelector", "labels", "annotations"})


@dataclass(frozen=True)
class _Patch:
    """What is said of the trainer's pods."""

    metadata: Section | None
    spec: Section | None


def pod_template(spec: Section, trainer: Section) -> Cursor:
    """The template of a TrainJob's replicas."""
    at = trainer.cursor.node
    pod = _Pod(trainer)
    for patch in _patches(spec):
        if patch.metadata:
            pod.take("metadata", patch.metadata)
        if patch.spec:
            pod.take("spec", patch.spec)
            for container in patch.spec.get(PodPatchKeys.containers) or ():
                pod.patch(container)
    return pod.cursor(at)


class _Pod:
    """A template that grows, and where its parts came from."""

    def __init__(self, trainer: Section) -> None:
        origin = trainer.cursor.path
        self._root = f"{origin}.template"
        self._problems = Relocated(trainer.cursor.problems)
        self._container: dict[str, Entry] = {"name": _entry(_text(NODE), trainer.cursor.node)}
        self._parts: dict[str, dict[str, Entry]] = {"metadata": {}, "spec": {}}
        for path in (self._root, f"{self._root}.spec", self._container_path):
            self._problems.note(path, origin)
        for field in _TRAINER:
            if cursor := trainer.at(field.key):
                self._put(field.key, cursor)
        if cursor := trainer.at(TrainerKeys.resources.key):
            self._put("resources", cursor)

    @property
    def _container_path(self) -> str:
        return f"{self._root}.spec.containers[0]"

    def cursor(self, at: Node) -> Cursor:
        """The whole."""
        containers = Node([Node(self._container, at.line, at.column)], at.line, at.column)
        spec = {**self._parts["spec"], "containers": _entry(containers, at)}
        whole = {"spec": _entry(Node(spec, at.line, at.column), at)}
        if metadata := self._parts["metadata"]:
            whole["metadata"] = _entry(Node(metadata, at.line, at.column), at)
        return Cursor(Node(whole, at.line, at.column), self._root, self._problems)

    def take(self, part: str, patch: Section) -> None:
        """Take a patch of the metadata or of the pod: later ones win, and mappings of names are merged."""
        fields, into = patch.table.fields(), self._parts[part]
        for key, cursor in patch.cursor.items().items():
            field = fields.get(key)
            if (
                field is None
                or field.idle
                or field.refused
                or cursor.absent
                or key == PodPatchKeys.containers.key
            ):
                continue
            node, known = cursor.node, into.get(key)
            if (
                key in _MERGED
                and known
                and isinstance(known.node.value, dict)
                and isinstance(node.value, dict)
            ):
                node = Node({**known.node.value, **node.value}, node.line, node.column)
            into[key] = _entry(node, node)
            self._problems.note(f"{self._root}.{part}.{key}", cursor.path)

    def patch(self, container: Section) -> None:
        """Take a patch of the trainer's container."""
        name = container.get(ContainerPatchKeys.name)
        if name != NODE:
            at = container.at(ContainerPatchKeys.name.key)
            if at and name:
                words = f"the runtime has no container {name}"
                at.error(Code.NOT_TAKEN, words, allowed=NODE, fix="remove it")
            elif at is None:
                container.cursor.missing("name", "a container has a name", f"add name: {NODE}")
            return
        for field in (ContainerPatchKeys.mounts, ContainerPatchKeys.security):
            if cursor := container.at(field.key):
                self._put(field.key, cursor)

    def _put(self, key: str, cursor: Cursor) -> None:
        self._container[key] = _entry(cursor.node, cursor.node)
        self._problems.note(f"{self._container_path}.{key}", cursor.path)


def _patches(spec: Section) -> Iterator[_Patch]:
    for override in spec.get(SpecKeys.overrides) or ():
        targets = override.get(PodOverrideKeys.targets) or []
        named = [_is_trainer(target, TargetKeys.name.key) for target in targets]
        patch = _Patch(override.get(PodOverrideKeys.metadata), override.get(PodOverrideKeys.spec))
        if any(named) or not named:
            yield patch
    for whole in spec.get(SpecKeys.patches) or ():
        whole.get(RuntimePatchKeys.manager)
        runtime = whole.get(RuntimePatchKeys.runtime)
        jobset = runtime.get(RuntimeSpecPatchKeys.template) if runtime else None
        steps = jobset.get(JobSetPatchKeys.spec) if jobset else None
        for step in (steps.get(JobSetSpecPatchKeys.jobs) if steps else None) or ():
            job = step.get(ReplicatedJobPatchKeys.template)
            inner = job.get(JobPatchKeys.spec) if job else None
            template = inner.get(JobSpecPatchKeys.template) if inner else None
            if _is_trainer(step, ReplicatedJobPatchKeys.name.key) and template:
                yield _Patch(
                    template.get(PodTemplatePatchKeys.metadata), template.get(PodTemplatePatchKeys.spec)
                )


def _is_trainer(section: Section, key: str) -> bool:
    """Whether a patch is for the trainer's job; one for another is told to be without effect."""
    at = section.at(key)
    if at is None:
        section.cursor.missing(key, "a job is patched by its name", f"add name: {NODE}")
        return False
    if at.node.text == NODE:
        return True
    warn_idle(at, f"a patch of {at.node.text}", f"the runtimes that are known have one job, {NODE}")
    return False


def _entry(node: Node, at: Node) -> Entry:
    return Entry(at.line, at.column, node)


def _text(text: str) -> Node:
    return Node(text, 0, 0, text)
