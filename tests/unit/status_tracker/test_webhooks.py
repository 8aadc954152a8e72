"""What webhooks decide without a wire: who is told, what an answer means, what is left to tell."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from muster_core import events
from muster_core.lifecycle import apply_event
from muster_core.models import Job, JobRecord, Phase, Reason, Role, Template
from muster_status_tracker.webhooks.changes import Changes
from muster_status_tracker.webhooks.courier import Verdict, judge, pause_after
from muster_status_tracker.webhooks.events import PhaseChange, event_of
from muster_status_tracker.webhooks.places import Place
from muster_status_tracker.webhooks.receivers import BadReceivers, Receiver, read_receivers
from muster_status_tracker.webhooks.signing import SIGNATURE, TIMESTAMP, signature_headers
from muster_status_tracker.webhooks.teller import concerns
from muster_status_tracker.webhooks.window import Window

JOB_ID = "j-aaaaaaaaaaaaaaaa"
US = 1_000_000
ROLE = Role(name="worker", replicas=1, min=1, max=1, template=Template(command=("true",)))
JOB = Job(name="demo", roles=(ROLE,), queue="team", namespace="ml")


def receiver(**given: object) -> Receiver:
    return msgspec.convert({"name": "ci", "url": "https://ci/", "secretFile": "x"} | given, Receiver)


def story(*told: events.JobEvent) -> list[events.StoredEvent]:
    submitted = events.JobSubmitted(job_id=JOB_ID, request_id="r")
    return [
        events.StoredEvent(job_id=JOB_ID, event=event, sequence=10 * number, at=number * US)
        for number, event in enumerate((submitted, events.JobValidated(job=JOB), *told), start=1)
    ]


def waits(code: str) -> events.JobWaiting:
    return events.JobWaiting(reason=Reason(code=code))


PLACED = events.JobPlaced(
    attempt=1,
    generation=1,
    pool="local",
    replicas=(events.Assignment(role="worker", index=0, node="n1"),),
)
EVICTED = events.JobEvicted(attempt=1, reason=Reason(code="Preempted"))
CANCELLED = events.JobFinished(outcome=events.Outcome.CANCELLED, reason=Reason(code="Cancelled"))


class Library:
    """A past that is held in memory, and counts who asks for it."""

    def __init__(self, stampeds: list[events.StoredEvent]) -> None:
        self.asked = 0
        self._stampeds = stampeds

    async def record_before(self, job_id: str, sequence: int) -> JobRecord | None:
        self.asked += 1
        record: JobRecord | None = None
        for stored in self._stampeds:
            if stored.job_id == job_id and stored.sequence < sequence:
                record = apply_event(record, stored).record
        return record


async def changes_from(stampeds: list[events.StoredEvent], start: int) -> tuple[list[PhaseChange], Library]:
    library = Library(stampeds)
    changes = Changes(library)
    found = [await changes.read(stored) for stored in stampeds[start:]]
    return [change for change in found if change is not None], library


async def test_a_reader_that_begins_anywhere_tells_what_one_from_the_beginning_tells() -> None:
    late = events.CommandRequested(command=events.Command.DELETE, request_id="late")
    stampeds = story(waits("Full"), PLACED, EVICTED, waits("Full"), CANCELLED, late)
    whole, _ = await changes_from(stampeds, 0)
    assert [change.after.phase for change in whole] == [
        Phase.SUBMITTED,
        Phase.QUEUED,
        Phase.PLACED,
        Phase.EVICTED,
        Phase.QUEUED,
        Phase.CANCELLED,
    ]
    for start in range(len(stampeds)):
        part, library = await changes_from(stampeds, start)
        expected = [change for change in whole if change.sequence >= stampeds[start].sequence]
        assert [event_of(c, source="m") for c in part] == [event_of(c, source="m") for c in expected]
        assert library.asked == (1 if start else 0)


async def test_nothing_is_told_of_a_job_that_nobody_knows() -> None:
    stranger = events.StoredEvent(job_id="j-bbbbbbbbbbbbbbbb", event=PLACED, sequence=5, at=US)
    changes = Changes(Library([]))
    assert await changes.read(stranger) is None
    assert await changes.read(stranger) is None


async def test_an_event_names_its_event_its_instant_and_its_job() -> None:
    (_, queued), _ = await changes_from(story(), 0)
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
    ("given", "told"),
    [
        ({}, True),
        ({"phases": ["Queued"], "queues": ["team"], "namespaces": ["ml"]}, True),
        ({"phases": ["Failed"]}, False),
        ({"queues": ["other"]}, False),
        ({"namespaces": ["default"]}, False),
    ],
)
async def test_a_receiver_is_told_what_it_asked_for(given: dict[str, object], told: bool) -> None:
    (_, queued), _ = await changes_from(story(), 0)
    assert concerns(receiver(**given), queued.after) is told


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (200, Verdict.DELIVERED),
        (204, Verdict.DELIVERED),
        (301, Verdict.AGAIN),
        (307, Verdict.AGAIN),
        (400, Verdict.REFUSED),
        (401, Verdict.AGAIN),
        (404, Verdict.AGAIN),
        (410, Verdict.GONE),
        (413, Verdict.REFUSED),
        (415, Verdict.REFUSED),
        (422, Verdict.REFUSED),
        (429, Verdict.AGAIN),
        (500, Verdict.AGAIN),
        (503, Verdict.AGAIN),
    ],
)
def test_what_an_answer_means(status: int, verdict: Verdict) -> None:
    assert judge(status) is verdict


def test_pauses_double_up_to_the_longest_and_heed_what_the_receiver_asks() -> None:
    slow = receiver(firstPauseSeconds=1, longestPauseSeconds=60)
    assert [pause_after(tries, slow) for tries in range(1, 9)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert pause_after(1, slow, asked_s=30) == 30
    assert pause_after(1, slow, asked_s=86_400) == 60
    assert pause_after(1000, slow) == 60


def test_a_signature_covers_the_instant_and_the_body_with_each_secret() -> None:
    headers = signature_headers(b"body", secrets=[b"new", b"old"], at_s=1_700_000_000)
    assert headers[TIMESTAMP] == "1700000000"
    # printf '1700000000.body' | openssl dgst -sha256 -hmac new
    new, old = headers[SIGNATURE].split(",")
    assert new == "v1=de1665c0f1b73c0e41d8ddbf36f95bbddfa2ebb359160d4b02de302279e3fff7"
    assert old == signature_headers(b"body", secrets=[b"old"], at_s=1_700_000_000)[SIGNATURE]
    assert new not in signature_headers(b"body", secrets=[b"new"], at_s=1_700_000_001)[SIGNATURE]


def test_the_place_is_behind_what_waits_and_remembers_what_is_done_beyond() -> None:
    window = Window(Place(through=10))
    for sequence in (11, 12, 15):
        assert window.begin(sequence)
    window.read_through = 20
    window.finish(12)
    window.finish(15)
    assert window.place() == Place(through=10, beyond=(12, 15))
    window.finish(11)
    assert window.place() == Place(through=20)


def test_what_was_told_before_is_not_told_again() -> None:
    window = Window(Place(through=10, beyond=(12,)))
    assert window.begin(11)
    assert not window.begin(12)
    window.read_through = 12
    assert window.place() == Place(through=10, beyond=(12,))
    window.finish(11)
    assert window.place() == Place(through=12)


def test_a_file_of_receivers_is_read_with_its_secrets(tmp_path: Path) -> None:
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
    assert ci.address == urlsplit("https://ci:8443/a?b=c")
    assert ci.secrets() == (b"a-new-secret-of-ours", b"an-old-secret-of-ours")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"url": "ftp://ci/"}, "must be http:// or https://"),
        ({"url": "https:///hook"}, "name a host"),
        ({"url": "https://ci:99999/"}, "url"),
        ({"url": "https://ann:pw@ci/"}, "hold no password"),
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
def test_a_receiver_that_cannot_be_used_is_refused_with_the_reason(
    given: dict[str, object], why: str, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a-secret-of-these-tests")
    whole = {"name": "ci", "url": "https://ci/", "secretFile": str(secret)} | given
    file = tmp_path / "webhooks.json"
    file.write_text(json.dumps({"receivers": [whole]}))
    with pytest.raises(BadReceivers, match=why):
        read_receivers(file)


@pytest.mark.parametrize(("text", "why"), [("\n", "holds no secret"), ("short\n", "shorter than 16")])
def test_a_secret_must_be_one(text: str, why: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(text)
    file = tmp_path / "webhooks.json"
    file.write_text(
        json.dumps({"receivers": [{"name": "ci", "url": "https://ci/", "secretFile": str(secret)}]})
    )
    with pytest.raises(BadReceivers, match=why):
        read_receivers(file)


def test_two_receivers_of_one_name_are_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a-secret-of-these-tests")
    one = {"name": "ci", "url": "https://ci/", "secretFile": str(secret)}
    file = tmp_path / "webhooks.json"
    file.write_text(json.dumps({"receivers": [one, one]}))
    with pytest.raises(BadReceivers, match="two receivers called ci"):
        read_receivers(file)
