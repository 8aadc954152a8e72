"""News of replicas that come up: held back for a moment, and told together."""

from muster_core.events import ReplicaChange
from muster_core.models import ReplicaState
from muster_pod_launcher.holding import Holding

HOLD_US = 250_000


def change(index: int, state: ReplicaState) -> ReplicaChange:
    return ReplicaChange(role="worker", index=index, attempt=1, state=state, at=0)


LAUNCHED, RUNNING = change(0, ReplicaState.LAUNCHED), change(1, ReplicaState.RUNNING)


def test_replicas_that_come_up_are_held_back_from_the_first_of_them_on() -> None:
    holding = Holding(hold_us=HOLD_US)
    assert holding.until("j", [RUNNING], everyone_runs=False, now=1_000) == 251_000
    assert holding.until("j", [LAUNCHED, RUNNING], everyone_runs=False, now=200_000) == 251_000
    assert holding.until("j", [LAUNCHED, RUNNING], everyone_runs=False, now=251_000) is None


def test_that_pods_are_there_waits_longer_and_no_longer_once_one_of_them_runs() -> None:
    holding = Holding(hold_us=HOLD_US)
    assert holding.until("j", [LAUNCHED], everyone_runs=False, now=0) == 20 * HOLD_US
    assert holding.until("j", [LAUNCHED, RUNNING], everyone_runs=False, now=1_000) == 251_000


def test_what_keeps_a_pod_from_running_does_not_wait_as_long_as_that_it_is_there() -> None:
    holding = Holding(hold_us=HOLD_US)
    stuck = ReplicaChange(
        role="worker", index=0, attempt=1, state=ReplicaState.LAUNCHED, at=0, reason="ImagePullBackOff"
    )
    assert holding.until("j", [stuck], everyone_runs=False, now=0) == HOLD_US


def test_what_comes_after_news_were_told_is_held_back_anew() -> None:
    holding = Holding(hold_us=HOLD_US)
    holding.until("j", [LAUNCHED], everyone_runs=False, now=0)
    holding.drop("j")
    assert holding.until("j", [RUNNING], everyone_runs=False, now=300_000) == 550_000


def test_a_gang_that_runs_as_a_whole_is_told_at_once() -> None:
    assert Holding(hold_us=HOLD_US).until("j", [RUNNING], everyone_runs=True, now=0) is None


def test_an_end_is_told_at_once_with_all_that_was_held_back() -> None:
    holding = Holding(hold_us=HOLD_US)
    holding.until("j", [LAUNCHED], everyone_runs=False, now=0)
    ended = change(1, ReplicaState.REJECTED)
    assert holding.until("j", [LAUNCHED, ended], everyone_runs=False, now=1) is None


def test_one_job_does_not_wait_for_another() -> None:
    holding = Holding(hold_us=HOLD_US)
    assert holding.until("a", [RUNNING], everyone_runs=False, now=0) == 250_000
    assert holding.until("b", [RUNNING], everyone_runs=False, now=100_000) == 350_000


def test_without_a_hold_everything_is_told_at_once() -> None:
    assert Holding(hold_us=0).until("j", [LAUNCHED], everyone_runs=False, now=0) is None
