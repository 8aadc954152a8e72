"""``Job`` -> the documents of other forms. What a form cannot say is told, and where the job would mean something else without, refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from muster_core.models import Job, Problem, Severity
from muster_formats.batch import NAME as BATCHJOB
from muster_formats.export.batch import write_batchjob
from muster_formats.export.kubeflow import Form, write_kubeflow
from muster_formats.export.kubeflow_kinds import FORMS
from muster_formats.export.losses import Losses
from muster_formats.export.native import to_native
from muster_formats.export.tfjob import FORM as TFJOB
from muster_formats.export.trainjob import write_trainjob
from muster_formats.export.yaml_text import yaml_text
from muster_formats.names import Schema
from muster_formats.trainjob.keys import NAME as TRAINJOB

Write = Callable[[Job, Losses], Schema]
"""Writes the document of one job, and tells what it cannot say."""


@dataclass(frozen=True)
class Target:
    """A form that jobs can be written in: what it is called in messages (``a TFJob``), and its writer."""

    form: str
    write: Write


class Converted(msgspec.Struct, frozen=True):
    """Jobs in another form: ``text`` is YAML, empty where one cannot be written; ``losses`` say what it lacks, errors first.

    The paths of losses are those of the native form.
    """

    text: str
    losses: tuple[Problem, ...]

    @property
    def refused(self) -> bool:
        """Whether the jobs cannot be written."""
        return any(loss.severity is Severity.ERROR for loss in self.losses)


def _native(job: Job, losses: Losses) -> Schema:
    del losses
    return to_native(job)


def _kubeflow(form: Form) -> Target:
    article = "an" if form.kind.kind[0] in "AEIMOX" else "a"

    def write(job: Job, losses: Losses) -> Schema:
        return write_kubeflow(form, job, losses)

    return Target(f"{article} {form.kind.kind}", write)


TARGETS: Mapping[str, Target] = {
    "native": Target("the native form", _native),
    **{form.kind.name: _kubeflow(form) for form in (TFJOB, *FORMS)},
    BATCHJOB: Target("a Kubernetes Job", write_batchjob),
    TRAINJOB: Target("a TrainJob", write_trainjob),
}
"""Every form that jobs can be written in, by the name that its format has."""


def convert(jobs: Sequence[Job], target: str) -> Converted:
    """Write jobs, in the given order, as the parts of one document of the form ``target``, a key of ``TARGETS``.

    Reading the document back gives the same jobs, but for what ``losses`` say. Raises ``KeyError`` for a target that there is not.
    """
    form = TARGETS[target]
    documents: list[Schema] = []
    problems: list[Problem] = []
    for job in jobs:
        losses = Losses(form.form, job.name if len(jobs) > 1 else "")
        documents.append(form.write(job, losses))
        problems += losses.all()
    problems.sort(key=lambda problem: problem.severity is not Severity.ERROR)
    refused = any(problem.severity is Severity.ERROR for problem in problems)
    return Converted(text="" if refused else yaml_text(documents), losses=tuple(problems))
