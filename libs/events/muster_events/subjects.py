"""Subjects, keys and ids: every name on the bus is derived here from validated tokens."""

from __future__ import annotations

import base64
import hashlib
import re
import zlib

SHARDS = 16
"""The number of shards; part of the subjects, so it is fixed for ``v1``."""

PARTITIONS = 4
"""How many partitions the shards are grouped into. Instances share the partitions, so more instances than this have nothing to do;
each partition is read through a durable consumer of its own, and durable consumers are what the broker pays for."""

PREFIX = "muster.v1"
JOB_EVENTS = f"{PREFIX}.job.>"
LEADERS = f"{PREFIX}.leader.>"
NODE_EVENTS = f"{PREFIX}.node.>"
CAPACITY_EVENTS = f"{PREFIX}.capacity.>"
SHARD_EVENTS = f"{PREFIX}.job.{{shard}}.>"
POOL_NODES = f"{PREFIX}.node.{{pool}}.*"
POOL_CAPACITY = f"{PREFIX}.capacity.{{pool}}"
DEAD_PREFIX = f"{PREFIX}.dead"
UNSTORED = f"{PREFIX}.unstored"
"""Services tell each other here that a message was not stored; in no stream."""

_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,253}\Z")
_JOB_ID = re.compile(r"j-[a-z2-7]{16}\Z")
_DOT = "~"
_JOB_SUBJECT_PARTS = 6
_RECORD_KEY_PARTS = 3


class BadToken(ValueError):
    """A text that must not become part of a subject, where it could match others' subjects."""


def job_id_of(request_id: str) -> str:
    """The id of a submission and of its first job, derived from the request id, so that the same request is the same job."""
    return _job_id(request_id, 0)


def part_job_id(submission_id: str, part: int) -> str:
    """The id of the job that is part ``part``, from 0, of a document; the first one has the id of the submission."""
    return _job_id(submission_id, part) if part else submission_id


def is_job_id(text: str) -> bool:
    """Return whether ``text`` has the form of a job id."""
    return _JOB_ID.match(text) is not None


def shard_of(job_id: str) -> int:
    """Return the shard of a job, 0 to ``SHARDS`` - 1."""
    return zlib.crc32(job_id.encode()) % SHARDS


def partition_of(job_id: str) -> int:
    """Return the partition of a job, 0 to ``PARTITIONS`` - 1."""
    return shard_of(job_id) % PARTITIONS


def shards_of(partition: int) -> tuple[int, ...]:
    """Return the shards of a partition."""
    return tuple(range(partition, SHARDS, PARTITIONS))


def job_subject(job_id: str, event: str) -> str:
    """Return the subject of a job event: ``muster.v1.job.<shard>.<job_id>.<event>``."""
    return f"{PREFIX}.job.{shard_of(job_id)}.{_token(job_id)}.{_token(event)}"


def job_events(event: str) -> str:
    """Return the filter for one kind of event of every job."""
    return f"{PREFIX}.job.*.*.{_token(event)}"


def job_events_of(job_id: str) -> str:
    """Return the filter for all events of one job."""
    return f"{PREFIX}.job.{shard_of(job_id)}.{_token(job_id)}.*"


def in_partition(template: str, partition: int) -> tuple[str, ...]:
    """Return the filters of a partition: ``template`` with ``{shard}`` replaced by each of its shards."""
    return tuple(template.replace("{shard}", str(shard)) for shard in shards_of(partition))


def in_pool(template: str, pool: str) -> str:
    """Return the filter of a pool: ``template`` with ``{pool}`` replaced."""
    return template.replace("{pool}", _token(pool))


def leader_subject(pool: str) -> str:
    """Return the subject of a pool's epochs."""
    return f"{PREFIX}.leader.{_token(pool)}"


def pool_in(subject: str) -> str:
    """Return the pool in the subject of a node or of the totals of a pool."""
    return subject.removeprefix(f"{PREFIX}.").split(".")[1]


def probe_subject(stream: str, service: str) -> str:
    """Return the subject of a service's probes of a stream."""
    return f"{PREFIX}.probe.{_token(stream)}.{_token(service)}"


def probes_in(stream: str) -> str:
    """Return the filter for all probes of a stream."""
    return f"{PREFIX}.probe.{_token(stream)}.*"


def node_subject(pool: str, node: str) -> str:
    """Return the subject of a node. A dot of the node's name becomes ``~``, which node names cannot contain."""
    return f"{PREFIX}.node.{_token(pool)}.{_DOT.join(_token(label) for label in node.split('.'))}"


def capacity_subject(pool: str) -> str:
    """Return the subject of a pool's totals."""
    return in_pool(POOL_CAPACITY, pool)


LIVE_RECORDS = "live.>"
"""The filter for the records of all jobs of which something may still happen; every reader loads these."""

ENDED_RECORDS = "ended.>"
"""The filter for the records of ended jobs, which are read on demand."""


def live_record_key(job_id: str) -> str:
    """Return the key of the record of a job that is not settled: ``live.<shard>.<job_id>``, so that a shard can be read alone."""
    return f"live.{shard_of(job_id)}.{_token(job_id)}"


def ended_record_key(job_id: str) -> str:
    """Return the key of the record of a settled job: ``ended.<shard>.<job_id>``; its removal means that the job was deleted."""
    return f"ended.{shard_of(job_id)}.{_token(job_id)}"


def record_keys(job_id: str) -> str:
    """Return the filter for both keys of a job's record."""
    return f"*.{shard_of(job_id)}.{_token(job_id)}"


def job_id_in_key(key: str) -> str:
    """Return the job id in the key of a record; raises ``BadToken`` for others."""
    parts = key.split(".")
    if len(parts) != _RECORD_KEY_PARTS:
        raise BadToken(f"{key!r} is not the key of a record")
    return _checked_job_id(parts[2], shard=parts[1])


def partition_records(partition: int) -> tuple[str, ...]:
    """Return the filters for the live records of a partition."""
    return in_partition("live.{shard}.*", partition)


def ended_partition_records(partition: int) -> tuple[str, ...]:
    """Return the filters for the records of ended jobs of a partition."""
    return in_partition("ended.{shard}.*", partition)


def job_id_in(subject: str) -> str:
    """Return the job id in a job event's subject; raises ``BadToken`` for others."""
    return job_in(subject)[0]


def job_in(subject: str) -> tuple[str, str]:
    """Return job id and event name of a job event's subject; raises ``BadToken`` for others."""
    parts = subject.split(".")
    if len(parts) != _JOB_SUBJECT_PARTS or not subject.startswith(f"{PREFIX}.job."):
        raise BadToken(f"{subject!r} is not the subject of a job event")
    return _checked_job_id(parts[4], shard=parts[3]), parts[5]


def _checked_job_id(job_id: str, *, shard: str) -> str:
    """Return the job id if it is one, of this shard: a flipped bit seldom leaves both right."""
    if not is_job_id(job_id) or str(shard_of(job_id)) != shard:
        raise BadToken(f"{job_id!r} is not the id of a job of shard {shard}")
    return job_id


def _job_id(text: str, part: int) -> str:
    digest = hashlib.sha256(f"{text}\n{part}".encode()).digest()
    return "j-" + base64.b32encode(digest[:10]).decode().lower()


def _token(text: str) -> str:
    if not _TOKEN.match(text):
        raise BadToken(f"{text!r} cannot be part of a subject: letters, digits, '-', '_' only, at most 253")
    return text
