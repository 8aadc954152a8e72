"""The formats that jobs can be written in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from muster_core.models import Job, Problem, Severity
from muster_formats.batch_job import NAME as BATCH_JOB
from muster_formats.export.kubeflow import KUBEFLOW_TARGETS, KubeflowTarget, write_kubeflow
from muster_formats.export.losses import LossReport
from muster_formats.export.single_role import write_batch_job, write_trainjob
from muster_formats.native import to_native
from muster_formats.nodes import JsonObject
from muster_formats.source import yaml_text
from muster_formats.trainjob.fields import NAME as TRAINJOB

Write = Callable[[Job, LossReport], JsonObject]
"""Writes the document of one job and reports what the format cannot express."""


@dataclass(frozen=True)
class ExportTarget:
    """A format to write: what messages call it (``a TFJob``), and its writer."""

    title: str
    write: Write


class Converted(msgspec.Struct, frozen=True):
    """Jobs in another format.

    ``text`` is YAML, empty if a job cannot be written. ``losses`` are what the format cannot express, errors first, with native paths.
    """

    text: str
    losses: tuple[Problem, ...]

    @property
    def rejected(self) -> bool:
        """Whether a job cannot be written."""
        return any(loss.severity is Severity.ERROR for loss in self.losses)


def _write_native(job: Job, losses: LossReport) -> JsonObject:
    del losses
    return to_native(job)


def _kubeflow(target: KubeflowTarget) -> ExportTarget:
    def write(job: Job, losses: LossReport) -> JsonObject:
        return write_kubeflow(target, job, losses)

    kind = target.kind.kind
    return ExportTarget(f"{'an' if kind[0] in 'AEIMOX' else 'a'} {kind}", write)


TARGETS: Mapping[str, ExportTarget] = {
    "native": ExportTarget("the native format", _write_native),
    **{target.kind.name: _kubeflow(target) for target in KUBEFLOW_TARGETS},
    BATCH_JOB: ExportTarget("a Kubernetes Job", write_batch_job),
    TRAINJOB: ExportTarget("a TrainJob", write_trainjob),
}
"""Every format that jobs can be written in, by its name."""


def convert(jobs: Sequence[Job], target: str) -> Converted:
    """Write jobs as the parts of one document; reading it gives the same jobs except for the losses.

    Args:
        jobs: The jobs, in order.
        target: A key of ``TARGETS``.

    Raises:
        KeyError: If there is no such target.
    """
    writer = TARGETS[target]
    documents: list[JsonObject] = []
    problems: list[Problem] = []
    for job in jobs:
        losses = LossReport(writer.title, job.name if len(jobs) > 1 else "")
        documents.append(writer.write(job, losses))
        problems += losses.all()
    problems.sort(key=lambda problem: problem.severity is not Severity.ERROR)
    rejected = any(problem.severity is Severity.ERROR for problem in problems)
    return Converted(text="" if rejected else yaml_text(documents), losses=tuple(problems))
