"""The rules for what a framework is told, and for builds: the same by every door."""

from __future__ import annotations

from collections.abc import Iterable

from muster_core.models import Framework, FrameworkOptions, Job, JobKind, Rendezvous
from muster_core.models.problem_codes import Code
from muster_formats.judge import Judge
from muster_formats.places import Place
from muster_formats.problems import shown
from muster_formats.raw_json import flaw_of

MAX_PROCESSES = 1024
"""How many processes or slots one replica may have."""

PROCESS_WORDS = ("auto", "cpu", "gpu")
"""What PyTorch takes instead of a number: as many as there are of it, or as it sees fit."""

BACKENDS = ("c10d", "etcd", "etcd-v2")
"""Where agents may meet. Source: torchrun."""

_TORCH = (Framework.PYTORCH,)
_SLOTS = (Framework.PYTORCH, Framework.MPI, Framework.HOROVOD)
_AGENTS = (Framework.PYTORCH, Framework.PADDLE)
_TENSORFLOW = (Framework.TENSORFLOW,)


def apply_option_rules(job: Job, judge: Judge) -> None:
    """Say what of the options and of the build of ``job`` cannot be, and what of them has no effect."""
    options = job.options
    _idle(job, judge)
    _processes(job.framework, options, judge)
    if options.rendezvous:
        _rendezvous(options.rendezvous, judge)
    if flaw := flaw_of(options.parameters):
        code, words, fix = flaw
        judge.refuse(code, Place("parameters"), words, fix=fix)
    _build(job, judge)


def _idle(job: Job, judge: Judge) -> None:
    options = job.options
    uses: dict[str, tuple[bool, Iterable[Framework]]] = {
        "processes": (bool(options.processes), _SLOTS),
        "rendezvous": (options.rendezvous is not None, _AGENTS),
        "sparse_cluster": (options.sparse_cluster, _TENSORFLOW),
        "evaluator_in_cluster": (options.evaluator_in_cluster, _TENSORFLOW),
        "model_dir": (bool(options.model_dir), _TENSORFLOW),
    }
    for field, (given, frameworks) in uses.items():
        if given and job.framework not in frameworks:
            names = ", ".join(framework.value for framework in frameworks)
            word = judge.word(field)
            judge.warn(
                Place(field), f"{word} has no effect: it is for {names}, not for {job.framework.value}"
            )
    if options.parameters and not options.conventions:
        judge.warn(
            Place("parameters"),
            f"{judge.word('parameters')} has no effect: no convention says how they are passed on",
            fix="add conventions: [polyaxon]",
        )


def _processes(framework: Framework, options: FrameworkOptions, judge: Judge) -> None:
    said = options.processes
    words = PROCESS_WORDS if framework not in _SLOTS or framework in _TORCH else ()
    if not said or said in words:
        return
    if said.isascii() and said.isdecimal() and len(said) <= 4 and 1 <= int(said) <= MAX_PROCESSES:
        return
    allowed = ", ".join((*words, f"1 to {MAX_PROCESSES}"))
    message = f"{judge.word('processes')} is {shown(said)}; it is one of {allowed}"
    judge.refuse(Code.NOT_ALLOWED, Place("processes"), message, found=shown(said), allowed=allowed)


def _rendezvous(rendezvous: Rendezvous, judge: Judge) -> None:
    if rendezvous.backend not in BACKENDS:
        allowed = ", ".join(BACKENDS)
        words = f"{judge.word('backend')} is one of {allowed}"
        judge.refuse(
            Code.NOT_ALLOWED, Place("backend"), words, found=shown(rendezvous.backend), allowed=allowed
        )
    for key, value in rendezvous.conf.items():
        if not key or {",", "="} & set(key) or "," in value:
            words = f"{shown(key)} cannot be passed on: settings are written as key=value,key=value"
            judge.refuse(
                Code.BAD_NAME, Place("conf"), words, found=shown(key), allowed="no ',' and, in a key, no '='"
            )


def _build(job: Job, judge: Judge) -> None:
    is_build = job.kind is JobKind.BUILD
    if is_build and (job.build is None or not (job.build.steps or job.build.base)):
        fix = "add build: {base: ..., steps: [...]}"
        judge.refuse(Code.REQUIRED, Place("build"), "a job of kind build has steps or a base image", fix=fix)
    if job.build and not is_build:
        words = f"what is built is said by a job of kind build, not of kind {job.kind.value}"
        fix = "write kind: build; a job that needs the image names this one in builtBy"
        judge.refuse(Code.CONFLICT, Place("build"), words, Place("kind"), fix=fix)
    if is_build and job.built_by:
        words = "a build waits for no other build"
        judge.refuse(
            Code.CONFLICT, Place("built_by"), words, Place("kind"), found=job.built_by, fix="remove it"
        )
