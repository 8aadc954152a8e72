"""The invariants of a simulated run, checked against the events in the broker and the ledger of the replicas."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping

import msgspec
from grpc import aio
from memory_broker import Stored, Stream
from memory_grpc import as_channel
from memory_machine import Ledger
from virtual_system import Instance, VirtualSystem
from workload import PlannedJob

from muster_bus.messages import Incoming
from muster_core.events import JobEvicted, JobResized, ReplicasChanged
from muster_core.lifecycle import apply_event
from muster_core.models import JobRecord, Phase, ReplicaState
from muster_events.catalogue import JOBS_BUCKET, JOBS_STREAM, LEASES_BUCKET, STATUS_TRACKER
from muster_events.codec import UnreadableEvent, read_job_event
from muster_rpc.convert import phase_from_proto
from muster_rpc.internal.v1 import queries_pb2, queries_pb2_grpc
from muster_runtimes import ReplicaId

STALE_S = 2.0
"""How old a status may be: 1 s for the record, and 1 s for an instance that mirrors the records of another."""
PART_OF_GANG_S = 15.0
"""How long a gang may run in part while nothing is disturbed."""
_RECOVERY_S = 4.0
_TAKEOVER_S = 2.0
"""How long (s) it takes to notice that a lease has ended, and to read a partition."""
_ENDED = f"$KV.{JOBS_BUCKET}.ended."
"""Keys of the records of settled jobs; a live record is also removed when its job is settled."""
_CAPACITY_REASONS = frozenset({"Preempted", "Reclaimed"})


class Violation(msgspec.Struct, frozen=True):
    """An invariant that did not hold, ``at`` seconds after the start."""

    at: float
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.at:8.3f} {self.kind}: {self.text}"


class Truth:
    """The records that follow from the events in the broker, when each job was in which phase, and a hash of everything stored."""

    def __init__(self, system: VirtualSystem, report: Callable[[str, str], None]) -> None:
        self.records: dict[str, JobRecord] = {}
        self.phases: dict[str, list[tuple[float, Phase]]] = {}
        self.removed: dict[str, float] = {}
        self.disturbed: set[str] = set()
        """Jobs of which a fault killed a replica."""
        self._system = system
        self._report = report
        self._trace = hashlib.blake2b(digest_size=12)
        system.broker.on_stored = self._on_stored

    @property
    def trace(self) -> str:
        """A hash of every stored message and of its time."""
        return self._trace.hexdigest()

    def phases_since(self, job_id: str, since: float) -> set[Phase]:
        """Return the phases that a job has had since then."""
        known = self.phases.get(job_id, [])
        first = max((place for place, (at, _) in enumerate(known) if at <= since), default=0)
        return {phase for _, phase in known[first:]}

    def _on_stored(self, stream: Stream, stored: Stored) -> None:
        now = self._system.loop.elapsed
        self._trace.update(f"{now:.9f} {stream.name} {stored.sequence} {stored.subject}\n".encode())
        self._trace.update(stored.data)
        if stream.name == JOBS_STREAM:
            self._apply(stored, now)
        elif stored.subject.startswith(_ENDED) and stored.headers and "KV-Operation" in stored.headers:
            job_id = stored.subject.rpartition(".")[2]
            self.removed[job_id] = now

    def _apply(self, stored: Stored, now: float) -> None:
        incoming = Incoming(
            subject=stored.subject,
            data=stored.data,
            headers=stored.headers or {},
            stream=JOBS_STREAM,
            stream_sequence=stored.sequence,
            timestamp_ns=stored.time_ns,
        )
        try:
            event = read_job_event(incoming)
        except UnreadableEvent:
            return
        before = self.records.get(event.job_id)
        if before is not None and isinstance(event.event, JobResized):
            self._note_removed(before, event.event)
        record = apply_event(before, event).record
        if record is None:
            return
        self.records[event.job_id] = record
        known = self.phases.setdefault(event.job_id, [])
        if not known or known[-1][1] is not record.phase:
            known.append((now, record.phase))
        is_disturbed = event.job_id in self.disturbed
        if isinstance(event.event, ReplicasChanged) and not is_disturbed:
            lost = [change for change in event.event.changes if change.state is ReplicaState.LOST]
            if lost:
                self._report("false loss", f"{event.job_id}: {lost[0]} although no replica was disturbed")
        evicted = isinstance(event.event, JobEvicted) and event.event.reason.code not in _CAPACITY_REASONS
        if isinstance(event.event, JobEvicted) and evicted and not is_disturbed:
            self._report("needless eviction", f"{event.job_id}: {event.event.reason.message}")

    def _note_removed(self, record: JobRecord, event: JobResized) -> None:
        keys = {(ref.role, ref.index) for ref in event.removed}
        self._system.machine.ledger.removed.update(
            ReplicaId(
                job_id=record.job_id,
                attempt=replica.attempt,
                role=replica.role,
                index=replica.index,
                restart=replica.restart,
            )
            for replica in record.replicas
            if replica.attempt == event.attempt and replica.key in keys
        )


class PartialGangs:
    """Looks for gangs of which only a part runs for too long."""

    def __init__(self, ledger: Ledger, truth: Truth, report: Callable[[str, str], None]) -> None:
        self._ledger = ledger
        self._truth = truth
        self._report = report
        self._since: dict[tuple[str, int], float] = {}

    def check(self, now: float, jobs: dict[str, PlannedJob], disturbed: bool) -> None:
        """Look once; while something is disturbed, nothing counts."""
        if disturbed:
            self._since.clear()
            return
        running: dict[tuple[str, int], int] = {}
        for replica in self._ledger.running:
            key = (replica.job_id, replica.attempt)
            running[key] = running.get(key, 0) + 1
        for key, count in running.items():
            planned = jobs.get(key[0])
            succeeded = sum(
                1
                for end in self._ledger.ended.values()
                if (end.replica.job_id, end.replica.attempt) == key and end.exit_code == 0
            )
            if planned is None or count + succeeded >= planned.job.roles[0].min:
                self._since.pop(key, None)
            elif now - self._since.setdefault(key, now) > PART_OF_GANG_S:
                self._report(
                    "partial gang", f"{key[0]} attempt {key[1]} runs {count} of {planned.job.roles[0].min}"
                )
                self._since[key] = now
        for key in [key for key in self._since if key not in running]:
            del self._since[key]


class StatusProbe:
    """Compares what each ready instance of status-tracker answers with the truth."""

    def __init__(self, system: VirtualSystem, truth: Truth, report: Callable[[str, str], None]) -> None:
        self._system = system
        self._truth = truth
        self._report = report

    def instances(
        self, disturbed_until: Mapping[str, float], *, takeover_until: float = 0.0
    ) -> list[Instance]:
        """Return the instances that must answer correctly now.

        ``disturbed_until`` is when the faults of an instance end; ``*`` stands for all. Until ``takeover_until`` partitions may
        have no owner, so that no instance can know their records.
        """
        now = self._system.loop.elapsed
        if now < takeover_until:
            return []
        return [
            instance
            for instance in self._system.instances
            if instance.service == STATUS_TRACKER
            and instance.ready
            and instance.endpoint is not None
            and now >= disturbed_until.get(instance.name, 0.0) + _RECOVERY_S
            and now >= disturbed_until.get("*", 0.0) + _RECOVERY_S
        ]

    def lease_s(self, instance: Instance) -> float:
        """Return how long the lease of an instance of status-tracker counts; it is longer after slow renewals."""
        process = instance.process
        if instance.service != STATUS_TRACKER or process is None:
            return 0.0
        subject = f"$KV.{LEASES_BUCKET}.{STATUS_TRACKER}.{process.name.replace('.', '_')}"
        leases = self._system.broker.streams[f"KV_{LEASES_BUCKET}"]
        stored = leases.messages.get(leases.last_on(subject))
        return msgspec.json.decode(stored.data).get("ttl_s", 0) if stored is not None and stored.data else 0.0

    def takeover_of(self, instance: Instance) -> float:
        """Return until when partitions may have no owner because ``instance`` is struck now.

        If it can send and not receive, it renews its lease once more.
        """
        lease_s = self.lease_s(instance)
        return self._system.loop.elapsed + lease_s * 4 / 3 + _TAKEOVER_S if lease_s else 0.0

    async def check(self, instance: Instance, jobs: Collection[str], *, stale_s: float = STALE_S) -> bool:
        """Ask one instance for all jobs; returns whether it answered."""
        endpoint = instance.endpoint
        assert endpoint is not None
        asked_at = self._system.loop.elapsed
        stub = queries_pb2_grpc.RecordServiceStub(as_channel(self._system.channel_to(endpoint)))
        try:
            answer = await stub.ListRecords(
                queries_pb2.ListRecordsRequest(namespace="-", page_size=1000), timeout=5.0
            )
        except aio.AioRpcError:
            return False
        if instance.endpoint is not endpoint or not instance.ready:
            return True
        answered = {job.job_id: phase_from_proto(job.status.phase) for job in answer.jobs}
        since = asked_at - stale_s
        for job_id in jobs:
            self._compare(instance, job_id, answered.get(job_id), since)
        return True

    def _compare(self, instance: Instance, job_id: str, phase: Phase | None, since: float) -> None:
        removed_at = self._truth.removed.get(job_id)
        allowed = self._truth.phases_since(job_id, since)
        if phase is None:
            first = self._truth.phases.get(job_id)
            if first is not None and first[0][0] < since and removed_at is None:
                self._report("stale", f"{instance.name} does not know {job_id}, which is {allowed}")
        elif removed_at is not None and removed_at < since:
            self._report(
                "stale", f"{instance.name} says {job_id} is {phase}, and it was deleted at {removed_at:.3f}"
            )
        elif phase not in allowed:
            self._report("stale", f"{instance.name} says {job_id} is {phase}, which is {allowed}")
