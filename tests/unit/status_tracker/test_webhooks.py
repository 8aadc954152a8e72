"""Webhooks without a network: filters, the meaning of responses, and pending notifications."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from muster_core import events
from muster_core.lifecycle import apply_event
from muster_core.models import Job, JobRecord, Phase, Reason, Role, Template
from muster_status_tracker.webhooks.cloud_events import PhaseChange, event_of
from muster_status_tracker.webhooks.delivery import (
    SIGNATURE,
    TIMESTAMP,
    DeliveryResult,
    pause_after,
    result_of,
    signature_headers,
)
from muster_status_tracker.webhooks.notifier import matches
from muster_status_tracker.webhooks.phase_changes import PhaseChangeReader
from muster_status_tracker.webhooks.position import PendingNotifications, Position
from muster_status_tracker.webhooks.receivers import BadReceivers, Receiver, read_receivers

JOB_ID = "j-aaaaaaaaaaaaaaaa"
US = 1_000_000
ROLE = Role(name="worker", replicas=1, min=1, max=1, template=Template(command=("true",)))
JOB = Job(name="demo", roles=(ROLE,), queue="team", namespace="ml")


def receiver(**given: object) -> Receiver:
    return msgspec.convert({"name": "ci", "url": "https://ci/", "secretFile": "x"} | given, Receiver)


def history(*later: events.JobEvent) -> list[events.StoredEvent]:
    submitted = events.JobSubmitted(job_id=JOB_ID, request_id="r")
    return [
        events.StoredEvent(job_id=JOB_ID, event=event, sequence=10 * number, at=number * US)
        for number, event in enumerate((submitted, events.JobValidated(job=JOB), *later), start=1)
    ]


def waits(code: str) -> events.JobWaiting:
    return events.JobWaiting(reason=Reason(code=code))


PLACED = events.JobPlaced(
    attempt=1, generation=1, pool="local", replicas=(events.Assignment(role="worker", index=0, node="n1"),)
)
EVICTED = events.JobEvicted(attempt=1, reason=Reason(code="Preempted"))
CANCELLED = events.JobFinished(outcome=events.Outcome.CANCELLED, reason=Reason(code="Cancelled"))


class MemoryRecords:
    """Records in memory; counts lookups."""

    def __init__(self, stored_events: list[events.StoredEvent]) -> None:
        self.lookups = 0
        self._events = stored_events

    async def record_before(self, job_id: str, sequence: int) -> JobRecord | None:
        self.lookups += 1
        record: JobRecord | None = None
        for stored in self._events:
            if stored.job_id == job_id and stored.sequence < sequence:
                record = apply_event(record, stored).record
        return record


async def changes_from(
    stored_events: list[events.StoredEvent], start: int
) -> tuple[list[PhaseChange], MemoryRecords]:
    records = MemoryRecords(stored_events)
    changes = PhaseChangeReader(records)
    found = [await changes.read(stored) for stored in stored_events[start:]]
    return [change for change in found if change is not None], records


async def test_a_reader_that_starts_anywhere_derives_the_same_changes() -> None:
    late = events.CommandRequested(command=events.Command.DELETE, request_id="late")
    stored_events = history(waits("Full"), PLACED, EVICTED, waits("Full"), CANCELLED, late)
    whole, _ = await changes_from(stored_events, 0)
    assert [change.after.phase for change in whole] == [
        Phase.SUBMITTED,
        Phase.QUEUED,
        Phase.PLACED,
        Phase.EVICTED,
        Phase.QUEUED,
        Phase.CANCELLED,
    ]
    for start in range(len(stored_events)):
        part, records = await changes_from(stored_events, start)
        expected = [change for change in whole if change.sequence >= stored_events[start].sequence]
        assert [event_of(c, source="m") for c in part] == [event_of(c, source="m") for c in expected]
        assert records.lookups == (1 if start else 0)


async def test_an_unknown_job_causes_no_change() -> None:
    unknown = events.StoredEvent(job_id="j-bbbbbbbbbbbbbbbb", event=PLACED, sequence=5, at=US)
    changes = PhaseChangeReader(MemoryRecords([]))
    assert await changes.read(unknown) is None
    assert await changes.read(unknown) is None


async def test_a_notification_has_the_event_the_time_and_the_job() -> None:
    (_, queued), _ = await changes_from(history(), 0)
    event = json.loads(event_of(queued, source="https://muster.example.org"))
    assert event | {"data": None} == {
        "specversion": "1.0",
        "id": f"{JOB_ID}/20",
        "source": "https://muster.example.org",
        "type": "muster.v1.job.queued",
        "subject": JOB_ID,
        "time": "1970-01-01T00:00:02.000000Z",
        "datacontenttype": "application/json",
        "sequence": "00000000000000000020",
        "data": None,
    }
    assert event["data"]["previousPhase"] == "Submitted"
    assert event["data"]["replicas"] == {"running": 0, "total": 0}
    assert event["data"]["submittedAt"] == "1970-01-01T00:00:01.000000Z"
    assert "finishedAt" not in event["data"]


@pytest.mark.parametrize(
    ("given", "matching"),
    [
        ({}, True),
        ({"phases": ["Queued"], "queues": ["team"], "namespaces": ["ml"]}, True),
        ({"phases": ["Failed"]}, False),
        ({"queues": ["other"]}, False),
        ({"namespaces": ["default"]}, False),
    ],
)
async def test_a_receiver_filters_phases_namespaces_and_queues(
    given: dict[str, object], matching: bool
) -> None:
    (_, queued), _ = await changes_from(history(), 0)
    assert matches(receiver(**given), queued.after) is matching


@pytest.mark.parametrize(
    ("status", "result"),
    [
        (200, DeliveryResult.DELIVERED),
        (204, DeliveryResult.DELIVERED),
        (301, DeliveryResult.RETRY),
        (307, DeliveryResult.RETRY),
        (400, DeliveryResult.REJECTED),
        (401, DeliveryResult.RETRY),
        (404, DeliveryResult.RETRY),
        (410, DeliveryResult.GONE),
        (413, DeliveryResult.REJECTED),
        (415, DeliveryResult.REJECTED),
        (422, DeliveryResult.REJECTED),
        (429, DeliveryResult.RETRY),
        (500, DeliveryResult.RETRY),
        (503, DeliveryResult.RETRY),
    ],
)
def test_the_status_decides_the_result(status: int, result: DeliveryResult) -> None:
    assert result_of(status) is result


def test_pauses_double_up_to_the_longest_and_respect_retry_after() -> None:
    slow = receiver(firstPauseSeconds=1, longestPauseSeconds=60)
    assert [pause_after(attempts, slow) for attempts in range(1, 9)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert pause_after(1, slow, retry_after_s=30) == 30
    assert pause_after(1, slow, retry_after_s=86_400) == 60
    assert pause_after(1000, slow) == 60


def test_a_signature_covers_time_and_body_with_each_secret() -> None:
    headers = signature_headers(b"body", secrets=[b"new", b"old"], at_s=1_700_000_000)
    assert headers[TIMESTAMP] == "1700000000"
    # printf '1700000000.body' | openssl dgst -sha256 -hmac new
    new, old = headers[SIGNATURE].split(",")
    assert new == "v1=de1665c0f1b73c0e41d8ddbf36f95bbddfa2ebb359160d4b02de302279e3fff7"
    assert old == signature_headers(b"body", secrets=[b"old"], at_s=1_700_000_000)[SIGNATURE]
    assert new not in signature_headers(b"body", secrets=[b"new"], at_s=1_700_000_001)[SIGNATURE]


def test_the_position_precedes_pending_notifications_and_keeps_later_finished_ones() -> None:
    pending = PendingNotifications(Position(through=10))
    for sequence in (11, 12, 15):
        assert pending.begin(sequence)
    pending.read_through = 20
    pending.finish(12)
    pending.finish(15)
    assert pending.position() == Position(through=10, beyond=(12, 15))
    pending.finish(11)
    assert pending.position() == Position(through=20)


def test_finished_notifications_are_not_repeated() -> None:
    pending = PendingNotifications(Position(through=10, beyond=(12,)))
    assert pending.begin(11)
    assert not pending.begin(12)
    pending.read_through = 12
    assert pending.position() == Position(through=10, beyond=(12,))
    pending.finish(11)
    assert pending.position() == Position(through=12)


def receivers_file(
    folder: Path, *receivers: dict[str, object], secret: str = "a-secret-of-these-tests"
) -> Path:
    """Write a file with receivers, which have valid values unless given."""
    (folder / "secret").write_text(secret)
    valid = {"name": "ci", "url": "https://ci/", "secretFile": str(folder / "secret")}
    file = folder / "webhooks.json"
    file.write_text(json.dumps({"receivers": [valid | given for given in receivers]}))
    return file


def test_a_receivers_file_is_read_with_its_secrets(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a-new-secret-of-ours\n\nan-old-secret-of-ours\n")
    file = tmp_path / "webhooks.yaml"
    file.write_text(
        f"source: https://muster.example.org\nreceivers:\n- name: ci\n  url: https://ci:8443/a?b=c\n"
        f"  secretFile: {secret}\n  phases: [Succeeded, Failed]\n"
    )
    found = read_receivers(file)
    (ci,) = found.receivers
    assert found.source == "https://muster.example.org"
    assert ci.phases == {Phase.SUCCEEDED, Phase.FAILED}
    assert ci.url == "https://ci:8443/a?b=c"
    assert ci.secrets() == (b"a-new-secret-of-ours", b"an-old-secret-of-ours")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"url": "ftp://ci/"}, "must start with http:// or https://"),
        ({"url": "https:///hook"}, "have a host"),
        ({"url": "https://ci:99999/"}, "url"),
        ({"url": "https://ann:pw@ci/"}, "must not contain a password"),
        ({"url": "https://ci/a b"}, "printable ASCII"),
        ({"url": "https://ci/\r\nX: y"}, "printable ASCII"),
        ({"name": "Ci.1"}, "name"),
        ({"attempts": 0}, "attempts"),
        ({"timeoutSeconds": 60}, "timeoutSeconds"),
        ({"phases": ["Done"]}, "phases"),
        ({"phase": ["Failed"]}, "unknown field `phase`"),
        ({"secretFile": "/nowhere/secret"}, "/nowhere/secret"),
        ({"caFile": "/nowhere/ca"}, "/nowhere/ca"),
    ],
)
def test_an_invalid_receiver_is_rejected_with_the_reason(
    given: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(BadReceivers, match=message):
        read_receivers(receivers_file(tmp_path, given))


@pytest.mark.parametrize(("text", "message"), [("\n", "has no secret"), ("short\n", "shorter than 16")])
def test_a_missing_or_short_secret_is_rejected(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadReceivers, match=message):
        read_receivers(receivers_file(tmp_path, {}, secret=text))


def test_two_receivers_of_one_name_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(BadReceivers, match="two receivers are named ci"):
        read_receivers(receivers_file(tmp_path, {}, {}))
