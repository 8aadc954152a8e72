"""Subjects, keys and ids: every name on the bus is derived here, from validated tokens, and nowhere else."""

from __future__ import annotations

import base64
import hashlib
import re
import zlib

SHARDS = 16
"""Into how many shards the jobs are divided; part of the subjects, so it never changes within ``v1``."""

PARTITIONS = 4
"""How many partitions the shards are grouped into. Instances share the partitions, so more instances than this have nothing to do;
each partition is read through a durable consumer of its own, and durable consumers are what the broker pays for."""

PREFIX = "muster.v1"
JOB_EVENTS = f"{PREFIX}.job.>"
LEADERS = f"{PREFIX}.leader.>"
NODE_EVENTS = f"{PREFIX}.node.>"
CAPACITY_EVENTS = f"{PREFIX}.capacity.>"
DEAD_PREFIX = f"{PREFIX}.dead"

_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,253}\Z")
_JOB_ID = re.compile(r"j-[a-z2-7]{16}\Z")
_DOT = "~"
_JOB_SUBJECT_PARTS = 6


class BadToken(ValueError):
    """A text that must not become part of a subject: it would reach into others' subjects."""


def job_id_of(request_id: str) -> str:
    """The id of a submission and of its first job, derived from the request id, so that the same request is the same job."""
    return _job_id(request_id, 0)


def part_job_id(submission_id: str, part: int) -> str:
    """The id of the job that is part ``part``, from 0, of a document; the first one has the id of the submission."""
    return _job_id(submission_id, part) if part else submission_id


def is_job_id(text: str) -> bool:
    """Whether ``text`` has the form of a job id."""
    return _JOB_ID.match(text) is not None


def shard_of(job_id: str) -> int:
    """The shard of a job, 0 to ``SHARDS`` - 1."""
    return zlib.crc32(job_id.encode()) % SHARDS


def partition_of(job_id: str) -> int:
    """The partition of a job, 0 to ``PARTITIONS`` - 1."""
    return shard_of(job_id) % PARTITIONS


def shards_of(partition: int) -> tuple[int, ...]:
    """The shards of a partition."""
    return tuple(range(partition, SHARDS, PARTITIONS))


def job_subject(job_id: str, event: str) -> str:
    """Where an event of a job goes: ``muster.v1.job.<shard>.<job_id>.<event>``."""
    return f"{PREFIX}.job.{shard_of(job_id)}.{_token(job_id)}.{_token(event)}"


def job_events(event: str) -> str:
    """The filter for one kind of event of every job."""
    return f"{PREFIX}.job.*.*.{_token(event)}"


def job_events_of(job_id: str) -> str:
    """The filter for everything that happens to one job."""
    return f"{PREFIX}.job.{shard_of(job_id)}.{_token(job_id)}.*"


def shard_events(shard: int) -> str:
    """The filter for everything that happens to the jobs of a shard."""
    return f"{PREFIX}.job.{shard}.>"


def partition_events(partition: int) -> tuple[str, ...]:
    """The filters for everything that happens to the jobs of a partition."""
    return tuple(shard_events(shard) for shard in shards_of(partition))


def leader_subject(pool: str) -> str:
    """Where the epochs of a pool's scheduler stand."""
    return f"{PREFIX}.leader.{_token(pool)}"


def node_subject(pool: str, node: str) -> str:
    """Where the last word on a node stands. A dot of the node's name becomes ``~``, which no node's name has."""
    return f"{PREFIX}.node.{_token(pool)}.{_DOT.join(_token(label) for label in node.split('.'))}"


def pool_nodes(pool: str) -> str:
    """The filter for every node of a pool."""
    return f"{PREFIX}.node.{_token(pool)}.*"


def capacity_subject(pool: str) -> str:
    """Where the last totals of a pool stand."""
    return f"{PREFIX}.capacity.{_token(pool)}"


def record_key(job_id: str) -> str:
    """The key of a job's record: ``<shard>.<job_id>``, so that a shard can be read by itself."""
    return f"{shard_of(job_id)}.{_token(job_id)}"


def partition_records(partition: int) -> tuple[str, ...]:
    """The filters for the records of a partition."""
    return tuple(f"{shard}.*" for shard in shards_of(partition))


def job_id_in(subject: str) -> str:
    """The job id in a job event's subject; raises ``BadToken`` when it is none."""
    return job_in(subject)[0]


def job_in(subject: str) -> tuple[str, str]:
    """The job id and the event's name in a job event's subject; raises ``BadToken`` when it is none."""
    parts = subject.split(".")
    if len(parts) != _JOB_SUBJECT_PARTS or not subject.startswith(f"{PREFIX}.job."):
        raise BadToken(f"{subject!r} is not the subject of a job's event")
    return parts[4], parts[5]


def _job_id(text: str, part: int) -> str:
    digest = hashlib.sha256(f"{text}\n{part}".encode()).digest()
    return "j-" + base64.b32encode(digest[:10]).decode().lower()


def _token(text: str) -> str:
    if not _TOKEN.match(text):
        raise BadToken(f"{text!r} cannot be part of a subject: letters, digits, '-', '_' only, at most 253")
    return text
