"""Forgetting a job: first out of sight in one step, then off the disk, so that a crash in between leaves nothing half known."""

from __future__ import annotations

import os
import shutil

from muster_runtimes.process.addresses import PortBook
from muster_runtimes.process.builds import held_build, release_build
from muster_runtimes.process.folder import conclude
from muster_runtimes.process.layout import Layout
from muster_runtimes.process.records import LOCK, locked


class StillRunningError(RuntimeError):
    """A job cannot be forgotten while one of its replicas runs."""


def remove_job(job_id: str, *, layout: Layout, book: PortBook, at: int) -> None:
    """Remove the job's folder, what its build made where no other job holds that, and give back its ports.

    A job that is not there is removed already.
    Raises ``StillRunningError`` while one of its replicas runs, ``UnsafeNameError`` for a name that is none.
    """
    folder = layout.job(job_id)
    if not folder.exists():
        return
    for replica in layout.replicas(job_id):
        state = conclude(layout.replica(replica), at=at)
        if state is not None and not state.final:
            raise StillRunningError(f"{layout.name(replica)} still runs")
        with locked(layout.replica(replica) / LOCK) as idle:
            if state is None and not idle:
                raise StillRunningError(f"{layout.name(replica)} is about to run")
    build = held_build(layout, job_id)
    book.release(job_id)
    folder.rename(layout.trash / f"{job_id}.{at}.{os.getpid()}")
    if build is not None:
        release_build(layout, build, at=at)
    sweep(layout)


def sweep(layout: Layout) -> None:
    """Empty the trash."""
    for folder in layout.trash.iterdir():
        shutil.rmtree(folder, ignore_errors=True)
