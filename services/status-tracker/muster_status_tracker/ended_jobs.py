"""The index of ended jobs: what lists select and sort by, in a few hundred bytes a job. Records are read from the store on demand."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection

import msgspec

from muster_core.lifecycle import Retention
from muster_core.models import Phase
from muster_events.history import EndedJobSummary
from muster_events.subjects import partition_of

_US = 1_000_000
_DELETED_AT_ONCE = 500

_SCHEMA = """
CREATE TABLE ended (
    job_id TEXT NOT NULL UNIQUE, revision INTEGER NOT NULL, partition INTEGER NOT NULL, applied_sequence INTEGER NOT NULL,
    submitted_at INTEGER NOT NULL, finished_at INTEGER NOT NULL, expires_at INTEGER, namespace TEXT NOT NULL,
    name TEXT NOT NULL, phase TEXT NOT NULL, queue TEXT, built_by TEXT NOT NULL
);
CREATE INDEX by_submission ON ended (submitted_at, job_id);
CREATE INDEX by_name ON ended (name);
CREATE INDEX by_expiry ON ended (partition, expires_at);
CREATE INDEX by_end ON ended (finished_at);
"""
_INSERT = "INSERT INTO ended VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs a list wants: None selects all. ``queues`` are pairs of namespace and the queue that a job names."""

    namespace: str | None = None
    phases: Collection[Phase] | None = None
    built_by: str | None = None
    queues: Collection[tuple[str, str]] | None = None


class EndedJobs:
    """The ended jobs of all partitions, by id; ``retention`` decides when one without its own time to live expires.

    Writes come from this instance and from a watch of the store, in either order: the newer revision of a job counts.
    """

    def __init__(self, retention: Retention | None = None) -> None:
        self._ttl_us = (retention.ttl_s if retention else 0) * _US
        self._rows = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._rows.executescript(_SCHEMA)
        self._phases: Counter[str] = Counter()
        self._removed: dict[str, int] = {}

    def __len__(self) -> int:
        return self._phases.total()

    def __contains__(self, job_id: object) -> bool:
        return self._rows.execute("SELECT 1 FROM ended WHERE job_id = ?", (job_id,)).fetchone() is not None

    def add(self, summary: EndedJobSummary, revision: int) -> bool:
        """Store the summary of a record's ``revision``; returns False if that or a newer one is known."""
        job_id = summary.job_id
        known = self._known(job_id)
        if revision <= max(known[0] if known else 0, self._removed.get(job_id, 0)):
            return False
        self._removed.pop(job_id, None)
        self._delete(job_id, known)
        expires_at = summary.expires_at
        if expires_at is None and self._ttl_us:
            expires_at = summary.finished_at + self._ttl_us
        self._rows.execute(
            _INSERT,
            (
                job_id,
                revision,
                partition_of(job_id),
                summary.applied_sequence,
                summary.submitted_at,
                summary.finished_at,
                expires_at,
                summary.namespace,
                summary.name,
                summary.phase.value,
                summary.queue,
                summary.built_by,
            ),
        )
        self._phases[summary.phase.value] += 1
        return True

    def remove(self, job_id: str, revision: int) -> str | None:
        """Remove the job because of the write of ``revision``; returns its namespace, None if it is not known.

        Until the watch has reported the removal, older writes that it reports change nothing.
        """
        known = self._known(job_id)
        if revision > self._removed.get(job_id, 0):
            self._removed[job_id] = revision
        if known is None or known[0] >= revision:
            return None
        self._delete(job_id, known)
        return known[2]

    def confirm_removal(self, job_id: str, revision: int) -> str | None:
        """Remove the job as the watch reports it; returns its namespace, None if it is not known."""
        namespace = self.remove(job_id, revision)
        if self._removed.get(job_id, 0) <= revision:
            self._removed.pop(job_id, None)
        return namespace

    def take(self, job_id: str) -> None:
        """Remove the job until its next ``add``, because it has changed."""
        self._delete(job_id, self._known(job_id))

    def applied_sequence(self, job_id: str) -> int:
        """Return the sequence that the job's record was applied to, 0 if the job is not known."""
        row = self._rows.execute("SELECT applied_sequence FROM ended WHERE job_id = ?", (job_id,)).fetchone()
        return int(row[0]) if row else 0

    def named(self, namespace: str, name: str) -> tuple[int, str] | None:
        """Return submission time and id of the newest job of that name, or None."""
        found = self._rows.execute(
            "SELECT submitted_at, job_id FROM ended WHERE name = ? AND namespace = ?"
            " ORDER BY submitted_at DESC, job_id DESC LIMIT 1",
            (name, namespace),
        ).fetchone()
        return (int(found[0]), str(found[1])) if found else None

    def newest_first(
        self, selection: Selection, *, before: tuple[int, str] | None, most: int
    ) -> list[tuple[int, str]]:
        """Return submission time and id of up to ``most`` selected jobs before that position, newest first."""
        condition, values = _condition(selection)
        if before is not None:
            condition += " AND (submitted_at, job_id) < (?, ?)"
            values += before
        found = self._rows.execute(
            f"SELECT submitted_at, job_id FROM ended WHERE {condition}"  # noqa: S608 (the condition has placeholders only)
            " ORDER BY submitted_at DESC, job_id DESC LIMIT ?",
            (*values, most),
        )
        return [(int(row[0]), str(row[1])) for row in found]

    def count(self, selection: Selection) -> int:
        """Return the number of selected jobs."""
        if selection == Selection():
            return len(self)
        condition, values = _condition(selection)
        found = self._rows.execute(f"SELECT count(*) FROM ended WHERE {condition}", values)  # noqa: S608 (as above)
        return int(found.fetchone()[0])

    def in_phase(self, phase: Phase) -> int:
        """Return the number of jobs that ended in a phase."""
        return self._phases[phase.value]

    def queues(self) -> list[tuple[str, str]]:
        """Return the pairs of namespace and named queue that occur."""
        found = self._rows.execute("SELECT DISTINCT namespace, queue FROM ended WHERE queue IS NOT NULL")
        return [(str(row[0]), str(row[1])) for row in found]

    def changed_after(self, sequence: int) -> list[str]:
        """Return the jobs whose records were applied to a later sequence, in that order."""
        found = self._rows.execute(
            "SELECT job_id FROM ended WHERE applied_sequence > ? ORDER BY applied_sequence", (sequence,)
        )
        return [str(row[0]) for row in found]

    def expired(self, partition: int, now: int) -> list[str]:
        """Return some jobs of a partition whose time to live is over at ``now`` (µs), oldest first."""
        found = self._rows.execute(
            "SELECT job_id FROM ended WHERE partition = ? AND expires_at <= ? ORDER BY expires_at LIMIT ?",
            (partition, now, _DELETED_AT_ONCE),
        )
        return [str(row[0]) for row in found]

    def beyond(self, partition: int, most: int) -> list[str]:
        """Return those of a partition among the oldest ends beyond the newest ``most`` of all partitions."""
        if len(self) <= most:
            return []
        oldest = self._rows.execute(
            "SELECT job_id, partition FROM ended ORDER BY finished_at, job_id LIMIT ?", (len(self) - most,)
        )
        return [str(row[0]) for row in oldest if row[1] == partition][:_DELETED_AT_ONCE]

    def _known(self, job_id: str) -> tuple[int, str, str] | None:
        row = self._rows.execute(
            "SELECT revision, phase, namespace FROM ended WHERE job_id = ?", (job_id,)
        ).fetchone()
        return (int(row[0]), str(row[1]), str(row[2])) if row else None

    def _delete(self, job_id: str, known: tuple[int, str, str] | None) -> None:
        if known is not None:
            self._rows.execute("DELETE FROM ended WHERE job_id = ?", (job_id,))
            self._phases[known[1]] -= 1


def _condition(selection: Selection) -> tuple[str, list[object]]:
    conditions, values = ["1"], list[object]()
    for column, value in (("namespace", selection.namespace), ("built_by", selection.built_by)):
        if value is not None:
            conditions.append(f"{column} = ?")
            values.append(value)
    if selection.phases is not None:
        conditions.append(f"phase IN ({_placeholders(selection.phases)})")
        values += [phase.value for phase in selection.phases]
    if selection.queues is not None:
        either = " OR ".join("(namespace = ? AND queue = ?)" for _ in selection.queues)
        conditions.append(f"({either or '0'})")
        values += [text for pair in selection.queues for text in pair]
    return " AND ".join(conditions), values


def _placeholders(values: Collection[object]) -> str:
    return ", ".join("?" for _ in values)
