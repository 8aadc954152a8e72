"""What the state directory has of a job besides the states of its runs, and the marks of orphans.

``jobs/<job>/job.json`` recreates the record of the job, and ``jobs/<job>/orphan.json`` marks it as an orphan. Both survive pod-launcher
and are read by every instance with the same root.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from muster_core.lifecycle import HeldJob, OrphanMark, RetainedJob, RetainedMembership
from muster_core.models import ENDED_STATES, GPU_MILLI, Node, ReplicaRecord, Resources
from muster_runtimes.process.state_files import ReplicaSpec, StateDirectory, read_spec, replace
from muster_runtimes.protocols import Observation, ReplicaId
from muster_runtimes.records import replica_record

T = TypeVar("T")


class HeldJobFiles:
    """Reads and writes the files of held jobs; ``observations_of`` returns the observed runs of a job."""

    def __init__(
        self, *, directory: StateDirectory, observations_of: Callable[[str], Sequence[Observation]]
    ) -> None:
        self._directory = directory
        self._observations_of = observations_of
        self._marks: dict[str, OrphanMark] = {}
        self._specs: dict[ReplicaId, ReplicaSpec | None] = {}

    @property
    def marks(self) -> Mapping[str, OrphanMark]:
        """The marks of orphans, as of the last scan."""
        return self._marks

    def retain(self, job_id: str, retained: RetainedJob) -> None:
        """Write what recreates the record of a job."""
        self._directory.open_job(job_id)
        replace(self._directory.retained(job_id), msgspec.json.encode(retained))

    def read(self, job_id: str) -> HeldJob:
        """Return everything that the directory has of a job."""
        directory = self._directory
        return HeldJob(
            job_id=job_id,
            runs=tuple(self._run(seen) for seen in self._observations_of(job_id)),
            retained=_read(directory.retained(job_id), RetainedJob),
            membership=_read(directory.members(job_id), RetainedMembership),
            mark=_read(directory.orphan(job_id), OrphanMark),
        )

    def mark(self, job_id: str, mark: OrphanMark | None) -> None:
        """Set or remove the mark of a job."""
        path = self._directory.orphan(job_id)
        if mark is None:
            path.unlink(missing_ok=True)
            self._marks.pop(job_id, None)
            return
        # A job that was removed meanwhile needs no mark.
        with suppress(FileNotFoundError):
            replace(path, msgspec.json.encode(mark))
            self._marks[job_id] = mark

    def find_marks(self) -> dict[str, OrphanMark]:
        """Read all marks."""
        found = ((job_id, self._directory.orphan(job_id)) for job_id in self._directory.job_ids())
        return {job_id: mark for job_id, path in found if (mark := _read(path, OrphanMark)) is not None}

    def replace_marks(self, marks: dict[str, OrphanMark]) -> list[str]:
        """Take over the marks that were read; returns the jobs whose marks have changed."""
        before, self._marks = self._marks, marks
        self._specs = {replica: spec for replica, spec in self._specs.items() if replica.job_id in marks}
        return [job_id for job_id in before.keys() | marks.keys() if before.get(job_id) != marks.get(job_id)]

    def with_foreign_usage(self, nodes: Iterable[Node]) -> tuple[Node, ...]:
        """Return the nodes with what the replicas of orphans use of each."""
        specs = [
            self._spec(seen.replica)
            for job_id in self._marks
            for seen in self._observations_of(job_id)
            if seen.state not in ENDED_STATES
        ]
        return tuple(
            _used_by(node, [spec for spec in specs if spec and spec.node == node.name]) for node in nodes
        )

    def _spec(self, replica: ReplicaId) -> ReplicaSpec | None:
        if replica not in self._specs:
            self._specs[replica] = read_spec(self._directory.replica(replica))
        return self._specs[replica]

    def _run(self, seen: Observation) -> ReplicaRecord:
        spec = read_spec(self._directory.replica(seen.replica))
        if spec is None:
            return replica_record(seen)
        return replica_record(seen, node=spec.node, generation=spec.generation, gpus=spec.gpus)


def _used_by(node: Node, specs: Sequence[ReplicaSpec]) -> Node:
    used, gpus = Resources(), dict[int, int]()
    for spec in specs:
        used += spec.requests
        for gpu in spec.gpus:
            gpus[gpu] = gpus.get(gpu, 0) + min(spec.requests.gpu, GPU_MILLI)
    if not specs:
        return node
    return msgspec.structs.replace(node, foreign=used, foreign_gpus=gpus, pods=max(node.pods - len(specs), 0))


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
