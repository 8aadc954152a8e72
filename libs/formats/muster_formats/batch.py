"""Kubernetes' own Job (``batch/v1``): a gang of equal replicas that all must end well.

A Job that runs its completions one after the other is no gang and is refused; one without completions is a work queue, whose replicas are
those that run at once. Kubernetes replaces a pod that failed until ``backoffLimit`` is used up, whichever restart policy the pod has; the
policy says only whether that is a new pod, which here it always is.
"""

from __future__ import annotations

import dataclasses
import enum

from muster_core.models import Framework, Job, RestartPolicy, Role, RunPolicy, Template
from muster_core.models.problem_codes import Code
from muster_core.quantities import MAX_SECONDS
from muster_formats.cursor import Cursor
from muster_formats.format import Format, Given
from muster_formats.kinds import Choice, Ignored, Text, Truth, Whole
from muster_formats.kubeflow.keys import MAX_INT32
from muster_formats.metadata import KubernetesMetadataKeys, Metadata, MetadataKeys, read_metadata
from muster_formats.native.kinds import PodTemplate
from muster_formats.places import Place, Places
from muster_formats.pods.framework_pods import main_of
from muster_formats.pods.keys import PodKeys, TemplateKeys
from muster_formats.pods.template import read_pod_template
from muster_formats.rules import MAX_REPLICAS, apply_rules
from muster_formats.table import Field, Nested, Section, Table

API_VERSION = "batch/v1"
KIND = "Job"
NAME = "batchjob"

ROLE = "worker"
"""The one role of a Job."""

_BACKOFF = 6
INDEX = {"JOB_COMPLETION_INDEX": "$(MUSTER_INDEX)"}
"""What an Indexed Job gives its replicas."""


class _Mode(enum.StrEnum):
    NON_INDEXED = "NonIndexed"
    INDEXED = "Indexed"


class _PodRestart(enum.StrEnum):
    ON_FAILURE = "OnFailure"
    NEVER = "Never"


class BatchPodKeys(PodKeys):
    """A PodSpec of a Job."""

    required = ("containers", "restartPolicy")
    restart = Field(
        "restartPolicy",
        Choice(_PodRestart),
        "Either starts a replica that failed again, while backoffLimit lasts; Never with a limit of 0 ends the job.",
    )


class BatchTemplateKeys(TemplateKeys):
    """A PodTemplateSpec of a Job."""

    spec = Field("spec", Nested(BatchPodKeys), "The pod.")


class SpecKeys(Table):
    """``spec``."""

    required = ("template",)
    completions = Field(
        "completions", Whole(0, MAX_REPLICAS), "How many replicas must end well; none for a work queue."
    )
    parallelism = Field(
        "parallelism",
        Whole(0, MAX_REPLICAS),
        "How many run at once, 1 unless said: at least completions, since a gang starts as a whole.",
    )
    mode = Field("completionMode", Choice(_Mode), "Indexed gives each replica JOB_COMPLETION_INDEX.")
    backoff_limit = Field("backoffLimit", Whole(0, MAX_INT32), "Failures that are forgiven; 6 unless said.")
    active_deadline = Field("activeDeadlineSeconds", Whole(1, MAX_SECONDS), "From the first start.")
    ttl = Field("ttlSecondsAfterFinished", Whole(0, MAX_SECONDS), "From the end until the record is removed.")
    suspend = Field("suspend", Truth(), "Whether it is held from the start, until it is resumed.")
    template = Field("template", PodTemplate(BatchTemplateKeys), "A PodTemplateSpec.")
    backoff_per_index = Field(
        "backoffLimitPerIndex",
        Ignored(),
        "Failures of one index.",
        refused="failures are counted for the whole job",
        fix="use backoffLimit",
    )
    max_failed = Field(
        "maxFailedIndexes",
        Ignored(),
        "How many indexes may fail.",
        refused="every replica of a gang must end well",
    )
    success_policy = Field(
        "successPolicy",
        Ignored(),
        "Which indexes must succeed.",
        refused="every replica of a gang must end well; a framework of the native form has rules of its own",
    )
    failure_policy = Field(
        "podFailurePolicy",
        Ignored(),
        "Which failures count.",
        idle="backoffLimit counts every failure; evictions and lost nodes are none",
    )
    replacement = Field(
        "podReplacementPolicy",
        Ignored(),
        "When a pod is replaced.",
        idle="a replica is started again when the end of the one before is confirmed",
    )
    selector = Field("selector", Ignored(), "Which pods are its own.", idle="Muster knows its replicas")
    manual_selector = Field(
        "manualSelector", Ignored(), "Whether selector is the user's.", idle="Muster knows its replicas"
    )
    managed_by = Field(
        "managedBy", Ignored(), "Whose job it is.", idle="Muster manages the jobs that are submitted to it"
    )


class DocumentKeys(Table):
    """A Job."""

    required = ("apiVersion", "kind", "metadata", "spec")
    api_version = Field("apiVersion", Text(), "Which version of the kind it is.")
    kind = Field("kind", Text(), "Which kind it is.")
    metadata = Field("metadata", Nested(KubernetesMetadataKeys), "Who the job is.")
    spec = Field("spec", Nested(SpecKeys), "What it is.")
    status = Field("status", Ignored(), "How it was.", idle="it is filled in by a controller")


def read_batchjob(cursor: Cursor, given: Given) -> tuple[Job, ...]:
    """Read a Job; see ``Read``."""
    document = Section(cursor, DocumentKeys)
    header = document.get(DocumentKeys.metadata)
    metadata = read_metadata(document, header)
    places = Places(cursor.spot)
    places.note(Place("name"), (header or document).cursor.key_spot(MetadataKeys.name.key))
    spec = document.get(DocumentKeys.spec)
    if spec is None:
        cursor.missing("spec", "a Job has a spec with a template")
        return ()
    places.note(Place("suspend"), spec.cursor.key_spot(SpecKeys.suspend.key))
    backoff = spec.get(SpecKeys.backoff_limit)
    run = RunPolicy(
        backoff_limit=_BACKOFF if backoff is None else backoff,
        active_deadline_s=spec.get(SpecKeys.active_deadline),
        ttl_s=spec.get(SpecKeys.ttl),
        suspend=spec.get(SpecKeys.suspend) or False,
    )
    job = Job(
        name=metadata.name,
        namespace=metadata.namespace or given.namespace or "default",
        labels=metadata.labels,
        annotations=metadata.annotations,
        format=NAME,
        roles=(_role(spec, metadata, run, places),),
        run=run,
    )
    apply_rules(job, places, cursor.problems, given.limits)
    return (job,)


FORMATS = (Format(name=NAME, version=API_VERSION, kind=KIND, read=read_batchjob, table=DocumentKeys),)
"""What is read here."""


def _role(spec: Section, metadata: Metadata, run: RunPolicy, places: Places) -> Role:
    count = _count(spec)
    key = SpecKeys.completions.key if spec.given(SpecKeys.completions) else SpecKeys.parallelism.key
    for place in ("replicas", "min", "max"):
        places.note(Place(place, ROLE), spec.cursor.key_spot(key), key)
    places.note(Place("roles"), spec.cursor.key_spot(key))
    for place in ("role", "template", "resources"):
        places.note(Place(place, ROLE), spec.cursor.key_spot(SpecKeys.template.key))
    template = spec.get(SpecKeys.template)
    if template is None:
        spec.cursor.missing("template", "a Job has a template", "add a template with a container")
        return Role(name=ROLE, replicas=count, min=count, max=count, template=Template())
    main = main_of(Framework.PLAIN, metadata.annotations, table=BatchTemplateKeys)
    indexed = spec.get(SpecKeys.mode) is _Mode.INDEXED
    return Role(
        name=ROLE,
        replicas=count,
        min=count,
        max=count,
        template=read_pod_template(template, dataclasses.replace(main, variables=INDEX if indexed else {})),
        restart_policy=_restart(template, run),
    )


def _count(spec: Section) -> int:
    completions, parallelism = spec.get(SpecKeys.completions), spec.get(SpecKeys.parallelism)
    at = spec.at(SpecKeys.parallelism.key)
    if parallelism == 0 and at:
        at.error(
            Code.NOT_TAKEN,
            "parallelism 0 holds a Job back",
            fix="write parallelism: 1 or more, and submit it when it is to run",
        )
    if completions is None:
        if spec.get(SpecKeys.mode) is _Mode.INDEXED and not spec.given(SpecKeys.completions):
            fix = "add completions: as many as there are indexes"
            spec.cursor.missing("completions", "an Indexed Job has completions", fix)
        return 1 if parallelism is None else parallelism
    at_once = 1 if parallelism is None else parallelism
    unread = parallelism is None and at is not None
    if 0 < at_once < completions and not unread:
        words = f"{completions} completions, {at_once} at a time, are no gang: it starts as a whole"
        fix = f"write parallelism: {completions}, or submit several Jobs"
        spec.cursor.problems.add(
            Code.NOT_TAKEN,
            spec.cursor.key_spot((SpecKeys.parallelism if at else SpecKeys.completions).key),
            words,
            found=str(at_once if at else completions),
            allowed=f"parallelism {completions} or more",
            fix=fix,
        )
    return completions


def _restart(template: Cursor, run: RunPolicy) -> RestartPolicy:
    whole = Nested(BatchTemplateKeys).read(template)
    pod = whole.get(BatchTemplateKeys.spec) if whole else None
    if pod is None:
        return RestartPolicy.NEVER
    policy = pod.get(BatchPodKeys.restart)
    if policy is None:
        fix = "add restartPolicy: Never, or OnFailure"
        pod.cursor.missing("restartPolicy", "the pod of a Job has a restartPolicy", fix)
    ends = policy is _PodRestart.NEVER and run.backoff_limit == 0
    return RestartPolicy.NEVER if ends else RestartPolicy.ON_FAILURE
