"""Where there are no images, a build makes a folder: it runs there, and the jobs that were built run there after it.

``builds/<build job>`` begins as links to the entries of the work folder, so that a step finds the files that it names. Whoever will run in
it holds it by a link of his own, ``jobs/<job>/build``, from the moment on that the job is known: the folder goes with the last of them, or
with its build where there is none.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from muster_runtimes.process.layout import Layout, safe_name

_LINK = "build"


def hold_build(layout: Layout, job_id: str, build: str) -> None:
    """Have the job hold what the build makes, until the job is forgotten; to be repeated at will."""
    folder = layout.job(job_id)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / _LINK).symlink_to(Path("../../builds", safe_name(build)))


def prepare_build(layout: Layout, build: str, source: Path) -> Path:
    """The folder of a build that is about to run, with links to the entries of ``source`` where it is new.

    One that was there stays as it is: a build that is started again goes on with what the earlier try has left. Raises ``OSError`` where
    ``source`` cannot be read.
    """
    folder = layout.build(build)
    if folder.exists():
        return folder
    draft = layout.builds / f".{safe_name(build)}.{os.getpid()}"
    shutil.rmtree(draft, ignore_errors=True)
    # Whose job has no folder is taken for forgotten.
    layout.job(build).mkdir(mode=0o700, exist_ok=True)
    draft.mkdir(mode=0o700)
    for entry in source.iterdir():
        (draft / entry.name).symlink_to(entry)
    draft.rename(folder)
    return folder


def held_build(layout: Layout, job_id: str) -> str | None:
    """The build whose folder the job holds; its own where it is a build itself."""
    with suppress(OSError):
        return (layout.job(job_id) / _LINK).readlink().name
    return job_id if layout.build(job_id).exists() else None


def release_build(layout: Layout, build: str, *, at: int) -> None:
    """Put the build's folder into the trash unless a job holds it; the folder of the job that lets go must be gone."""
    if build in _held(layout):
        return
    with suppress(FileNotFoundError):
        layout.build(build).rename(layout.trash / f"{build}.build.{at}.{os.getpid()}")


def sweep_builds(layout: Layout, *, at: int) -> None:
    """Put into the trash what nobody holds and whose build is forgotten: a launcher may have died before it could."""
    known = {*_held(layout), *layout.job_ids()}
    for folder in layout.builds.iterdir():
        if not folder.name.startswith(".") and folder.name not in known:
            release_build(layout, folder.name, at=at)


def _held(layout: Layout) -> Iterator[str]:
    for job_id in layout.job_ids():
        with suppress(OSError):
            yield (layout.job(job_id) / _LINK).readlink().name
