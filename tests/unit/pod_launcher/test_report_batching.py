"""Batching of reports of starting replicas."""

from muster_core.events import ReplicaChange
from muster_core.models import ReplicaState
from muster_pod_launcher.report_batching import ReportBatching

BATCH_US = 250_000


def change(index: int, state: ReplicaState) -> ReplicaChange:
    return ReplicaChange(role="worker", index=index, attempt=1, state=state, at=0)


LAUNCHED, RUNNING = change(0, ReplicaState.LAUNCHED), change(1, ReplicaState.RUNNING)


def test_reports_of_starting_replicas_wait_from_the_first_one() -> None:
    batching = ReportBatching(batch_us=BATCH_US)
    assert batching.until("j", [RUNNING], all_running=False, now=1_000) == 251_000
    assert batching.until("j", [LAUNCHED, RUNNING], all_running=False, now=200_000) == 251_000
    assert batching.until("j", [LAUNCHED, RUNNING], all_running=False, now=251_000) is None


def test_launched_pods_wait_longer_until_one_of_them_runs() -> None:
    batching = ReportBatching(batch_us=BATCH_US)
    assert batching.until("j", [LAUNCHED], all_running=False, now=0) == 20 * BATCH_US
    assert batching.until("j", [LAUNCHED, RUNNING], all_running=False, now=1_000) == 251_000


def test_a_problem_of_a_launched_pod_waits_less_than_its_launch() -> None:
    batching = ReportBatching(batch_us=BATCH_US)
    stuck = ReplicaChange(
        role="worker", index=0, attempt=1, state=ReplicaState.LAUNCHED, at=0, reason="ImagePullBackOff"
    )
    assert batching.until("j", [stuck], all_running=False, now=0) == BATCH_US


def test_later_reports_start_a_new_batch() -> None:
    batching = ReportBatching(batch_us=BATCH_US)
    batching.until("j", [LAUNCHED], all_running=False, now=0)
    batching.clear("j")
    assert batching.until("j", [RUNNING], all_running=False, now=300_000) == 550_000


def test_a_fully_running_gang_is_reported_at_once() -> None:
    assert ReportBatching(batch_us=BATCH_US).until("j", [RUNNING], all_running=True, now=0) is None


def test_an_end_is_reported_at_once_with_all_waiting_reports() -> None:
    batching = ReportBatching(batch_us=BATCH_US)
    batching.until("j", [LAUNCHED], all_running=False, now=0)
    ended = change(1, ReplicaState.REJECTED)
    assert batching.until("j", [LAUNCHED, ended], all_running=False, now=1) is None


def test_jobs_wait_independently() -> None:
    batching = ReportBatching(batch_us=BATCH_US)
    assert batching.until("a", [RUNNING], all_running=False, now=0) == 250_000
    assert batching.until("b", [RUNNING], all_running=False, now=100_000) == 350_000


def test_without_batching_everything_is_reported_at_once() -> None:
    assert ReportBatching(batch_us=0).until("j", [LAUNCHED], all_running=False, now=0) is None
