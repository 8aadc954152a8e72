"""What a framework is told, builds and provenance of a job that came as data."""

from __future__ import annotations

from muster_core.models import Build, FrameworkOptions, Job, Rendezvous
from muster_core.models.problem_codes import Code
from muster_formats.names import VARIABLE
from muster_formats.typed.values import Values

_MAX_INT32 = 2**31 - 1


def check_options(job: Job, values: Values) -> None:
    """Judge the single values of ``options`` and ``build``, and what a job that comes alone cannot have; the rest is for the rules."""
    _options(job.options, values)
    if job.build:
        _build(job.build, values)
    if job.built_by:
        words = "built_by names a job of the same document, and a typed job comes alone"
        fix = "submit both jobs as one document"
        values.refuse(Code.CONFLICT, "built_by", words, found=job.built_by, fix=fix)
    if job.defaults:
        words = "which of the platform's defaults were applied is said by Muster"
        values.refuse(Code.NOT_TAKEN, "defaults", words, found=job.defaults.category.value, fix="remove it")


def _options(options: FrameworkOptions, values: Values) -> None:
    values.no_nul("options.model_dir", (options.model_dir,))
    if len(set(options.conventions)) < len(options.conventions):
        words = "a convention is named twice"
        found = ", ".join(options.conventions)
        values.refuse(Code.DUPLICATE, "options.conventions", words, found=found, fix="remove one of the two")
    if options.rendezvous:
        _rendezvous(options.rendezvous, values)


def _rendezvous(rendezvous: Rendezvous, values: Values) -> None:
    path = "options.rendezvous"
    if rendezvous.port is not None:
        values.range(f"{path}.port", rendezvous.port, 1, 65535)
    if rendezvous.max_restarts is not None:
        values.range(f"{path}.max_restarts", rendezvous.max_restarts, 0, _MAX_INT32)
    values.no_nul(path, (rendezvous.host, rendezvous.job_id, *rendezvous.conf, *rendezvous.conf.values()))


def _build(build: Build, values: Values) -> None:
    values.keys("build.env", build.env, VARIABLE)
    values.no_nul("build", (build.base, build.image, *build.steps, *build.env.values()))
