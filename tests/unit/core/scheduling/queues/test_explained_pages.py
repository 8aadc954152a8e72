"""Every code for which a job waits, from the events to the page that ``muster explain`` prints of it."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from rich.console import Console

from muster._cli.explanation import print_explanation
from muster_core import events
from muster_core.models import (
    Job,
    JobKind,
    QueuePolicy,
    QueueSpec,
    Reason,
    ReplicaState,
    Resources,
    RestartScope,
    RunPolicy,
    Taint,
)
from muster_rpc.convert.explanation import explanation_to_proto

if TYPE_CHECKING:
    from conftest import World

PAGES = Path(__file__).resolve().parents[4] / "golden/explain"
Scenario = Callable[["World"], str]
SCENARIOS: dict[str, Scenario] = {}


def scenario(code: str) -> Callable[[Scenario], Scenario]:
    """The scenario of a code; it answers the job to explain."""

    def keep(made: Scenario) -> Scenario:
        SCENARIOS[code] = made
        return made

    return keep


def rigid(world: World, name: str, size: int, **rest: object) -> Job:
    return msgspec.structs.replace(world.job(name, size, floor=size, servers=0), **rest)


@scenario("InsufficientResources")
def _(world: World) -> str:
    world.node("n3", taints=(Taint(key="reserved"),))
    world.run(world.job("train", 6, floor=2))
    for name in ("first", "second"):
        world.submit(rigid(world, name, 8))
        world.after(20)
    return world.submit(world.job("big", 5, floor=4))


@scenario("NoMatchingNode")
def _(world: World) -> str:
    world.node("n3", unschedulable=True, labels={"disk": "ssd"})
    job = rigid(world, "picky", 2)
    role = job.roles[0]
    template = msgspec.structs.replace(role.template, node_selector={"disk": "ssd"})
    return world.submit(
        msgspec.structs.replace(job, roles=(msgspec.structs.replace(role, template=template),))
    )


@scenario("QueueLimit")
def _(world: World) -> str:
    world.queues(QueueSpec(name="research", limit=Resources(gpu=3000)))
    world.run(world.job("x", 2, queue="research"))
    return world.submit(world.job("y", 2, floor=2, queue="research"))


@scenario("BehindReservation")
def _(world: World) -> str:
    world.run(rigid(world, "running", 4, run=RunPolicy(active_deadline_s=600)))
    world.submit(rigid(world, "whole", 8))
    world.decide()
    world.after(30)
    world.decide()
    world.after(45)
    return world.submit(rigid(world, "small", 1))


@scenario("Reserved")
def _(world: World) -> str:
    world.run(rigid(world, "running", 4, run=RunPolicy(active_deadline_s=600)))
    world.submit(rigid(world, "whole", 8))
    world.decide()
    world.after(30)
    world.decide()
    world.after(45)
    return "whole"


@scenario("BehindFirst")
def _(world: World) -> str:
    world.queues(QueueSpec(name="strict", policy=QueuePolicy.STRICT_FIFO))
    world.run(rigid(world, "x", 4, queue="strict"))
    world.submit(rigid(world, "first", 5, queue="strict"))
    world.after(1)
    return world.submit(rigid(world, "small", 1, queue="strict"))


@scenario("NoSuchQueue")
def _(world: World) -> str:
    world.queues(QueueSpec(name="research"))
    return world.submit(rigid(world, "lost", 1, queue="reserch"))


@scenario("NameInUse")
def _(world: World) -> str:
    world.run(rigid(world, "train", 1))
    return world.submit(rigid(world, "train", 1), "j-second")


@scenario("Suspended")
def _(world: World) -> str:
    return world.submit(rigid(world, "later", 1, run=RunPolicy(suspend=True)))


@scenario("WaitingForBuild")
def _(world: World) -> str:
    world.submit(rigid(world, "image", 9, kind=JobKind.BUILD))
    world.decide()
    return world.submit(rigid(world, "train", 1), built_by="image")


@scenario("BuildFailed")
def _(world: World) -> str:
    world.run(rigid(world, "image", 1, kind=JobKind.BUILD))
    world.submit(rigid(world, "train", 1), built_by="image")
    world.finish("image", events.Outcome.FAILED, why="image-worker-0 exited with 2")
    return "train"


@scenario("Submitted")
def _(world: World) -> str:
    world.say("j-new", events.JobSubmitted(job_id="j-new", request_id="new"))
    return "j-new"


@scenario("Evicted")
def _(world: World) -> str:
    world.queues(QueueSpec(name="shared", preempts_within=True))
    world.run(rigid(world, "low", 8, queue="shared"))
    world.submit(rigid(world, "high", 8, queue="shared", priority=5))
    return "low"


@scenario("Restarting")
def _(world: World) -> str:
    world.run(rigid(world, "flaky", 2))
    reason = Reason(code="ReplicaFailed", message="worker-1 exited with 1; the gang is restarted")
    world.say(
        "flaky", events.JobRestarting(scope=RestartScope.GANG, attempt=1, reason=reason, delay_ms=20_000)
    )
    world.change("flaky", ReplicaState.EXITED, exit_code=1)
    return "flaky"


@scenario("Running")
def _(world: World) -> str:
    return world.run(world.job("elastic", 4, floor=2, most=6))


@pytest.fixture
def page(world: World, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """The page of a scenario's job."""

    def print_page(code: str) -> str:
        job_id = SCENARIOS[code](world)
        world.decide()
        said = world.pool.explain(job_id)
        assert said is not None
        message = explanation_to_proto(said, name_of=lambda other: world.record(other).name or other)
        out = io.StringIO()
        console = Console(file=out, width=10_000, highlight=False, markup=False, emoji=False)
        with monkeypatch.context() as utc:
            utc.setenv("TZ", "UTC")
            time.tzset()
            print_explanation(console, message, world.now / 1e6)
        time.tzset()
        return out.getvalue()

    return print_page


@pytest.mark.parametrize("code", SCENARIOS)
def test_the_page_is_as_it_was_agreed(page: Callable[[str], str], code: str) -> None:
    assert page(code) == (PAGES / f"{code}.txt").read_text()


def test_there_is_a_page_for_every_code_that_is_documented() -> None:
    documented = (PAGES.parents[2] / "docs/queues.md").read_text().partition("## Why a job waits")[2]
    rows = [line.split("|")[1] for line in documented.splitlines() if line.startswith("| `")]
    codes = {code.strip(" `") for row in rows for code in row.split(",")}
    assert codes <= set(SCENARIOS)
