"""Polyaxon 1.x (``version: 1.1``) documents: an operation with its component, or a component.

The operation is merged with its component, expressions are expanded, and the result is read. Problems are reported where
the author wrote the value.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import msgspec

from muster_core.models import CleanPodPolicy, Convention, Job, JobKind, RunPolicy
from muster_core.models.problem_codes import Code
from muster_formats.cursor import Cursor
from muster_formats.field_types import String
from muster_formats.locations import FieldLocations, JobField
from muster_formats.names import DNS_1035, DNS_1123, QUEUE
from muster_formats.polyaxon_v1.compiled import Compiled
from muster_formats.polyaxon_v1.expressions import has_expression
from muster_formats.polyaxon_v1.keys import (
    NAME,
    VERSION,
    CommonKeys,
    ComponentKeys,
    OperationKeys,
    TemplateKeys,
    TerminationKeys,
)
from muster_formats.polyaxon_v1.params import Given as Values
from muster_formats.polyaxon_v1.params import ParamsReader
from muster_formats.polyaxon_v1.run import Run, RunReader
from muster_formats.problems import RelocatedProblems, shown
from muster_formats.registry import Format, ReadContext
from muster_formats.rules import apply_rules
from muster_formats.schema import Section

_VERSION_KEY = "version"
_DESCRIPTION, _TAGS = "polyaxon.com/description", "polyaxon.com/tags"
_REFERENCES = (OperationKeys.hub_ref, OperationKeys.path_ref, OperationKeys.url_ref, OperationKeys.dag_ref)


def read_operation(cursor: Cursor, given: ReadContext) -> tuple[Job, ...]:
    """Read an operation; see ``Read``."""
    moved = RelocatedProblems(cursor.problems)
    operation = Section(dataclasses.replace(cursor, problems=moved), OperationKeys)
    if operation.get(OperationKeys.is_preset) and (at := operation.at(OperationKeys.is_preset.key)):
        at.error(Code.UNSUPPORTED, "a preset is not an operation", fix="submit the completed operation")
    component = operation.get(OperationKeys.component)
    if component is None:
        if not any(operation.given(reference) for reference in _REFERENCES):
            operation.cursor.missing(
                "component", "an operation needs a component", "add component: {run: ...}"
            )
        return ()
    component.get(ComponentKeys.kind)
    return _Reader(Compiled(operation=operation, component=component, moved=moved), given).read()


def read_component(cursor: Cursor, given: ReadContext) -> tuple[Job, ...]:
    """Read a bare component; see ``Read``."""
    moved = RelocatedProblems(cursor.problems)
    component = Section(dataclasses.replace(cursor, problems=moved), ComponentKeys)
    return _Reader(Compiled(operation=None, component=component, moved=moved), given).read()


FORMATS = tuple(
    Format(name=NAME, version=VERSION, kind=kind, read=read, version_key=_VERSION_KEY, table=table)
    for kind, read, table in (
        ("operation", read_operation, OperationKeys),
        ("component", read_component, ComponentKeys),
    )
)
"""The kinds of this format."""


@dataclass
class _Reader:
    compiled: Compiled
    given: ReadContext

    def read(self) -> tuple[Job, ...]:
        """Build the job."""
        self._tell_of_helpers()
        document = self.compiled
        places = FieldLocations(document.component.cursor.location)
        named = document.at(CommonKeys.name.key)
        unfilled = named is not None and has_expression(named.node.text)
        known = {
            "namespace": document.text(CommonKeys.namespace) or self.given.namespace or "default",
            "base_url": "/",
        }
        if named and not unfilled:
            known["name"] = self._name(named)
        elif named is None:
            known["name"] = self._unnamed()
        values = ParamsReader(document.operation, document.component, known).read()
        document = self.compiled = document.with_names(values, known)
        named = document.at(CommonKeys.name.key)
        name = self._name(named) if named and unfilled else known.get("name", "")
        places.record(
            JobField("name"), named.location if named else self._root().key_location(CommonKeys.name.key)
        )
        retries, policy = self._termination()
        section = document.run()
        if section is None:
            return ()
        run = RunReader(retries=retries or 0, tell=values.tell, places=places).read(section)
        job = self._job(run, name=name, policy=policy, values=values, places=places)
        if run.kind is JobKind.BATCH or retries is not None:
            job = msgspec.structs.replace(
                job, run=msgspec.structs.replace(job.run, backoff_limit=retries or 0)
            )
        apply_rules(job, places, document.moved, self.given.limits)
        return (job,)

    def _job(self, run: Run, *, name: str, policy: RunPolicy, values: Values, places: FieldLocations) -> Job:
        document = self.compiled
        component = document.component.cursor
        places.record(
            JobField("parameters"), component.key_location(ComponentKeys.inputs.key), "inputs and params"
        )
        clean = run.clean or (CleanPodPolicy.ALL if policy.ttl_s is None else CleanPodPolicy.RUNNING)
        approved = document.at(CommonKeys.is_approved.key)
        if approved:
            places.record(JobField("suspend"), approved.location, f"{CommonKeys.is_approved.key}: false")
        if queue := document.at(CommonKeys.queue.key):
            places.record(JobField("queue"), queue.location)
        else:
            places.record(JobField("queue"), places.find(JobField("scheduling_queue")))
        return Job(
            name=name,
            namespace=document.text(CommonKeys.namespace, String(DNS_1123))
            or self.given.namespace
            or "default",
            queue=self._queue(run, places),
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
                suspend=bool(approved and CommonKeys.is_approved.type.read(approved) is False),
            ),
        )

    def _tell_of_helpers(self) -> None:
        for section in (self.compiled.operation, self.compiled.component):
            if section is None:
                continue
            section.get(CommonKeys.plugins)
            template = section.get(CommonKeys.template)
            if template and template.get(TemplateKeys.enabled):
                about = template.get(TemplateKeys.description) or "it must be completed before it runs"
                parts = template.get(TemplateKeys.fields_)
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
        said = String().read(at)
        if not said:
            return ""
        slug = said.rsplit("/", 1)[-1].split(":", 1)[0]
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
            found=shown(said),
            fix=f"write {near}",
        )
        return near

    def _unnamed(self) -> str:
        name = self.given.name
        if name and not DNS_1035.allows(name):
            name = DNS_1035.fix(name).removeprefix("write ")
        if not name:
            self._root().missing(CommonKeys.name.key, "name is missing", "add name: my-job")
        return name

    def _queue(self, run: Run, places: FieldLocations) -> str:
        at = self.compiled.at(CommonKeys.queue.key)
        if at is None:
            return run.queue
        said = String().read(at)
        if said is None:
            return ""
        agent, slash, queue = said.rpartition("/")
        if slash:
            at.problems.warn(
                Code.IGNORED,
                at.location,
                f"the agent {shown(agent)} is ignored: Muster has queues, not agents",
                found=shown(said),
                fix=f"write {shown(queue)}",
            )
        node = dataclasses.replace(at.node, value=queue, text=queue)
        queue = String(QUEUE).read(dataclasses.replace(at, node=node)) or ""
        if run.queue and run.queue != queue:
            spot = places.find(JobField("scheduling_queue"))
            words = f"schedulingPolicy.queue is ignored: the operation's queue is {shown(queue)}"
            at.problems.warn(Code.IGNORED, spot, words)
        return queue

    def _annotations(self) -> dict[str, str]:
        description = self.compiled.text(CommonKeys.description)
        at = self.compiled.at(CommonKeys.tags.key)
        tags = CommonKeys.tags.type.read(at) if at else None
        annotations = {_DESCRIPTION: description} if description else {}
        return {**annotations, _TAGS: ",".join(tags)} if tags else annotations

    def _termination(self) -> tuple[int | None, RunPolicy]:
        """Return the back-off limit, if given, and the other rules of termination."""
        at = self.compiled.at(CommonKeys.termination.key)
        section = CommonKeys.termination.type.read(at) if at else None
        if section is None:
            return None, RunPolicy()
        return section.get(TerminationKeys.max_retries), RunPolicy(
            active_deadline_s=section.get(TerminationKeys.timeout), ttl_s=section.get(TerminationKeys.ttl)
        )
