"""Reading whole documents: text in any format, or a job given as data, becomes jobs or problems."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

import msgspec

from muster_core.models import Job, JobKind, Problem
from muster_core.models.problem_codes import Code
from muster_formats.cursor import Cursor
from muster_formats.limits import Limits, no_limits, version_limits
from muster_formats.nodes import node_of
from muster_formats.pods import GPU_NAMES
from muster_formats.problems import Problems, SourceLocation, shown
from muster_formats.registry import ReadContext, detect, parts_of
from muster_formats.source import read_text

_STDIN_NAMES = ("-", "<")


class Parsed(msgspec.Struct, frozen=True):
    """The result of reading a document.

    ``jobs`` are in the order of the document and empty if there is an error. A part of a document is one job, or a build and the job that
    waits for it. ``problems`` are errors, then warnings; each warning is also kept on its job.
    """

    jobs: tuple[Job, ...]
    problems: tuple[Problem, ...]


def parse(
    document: str | bytes, *, namespace: str = "", name: str = "", limits: Limits = no_limits
) -> Parsed:
    """Read a document in any format: YAML parts, JSON, or command lines.

    All problems are reported at once, and either all parts are accepted or none. Never raises, whatever the document.

    Args:
        document: The text.
        namespace: For jobs that name none.
        name: For jobs without a name, where the format allows that.
        limits: What to check besides the rules.
    """
    problems = Problems()
    text = read_text(document, problems)
    parts = parts_of(text, problems) if text is not None else ()
    cursors = [Cursor(part, "", problems) for part in parts]
    return _read(cursors, problems, ReadContext(namespace=namespace, name=name, limits=limits))


def read_document(
    document: str | bytes, *, namespace: str = "", source_name: str = "", limits: Limits = version_limits
) -> Parsed:
    """Read a document as spec-validator does, platform defaults excepted; see ``parse``.

    Args:
        document: The text.
        namespace: For jobs that name none.
        source_name: Path of the file; its stem names a job without a name, where the format allows that.
        limits: What this installation cannot run.
    """
    name = "" if source_name.startswith(_STDIN_NAMES) else PurePath(source_name).stem
    return parse(document, namespace=namespace, name=name, limits=limits)


def read_spec(job: Job, *, limits: Limits = version_limits) -> Parsed:
    """Read a job given as data through the native format's reader, so that the same rules hold; problems have native field paths."""
    from muster_formats.native import to_native  # noqa: PLC0415 (imported when needed, as the readers)

    problems = Problems()
    _check_representable(job, problems)
    cursor = Cursor(node_of(to_native(job, compact=False), problems), "", problems)
    parsed = _read([cursor], problems, ReadContext(limits=limits))
    kept = tuple(msgspec.structs.replace(read, format=job.format) for read in parsed.jobs)
    if job.warnings:
        kept = tuple(msgspec.structs.replace(read, warnings=job.warnings + read.warnings) for read in kept)
    return Parsed(jobs=kept, problems=parsed.problems)


def _read(parts: Sequence[Cursor], problems: Problems, context: ReadContext) -> Parsed:
    jobs: list[tuple[Job, Cursor]] = []
    complete = True
    for part in parts:
        reported = len(problems.items)
        found = detect(part)
        read = found.read(part, context) if found else ()
        complete = complete and bool(read)
        warnings = tuple(problems.items[reported:])
        jobs += [(msgspec.structs.replace(job, warnings=warnings), part) for job in read]
    _check_names(jobs)
    if complete:
        _check_built_by(jobs)
    accepted = () if problems.has_errors else tuple(job for job, _ in jobs)
    return Parsed(jobs=accepted, problems=problems.ordered())


def _check_names(jobs: Sequence[tuple[Job, Cursor]]) -> None:
    """Report jobs of different parts that have the same name."""
    first: dict[tuple[str, str], int] = {}
    for job, part in jobs:
        line = part.node.line
        known = first.setdefault((job.namespace, job.name), line)
        if job.name and known != line:
            metadata = part.items().get("metadata")
            location = metadata.key_location("name") if metadata else part.key_location("name")
            message = f"this document has two jobs named {job.name}; the first is on line {known}"
            part.problems.add(Code.DUPLICATE, location, message, found=job.name, fix="rename one of them")


def _check_built_by(jobs: Sequence[tuple[Job, Cursor]]) -> None:
    """Report jobs whose ``builtBy`` does not name a build of the same document."""
    kinds = {(job.namespace, job.name): job.kind for job, _ in jobs}
    builds = sorted(job.name for job, _ in jobs if job.kind is JobKind.BUILD)
    for job, part in jobs:
        kind = kinds.get((job.namespace, job.built_by))
        if not job.built_by or kind is JobKind.BUILD:
            continue
        name = shown(job.built_by)
        why = f"{name} is of kind {kind.value}" if kind else f"there is no job {name} in {job.namespace}"
        spec = part.items().get("spec")
        part.problems.add(
            Code.CONFLICT,
            spec.key_location("builtBy") if spec else part.location,
            f"builtBy must name a build job of the same document; {why}",
            found=name,
            allowed=", ".join(builds),
            fix=f"write builtBy: {builds[0]}" if len(builds) == 1 else "add the build job to this document",
        )


def _check_representable(job: Job, problems: Problems) -> None:
    """Report what the job model can hold and a native document cannot, since the reader would never see it."""
    from muster_formats.native import AmountFields  # noqa: PLC0415 (as above)

    names = [role.name for role in job.roles]
    for name in sorted({name for name in names if names.count(name) > 1}):
        location = SourceLocation(path=f"spec.roles.{name}")
        problems.add(Code.DUPLICATE, location, f"two roles are named {shown(name)}", fix="rename one of them")
    if job.defaults:
        fix = "remove it; Muster records which platform defaults it applied"
        problems.add(Code.UNSUPPORTED, SourceLocation(path="defaults"), "defaults cannot be set", fix=fix)
    native_names = {*AmountFields.fields(), *GPU_NAMES}
    for role in job.roles:
        for template in (role.template, *role.overrides.values()):
            for name in sorted(native_names & {*template.requests.extended, *template.limits.extended}):
                location = SourceLocation(path=f"spec.roles.{role.name}.resources.{name}")
                message, fix = f"{name} is not an extended resource", f"set the {name} amount itself"
                fix = "set the gpu amount" if name in GPU_NAMES else fix
                problems.add(Code.NOT_ALLOWED, location, message, found=name, fix=fix)
