"""Polyaxon 1.x (``version: 1.1``) documents: an operation with its component, or a component.

The operation is merged with its component (fields by ``patchStrategy``, ``runPatch`` over the run), expressions
are expanded, and the result is read. Problems are reported where the author wrote the value.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from muster_core.models import CleanPodPolicy, Convention, Job, JobKind, RunPolicy
from muster_core.models.problem_codes import Code
from muster_formats.cursor import Cursor
from muster_formats.field_types import FieldType, String
from muster_formats.locations import FieldLocations, JobField
from muster_formats.names import DNS_1035, DNS_1123, QUEUE
from muster_formats.nodes import YamlEntry, YamlNode
from muster_formats.polyaxon_v1.expressions import ExpressionResolver, has_expression
from muster_formats.polyaxon_v1.fields import (
    NAME,
    VERSION,
    PatchStrategy,
    V1CommonFields,
    V1ComponentFields,
    V1OperationFields,
    V1TemplateFields,
    V1TerminationFields,
)
from muster_formats.polyaxon_v1.parameters import ParamsReader, ReceivedParams, ReceivedParams as Values
from muster_formats.polyaxon_v1.run import RunReader, V1Run
from muster_formats.polyaxon_v1.run_fields import RUN, V1PodFields, V1ReplicaFields, V1ServiceFields
from muster_formats.problems import RelocatedProblems, shown
from muster_formats.registry import Format, ReadContext
from muster_formats.rules import apply_rules
from muster_formats.schema import Field, Section

_OBJECTS = frozenset(
    {
        "container", "labels", "annotations", "nodeSelector", "affinity", "securityContext", "dnsConfig", "runtimeEnv", "metadata",
        "rayStartParams", "podFailurePolicy", "probe",
    }
)  # fmt: skip


@dataclass(frozen=True)
class MergedRun:
    """A node, and its path in the document."""

    node: YamlNode
    path: str


@dataclass(frozen=True)
class Patch:
    """Merges by one strategy and records which parts came from the patch."""

    strategy: PatchStrategy
    moved: RelocatedProblems

    def apply(self, base: MergedRun | None, patch: MergedRun | None) -> MergedRun | None:
        """Merge ``patch`` over ``base``; the result has the base's path if there is one."""
        if patch is None or patch.node.value is None:
            return base
        if base is None or base.node.value is None:
            return MergedRun(
                self._taken(patch, base.path) if base else patch.node, base.path if base else patch.path
            )
        return MergedRun(self._merged(base, patch, whole=False), base.path)

    def _merged(self, base: MergedRun, patch: MergedRun, *, whole: bool) -> YamlNode:
        """Merge both; ``whole`` replaces lists."""
        old, new = base.node.value, patch.node.value
        if isinstance(old, dict) and isinstance(new, dict):
            return self._mappings(base, old, patch, new, whole=whole)
        joined = self.strategy in (PatchStrategy.POST_MERGE, PatchStrategy.PRE_MERGE) and not whole
        if isinstance(old, list) and isinstance(new, list) and joined:
            return self._lists(base, old, patch, new)
        if self.strategy in (PatchStrategy.IS_NULL, PatchStrategy.PRE_MERGE):
            return base.node
        return self._taken(patch, base.path)

    def _mappings(
        self,
        base: MergedRun,
        old: dict[str, YamlEntry],
        patch: MergedRun,
        new: dict[str, YamlEntry],
        *,
        whole: bool,
    ) -> YamlNode:
        entries = dict(old)
        for key, entry in new.items():
            there = MergedRun(entry.node, f"{patch.path}.{key}" if patch.path else key)
            path = f"{base.path}.{key}" if base.path else key
            known = old.get(key)
            if entry.node.value is None and known is not None:
                continue
            if known is None or known.node.value is None:
                entries[key] = YamlEntry(entry.line, entry.column, self._taken(there, path))
                continue
            merging = self.strategy in (PatchStrategy.POST_MERGE, PatchStrategy.PRE_MERGE)
            if merging:
                below = whole or key in _OBJECTS
                entries[key] = YamlEntry(
                    known.line, known.column, self._merged(MergedRun(known.node, path), there, whole=below)
                )
            elif self.strategy is PatchStrategy.REPLACE:
                entries[key] = YamlEntry(entry.line, entry.column, self._taken(there, path))
        return YamlNode(entries, base.node.line, base.node.column)

    def _lists(self, base: MergedRun, old: list[YamlNode], patch: MergedRun, new: list[YamlNode]) -> YamlNode:
        last = self.strategy is PatchStrategy.POST_MERGE
        first, second = (base, patch) if last else (patch, base)
        nodes = list(old if last else new)
        kept = {_image(node) for node in nodes}
        origins = [f"{first.path}[{index}]" for index in range(len(nodes))]
        for index, node in enumerate(new if last else old):
            if _image(node) not in kept:
                nodes.append(node)
                origins.append(f"{second.path}[{index}]")
        for index, origin in enumerate(origins):
            self.moved.record(f"{base.path}[{index}]", origin)
        return YamlNode(nodes, base.node.line, base.node.column)

    def _taken(self, patch: MergedRun, path: str) -> YamlNode:
        self.moved.record(path, patch.path)
        return patch.node


def _image(node: YamlNode) -> bytes:
    return msgspec.json.encode(node.plain(), order="deterministic")


_KIND = "kind"
_POD = frozenset(V1ReplicaFields.fields())
_MANY = "workers"


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """The fields of an operation over those of its component; ``operation`` is ``None`` for a bare component."""

    operation: Section | None
    component: Section
    moved: RelocatedProblems
    names: ExpressionResolver = field(default_factory=lambda: ExpressionResolver(values={}, known={}))

    def with_names(self, given: ReceivedParams, known: Mapping[str, str]) -> Compiled:
        """Return a copy with these names expanded."""
        return Compiled(
            operation=self.operation,
            component=self.component,
            moved=self.moved,
            names=ExpressionResolver(values=given.values, known=known),
        )

    def at(self, wanted: Field[object] | str) -> Cursor | None:
        """Return the location of a field that either may give."""
        key = wanted if isinstance(wanted, str) else wanted.key
        merged = self._patch().apply(_placed(self.component, key), _placed(self.operation, key))
        return self._filled(merged, key) if merged else None

    def text(self, wanted: Field[str], kind: FieldType[str] | None = None) -> str:
        """Return a text that either may give, or an empty text."""
        at = self.at(wanted.key)
        return ((kind or wanted.type).read(at) if at else None) or ""

    def run(self) -> Section | None:
        """Return the run by the table of its kind, or ``None`` after reporting the problem."""
        base = self.component.at(V1ComponentFields.run.key)
        if base is None:
            self.component.cursor.missing(
                "run", "a component needs a run", "add run: {kind: job, container: ...}"
            )
            return None
        merged = self._patched(MergedRun(base.node, base.path))
        ports = _entry(merged.node, V1ServiceFields.ports.key)
        if ports is not None:
            read = self.names.resolve(ports, f"{merged.path}.ports", self.moved)
            numbers = read.plain()
            self.names.ports = tuple(
                number for number in (numbers if isinstance(numbers, list) else []) if isinstance(number, int)
            )
        return RUN.read(self._filled(merged, ""))

    def _patched(self, run: MergedRun) -> MergedRun:
        at = self.operation.at(V1OperationFields.run_patch.key) if self.operation else None
        if at is None:
            return run
        if not isinstance(at.node.value, dict):
            at.wrong_type("a mapping")
            return run
        patch = MergedRun(at.node, at.path)
        kind = _entry(run.node, _KIND)
        nested = RUN.tables.get(kind.text) if kind else None
        fields = frozenset(nested.table.fields()) if nested else frozenset[str]()
        given = set(at.node.value)
        if nested is None or V1PodFields.container.key in fields or not given <= _POD or given & fields:
            return self._patch().apply(run, patch) or run
        return self._each_replica(run, patch, fields)

    def _each_replica(self, run: MergedRun, patch: MergedRun, fields: frozenset[str]) -> MergedRun:
        """Apply a patch of one replica to every replica type of a distributed run."""
        value = run.node.value
        if not isinstance(value, dict):
            return run
        entries = dict(value)
        for key, entry in value.items():
            below = f"{run.path}.{key}"
            if key == _MANY and isinstance(entry.node.value, dict):
                groups = MergedRun(entry.node, below)
                inner = self._each_replica(groups, patch, frozenset(entry.node.value)).node
            elif key in fields and key != _KIND and _is_replica(entry.node):
                over = self._patch().apply(MergedRun(entry.node, below), patch)
                inner = over.node if over else entry.node
            else:
                continue
            entries[key] = type(entry)(entry.line, entry.column, inner)
        return MergedRun(YamlNode(entries, run.node.line, run.node.column), run.path)

    def _patch(self) -> Patch:
        given = self.operation.get(V1OperationFields.patch_strategy) if self.operation else None
        return Patch(given or PatchStrategy.POST_MERGE, self.moved)

    def _filled(self, placed: MergedRun, key: str) -> Cursor:
        node = self.names.resolve(placed.node, placed.path, self.moved, key=key)
        return Cursor(node, placed.path, self.moved)


def _is_replica(node: YamlNode) -> bool:
    return isinstance(node.value, dict) and V1PodFields.container.key in node.value


def _placed(section: Section | None, key: str) -> MergedRun | None:
    at = section.at(key) if section else None
    return MergedRun(at.node, at.path) if at else None


def _entry(node: YamlNode, key: str) -> YamlNode | None:
    found = node.value.get(key) if isinstance(node.value, dict) else None
    return found.node if found and found.node.value is not None else None


_VERSION_KEY = "version"
_DESCRIPTION, _TAGS = "polyaxon.com/description", "polyaxon.com/tags"
_REFERENCES = (
    V1OperationFields.hub_ref,
    V1OperationFields.path_ref,
    V1OperationFields.url_ref,
    V1OperationFields.dag_ref,
)


def read_operation(cursor: Cursor, given: ReadContext) -> tuple[Job, ...]:
    """Read an operation; see ``Read``."""
    moved = RelocatedProblems(cursor.problems)
    operation = Section(dataclasses.replace(cursor, problems=moved), V1OperationFields)
    if operation.get(V1OperationFields.is_preset) and (at := operation.at(V1OperationFields.is_preset.key)):
        at.error(Code.UNSUPPORTED, "a preset is not an operation", fix="submit the completed operation")
    component = operation.get(V1OperationFields.component)
    if component is None:
        if not any(operation.given(reference) for reference in _REFERENCES):
            operation.cursor.missing(
                "component", "an operation needs a component", "add component: {run: ...}"
            )
        return ()
    component.get(V1ComponentFields.kind)
    return _ClusterMembers(Compiled(operation=operation, component=component, moved=moved), given).read()


def read_component(cursor: Cursor, given: ReadContext) -> tuple[Job, ...]:
    """Read a bare component; see ``Read``."""
    moved = RelocatedProblems(cursor.problems)
    component = Section(dataclasses.replace(cursor, problems=moved), V1ComponentFields)
    return _ClusterMembers(Compiled(operation=None, component=component, moved=moved), given).read()


FORMATS = tuple(
    Format(name=NAME, version=VERSION, kind=kind, read=read, version_key=_VERSION_KEY, table=table)
    for kind, read, table in (
        ("operation", read_operation, V1OperationFields),
        ("component", read_component, V1ComponentFields),
    )
)
"""The kinds of this format."""


@dataclass
class _ClusterMembers:
    compiled: Compiled
    given: ReadContext

    def read(self) -> tuple[Job, ...]:
        """Build the job."""
        self._warn_of_helpers()
        document = self.compiled
        locations = FieldLocations(document.component.cursor.location)
        named = document.at(V1CommonFields.name.key)
        unfilled = named is not None and has_expression(named.node.text)
        known = {
            "namespace": document.text(V1CommonFields.namespace) or self.given.namespace or "default",
            "base_url": "/",
        }
        if named and not unfilled:
            known["name"] = self._name(named)
        elif named is None:
            known["name"] = self._unnamed()
        values = ParamsReader(document.operation, document.component, known).read()
        document = self.compiled = document.with_names(values, known)
        named = document.at(V1CommonFields.name.key)
        name = self._name(named) if named and unfilled else known.get("name", "")
        locations.record(
            JobField("name"), named.location if named else self._root().key_location(V1CommonFields.name.key)
        )
        retries, policy = self._termination()
        section = document.run()
        if section is None:
            return ()
        run = RunReader(retries=retries or 0, variables=values.variables, locations=locations).read(section)
        job = self._job(run, name=name, policy=policy, values=values, locations=locations)
        if run.kind is JobKind.BATCH or retries is not None:
            job = msgspec.structs.replace(
                job, run=msgspec.structs.replace(job.run, backoff_limit=retries or 0)
            )
        apply_rules(job, locations, document.moved, self.given.limits)
        return (job,)

    def _job(
        self, run: V1Run, *, name: str, policy: RunPolicy, values: Values, locations: FieldLocations
    ) -> Job:
        document = self.compiled
        component = document.component.cursor
        locations.record(
            JobField("parameters"), component.key_location(V1ComponentFields.inputs.key), "inputs and params"
        )
        clean = run.clean or (CleanPodPolicy.ALL if policy.ttl_s is None else CleanPodPolicy.RUNNING)
        approved = document.at(V1CommonFields.is_approved.key)
        if approved:
            locations.record(
                JobField("suspend"), approved.location, f"{V1CommonFields.is_approved.key}: false"
            )
        if queue := document.at(V1CommonFields.queue.key):
            locations.record(JobField("queue"), queue.location)
        else:
            locations.record(JobField("queue"), locations.find(JobField("scheduling_queue")))
        return Job(
            name=name,
            namespace=document.text(V1CommonFields.namespace, String(DNS_1123))
            or self.given.namespace
            or "default",
            queue=self._queue(run, locations),
            priority=run.priority,
            kind=run.kind,
            category=run.category,
            framework=run.framework,
            options=msgspec.structs.replace(
                run.options, conventions=(Convention.POLYAXON,), parameters=values.plain
            ),
            format=NAME,
            min_available=run.min_available,
            roles=run.roles,
            annotations=self._annotations(),
            run=msgspec.structs.replace(
                policy,
                clean_pod_policy=clean,
                queue_deadline_s=run.queue_deadline_s,
                success_policy=run.success,
                suspend=bool(approved and V1CommonFields.is_approved.type.read(approved) is False),
            ),
        )

    def _warn_of_helpers(self) -> None:
        for section in (self.compiled.operation, self.compiled.component):
            if section is None:
                continue
            section.get(V1CommonFields.plugins)
            template = section.get(V1CommonFields.template)
            if template and template.get(V1TemplateFields.enabled):
                about = template.get(V1TemplateFields.description) or "it must be completed before it runs"
                parts = template.get(V1TemplateFields.fields_)
                fix = f"fill in {', '.join(shown(part) for part in parts)}, " if parts else "complete it, "
                template.cursor.error(
                    Code.UNSUPPORTED,
                    f"this is a template: {shown(about)}",
                    found="",
                    fix=f"{fix}and remove template",
                )

    def _root(self) -> Cursor:
        return (self.compiled.operation or self.compiled.component).cursor

    def _name(self, at: Cursor) -> str:
        """Return the job's name: the part between owner and tag, as a valid name."""
        given = String().read(at)
        if not given:
            return ""
        slug = given.rsplit("/", 1)[-1].split(":", 1)[0]
        if DNS_1035.allows(slug):
            return slug
        near = DNS_1035.fix(slug).removeprefix("write ")
        if not near:
            at.error(Code.BAD_NAME, DNS_1035.message(slug), allowed=DNS_1035.description)
            return ""
        at.problems.warn(
            Code.BAD_NAME,
            at.location,
            f"{DNS_1035.message(slug)}; the name is converted to {near}",
            found=shown(given),
            fix=f"write {near}",
        )
        return near

    def _unnamed(self) -> str:
        name = self.given.name
        if name and not DNS_1035.allows(name):
            name = DNS_1035.fix(name).removeprefix("write ")
        if not name:
            self._root().missing(V1CommonFields.name.key, "name is missing", "add name: my-job")
        return name

    def _queue(self, run: V1Run, locations: FieldLocations) -> str:
        at = self.compiled.at(V1CommonFields.queue.key)
        if at is None:
            return run.queue
        given = String().read(at)
        if given is None:
            return ""
        agent, slash, queue = given.rpartition("/")
        if slash:
            at.problems.warn(
                Code.IGNORED,
                at.location,
                f"the agent {shown(agent)} is ignored: Muster has queues, not agents",
                found=shown(given),
                fix=f"write {shown(queue)}",
            )
        node = dataclasses.replace(at.node, value=queue, text=queue)
        queue = String(QUEUE).read(dataclasses.replace(at, node=node)) or ""
        if run.queue and run.queue != queue:
            location = locations.find(JobField("scheduling_queue"))
            message = f"schedulingPolicy.queue is ignored: the operation's queue is {shown(queue)}"
            at.problems.warn(Code.IGNORED, location, message)
        return queue

    def _annotations(self) -> dict[str, str]:
        description = self.compiled.text(V1CommonFields.description)
        at = self.compiled.at(V1CommonFields.tags.key)
        tags = V1CommonFields.tags.type.read(at) if at else None
        annotations = {_DESCRIPTION: description} if description else {}
        return {**annotations, _TAGS: ",".join(tags)} if tags else annotations

    def _termination(self) -> tuple[int | None, RunPolicy]:
        """Return the back-off limit, if given, and the other rules of termination."""
        at = self.compiled.at(V1CommonFields.termination.key)
        section = V1CommonFields.termination.type.read(at) if at else None
        if section is None:
            return None, RunPolicy()
        return section.get(V1TerminationFields.max_retries), RunPolicy(
            active_deadline_s=section.get(V1TerminationFields.timeout),
            ttl_s=section.get(V1TerminationFields.ttl),
        )
