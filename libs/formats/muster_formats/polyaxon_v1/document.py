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
from muster_formats.polyaxon_v1.expressions import has_expression
from muster_formats.polyaxon_v1.fields import (
    NAME,
    VERSION,
    V1CommonFields,
    V1ComponentFields,
    V1OperationFields,
    V1TemplateFields,
    V1TerminationFields,
)
from muster_formats.polyaxon_v1.operations import Compiled
from muster_formats.polyaxon_v1.parameters import ParamsReader
from muster_formats.polyaxon_v1.parameters import ReceivedParams as Values
from muster_formats.polyaxon_v1.run import RunReader, V1Run
from muster_formats.problems import RelocatedProblems, shown
from muster_formats.registry import Format, ReadContext
from muster_formats.rules import apply_rules
from muster_formats.schema import Section

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
        self._tell_of_helpers()
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

    def _tell_of_helpers(self) -> None:
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
