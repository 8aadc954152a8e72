"""Kubernetes' own Job (``batch/v1``): a gang of equal replicas that must all succeed.

A Job that runs its completions one after the other is not a gang and is rejected. One without completions is a work queue, whose replicas
are those that run at the same time. Kubernetes replaces a failed pod until ``backoffLimit`` is used up, whichever restart policy the pod
has; the policy only says whether that is a new pod, which in Muster it always is.
"""

from __future__ import annotations

import dataclasses
import enum

from muster_core.models import Framework, Job, RestartPolicy, Role, RunPolicy, Template
from muster_core.models.problem_codes import Code
from muster_core.quantities import MAX_SECONDS
from muster_formats.cursor import Cursor
from muster_formats.field_types import MAX_INT32, Boolean, Choice, Integer, String
from muster_formats.locations import FieldLocations, JobField
from muster_formats.pods import (
    JobMetadata,
    KubernetesMetadataFields,
    MetadataFields,
    PodSpecFields,
    PodTemplate,
    PodTemplateFields,
    main_container_of,
    read_metadata,
    read_pod_template,
)
from muster_formats.registry import Format, ReadContext
from muster_formats.rules import MAX_REPLICAS, apply_rules
from muster_formats.schema import Field, Nested, Section, Table, ignored, rejected

API_VERSION = "batch/v1"
KIND = "Job"
NAME = "batchjob"

ROLE = "worker"
"""The one role of a Job."""

INDEX_VARIABLES = {"JOB_COMPLETION_INDEX": "$(MUSTER_INDEX)"}
"""Variables that an Indexed Job gives its replicas."""

_BACKOFF_LIMIT = 6
_ALL_MUST_SUCCEED = "every replica of a gang must succeed"
_OWN_PODS = "Muster knows its replicas"


class _CompletionMode(enum.StrEnum):
    NON_INDEXED = "NonIndexed"
    INDEXED = "Indexed"


class _PodRestart(enum.StrEnum):
    ON_FAILURE = "OnFailure"
    NEVER = "Never"


class BatchPodSpecFields(PodSpecFields):
    """A PodSpec of a Job."""

    required = ("containers", "restartPolicy")
    restart = Field(
        "restartPolicy",
        Choice(_PodRestart),
        "Either restarts failed replicas within backoffLimit; Never with a limit of 0 ends the job.",
    )


class BatchTemplateFields(PodTemplateFields):
    """A PodTemplateSpec of a Job."""

    spec = Field("spec", Nested(BatchPodSpecFields), "Specification of the pod.")


class BatchJobSpecFields(Table):
    """``spec`` of a Job."""

    required = ("template",)
    completions = Field(
        "completions",
        Integer(0, MAX_REPLICAS),
        "Number of replicas that must succeed; without it the Job is a work queue.",
    )
    parallelism = Field(
        "parallelism",
        Integer(0, MAX_REPLICAS),
        "Number of replicas that run at the same time, 1 by default: at least completions, since a gang starts as a whole.",
    )
    mode = Field("completionMode", Choice(_CompletionMode), "Indexed sets JOB_COMPLETION_INDEX.")
    backoff_limit = Field("backoffLimit", Integer(0, MAX_INT32), "Failures before the job fails; default 6.")
    active_deadline = Field("activeDeadlineSeconds", Integer(1, MAX_SECONDS), "Longest run time.")
    ttl = Field("ttlSecondsAfterFinished", Integer(0, MAX_SECONDS), "From the end to the removal of the job.")
    suspend = Field("suspend", Boolean(), "Whether the job is suspended from the start.")
    template = Field("template", PodTemplate(BatchTemplateFields), "A PodTemplateSpec.")
    backoff_per_index = rejected(
        "backoffLimitPerIndex",
        "Failures of one index.",
        "failures count for the whole job",
        fix="use backoffLimit",
    )
    max_failed = rejected("maxFailedIndexes", "Number of indexes that may fail.", _ALL_MUST_SUCCEED)
    success_policy = rejected(
        "successPolicy",
        "Which indexes must succeed.",
        _ALL_MUST_SUCCEED,
        fix="use a framework of the native format, which has a success policy of its own",
    )
    failure_policy = ignored(
        "podFailurePolicy",
        "Which failures count.",
        "every failure counts for backoffLimit; evictions and lost nodes do not",
    )
    replacement = ignored(
        "podReplacementPolicy",
        "When a pod is replaced.",
        "a replica is restarted once the end of the previous one is confirmed",
    )
    selector = ignored("selector", "Selector of the pods.", _OWN_PODS)
    manual_selector = ignored("manualSelector", "Whether the user sets selector.", _OWN_PODS)
    managed_by = ignored("managedBy", "Controller of the job.", "Muster manages what is submitted to it")


class BatchJobFields(Table):
    """A Job."""

    required = ("apiVersion", "kind", "metadata", "spec")
    api_version = Field("apiVersion", String(), "Version of the kind.")
    kind = Field("kind", String(), "Kind of the document.")
    metadata = Field("metadata", Nested(KubernetesMetadataFields), "Name, namespace, labels and annotations.")
    spec = Field("spec", Nested(BatchJobSpecFields), "Specification of the job.")
    status = ignored("status", "Status of the job.", "a controller sets it")


def read_batch_job(cursor: Cursor, context: ReadContext) -> tuple[Job, ...]:
    """Read a Job; see ``Read``."""
    document = Section(cursor, BatchJobFields)
    header = document.get(BatchJobFields.metadata)
    metadata = read_metadata(document, header)
    locations = FieldLocations(cursor.location)
    locations.record(JobField("name"), (header or document).cursor.key_location(MetadataFields.name.key))
    spec = document.get(BatchJobFields.spec)
    if spec is None:
        cursor.missing("spec", "spec is missing", "add spec: {template: ...}")
        return ()
    locations.record(JobField("suspend"), spec.cursor.key_location(BatchJobSpecFields.suspend.key))
    backoff = spec.get(BatchJobSpecFields.backoff_limit)
    run = RunPolicy(
        backoff_limit=_BACKOFF_LIMIT if backoff is None else backoff,
        active_deadline_s=spec.get(BatchJobSpecFields.active_deadline),
        ttl_s=spec.get(BatchJobSpecFields.ttl),
        suspend=spec.get(BatchJobSpecFields.suspend) or False,
    )
    job = Job(
        name=metadata.name,
        namespace=metadata.namespace or context.namespace or "default",
        labels=metadata.labels,
        annotations=metadata.annotations,
        format=NAME,
        roles=(_role(spec, metadata, run, locations),),
        run=run,
    )
    apply_rules(job, locations, cursor.problems, context.limits)
    return (job,)


FORMATS = (Format(name=NAME, version=API_VERSION, kind=KIND, read=read_batch_job, table=BatchJobFields),)
"""The formats of this module."""


def _role(spec: Section, metadata: JobMetadata, run: RunPolicy, locations: FieldLocations) -> Role:
    fields = BatchJobSpecFields
    count = _count(spec)
    key = fields.completions.key if spec.given(fields.completions) else fields.parallelism.key
    for field in ("replicas", "min", "max"):
        locations.record(JobField(field, ROLE), spec.cursor.key_location(key), key)
    locations.record(JobField("roles"), spec.cursor.key_location(key))
    for field in ("role", "template", "resources"):
        locations.record(JobField(field, ROLE), spec.cursor.key_location(fields.template.key))
    template = spec.get(fields.template)
    if template is None:
        spec.cursor.missing("template", "template is missing", "add a template with a container")
        return Role(name=ROLE, replicas=count, min=count, max=count, template=Template())
    main = main_container_of(Framework.PLAIN, metadata.annotations, table=BatchTemplateFields)
    indexed = spec.get(fields.mode) is _CompletionMode.INDEXED
    main = dataclasses.replace(main, variables=INDEX_VARIABLES if indexed else {})
    return Role(
        name=ROLE,
        replicas=count,
        min=count,
        max=count,
        template=read_pod_template(template, main),
        restart_policy=_restart_policy(template, run),
    )


def _count(spec: Section) -> int:
    fields = BatchJobSpecFields
    completions, parallelism = spec.get(fields.completions), spec.get(fields.parallelism)
    cursor = spec.at(fields.parallelism.key)
    if parallelism == 0 and cursor:
        fix = "write parallelism: 1 or more; use suspend: true to hold the job back"
        cursor.error(Code.UNSUPPORTED, "parallelism 0 is not supported", fix=fix)
    if completions is None:
        if spec.get(fields.mode) is _CompletionMode.INDEXED and not spec.given(fields.completions):
            fix = "add completions: the number of indexes"
            spec.cursor.missing("completions", "completions is missing in an Indexed Job", fix)
        return 1 if parallelism is None else parallelism
    at_once = 1 if parallelism is None else parallelism
    has_error = parallelism is None and cursor is not None
    if 0 < at_once < completions and not has_error:
        spec.cursor.problems.add(
            Code.UNSUPPORTED,
            spec.cursor.key_location((fields.parallelism if cursor else fields.completions).key),
            f"parallelism {at_once} is below completions {completions}, but a gang starts as a whole",
            found=str(at_once if cursor else completions),
            allowed=f"parallelism {completions} or more",
            fix=f"write parallelism: {completions}, or submit several Jobs",
        )
    return completions


def _restart_policy(template: Cursor, run: RunPolicy) -> RestartPolicy:
    whole = Nested(BatchTemplateFields).read(template)
    pod = whole.get(BatchTemplateFields.spec) if whole else None
    if pod is None:
        return RestartPolicy.NEVER
    policy = pod.get(BatchPodSpecFields.restart)
    if policy is None:
        fix = "add restartPolicy: Never, or OnFailure"
        pod.cursor.missing("restartPolicy", "restartPolicy is missing", fix)
    ends = policy is _PodRestart.NEVER and run.backoff_limit == 0
    return RestartPolicy.NEVER if ends else RestartPolicy.ON_FAILURE
