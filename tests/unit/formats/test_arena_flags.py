"""Every Arena flag has the effect that its table declares."""

import pytest
from msgspec.structs import replace

from muster_core.models import Job
from muster_formats import parse
from muster_formats.arena.command_line import flags_of
from muster_formats.arena.document import split_own
from muster_formats.arena.flag_types import Flag
from muster_formats.arena.jobs import SUB_COMMANDS, SubCommand
from muster_formats.schema import Effect

VALUES = {
    "--name": "other",
    "--label": "team=vision",
    "--annotation": "note=x",
    "--namespace": "vision",
    "--image": "other",
    "--device": "example.com/fpga=1",
    "--env": "A=b",
    "--data": "claim:/data",
    "--data-dir": "/data",
    "--priority": "5",
    "--queue": "research",
    "--toleration": "all",
    "--selector": "disk=ssd",
    "--image-pull-secret": "secret",
    "--image-pull-policy": "Never",
    "--shell": "bash",
    "--share-memory": "1Gi",
    "--sync-mode": "git",
    "--sync-source": "https://example.com/other.git",
    "--sync-image": "fetcher",
    "--tensorboard-image": "board",
    "--logdir": "/other",
    "--clean-task-policy": "All",
    "--success-policy": "AllWorkers",
    "--nproc-per-node": "gpu",
    "--launcher-annotation": "note=x",
    "--worker-annotation": "note=x",
    "--job-restart-policy": "Always",
    "--worker-restart-policy": "Always",
    "--task-name": "part",
    "--task-images": "c",
    "--task-cpu": "1",
    "--task-memory": "1Gi",
    "--min-workers": "1",
    "--max-workers": "4",
    "--working-dir": "/srv",
}
NEEDS = {
    "--sync-mode": ["--sync-mode=rsync", "--sync-source=https://example.com/code.git"],
    "--sync-source": ["--sync-mode=git", "--sync-source=https://example.com/code.git"],
    "--sync-image": ["--sync-mode=git", "--sync-source=https://example.com/code.git"],
    "--tensorboard-image": ["--tensorboard"],
    "--logdir": ["--tensorboard"],
    "--mounts-on-launcher": ["--data=claim:/data"],
}
UNSEEN = {"--gang", "--mode"}
"""What every job has anyway, and what the sub-command says already."""


def value_of(flag: Flag[object]) -> str:
    """A value that differs from what there is without the flag."""
    if flag.key in VALUES:
        return VALUES[flag.key]
    if flag.key.endswith("-selector"):
        return "disk=ssd"
    if "memory" in flag.key:
        return "1Gi"
    if flag.key.endswith("-image"):
        return "other"
    return "3"


def jobs_of(sort: SubCommand, flags: list[str]) -> tuple[Job, ...]:
    """The jobs of a command line with everything that flags may need, without their warnings."""
    base = ["--name=a"]
    base += (
        ["--task-images=a,b", "--task-replicas=2"]
        if sort.names[0] == "volcanojob"
        else ["--image=i", "--workers=2"]
    )
    base += ["--ps=1", "--chief", "--evaluator"] if sort.names[0] == "tfjob" else []
    parsed = parse(" ".join(["arena submit", sort.names[0], *base, *flags, "-- train"]))
    assert parsed.jobs, parsed.problems
    return tuple(replace(job, warnings=()) for job in parsed.jobs)


def acted() -> list[tuple[SubCommand, Flag[object]]]:
    return [
        (sort, flag)
        for sort in SUB_COMMANDS
        for flag in {flag.key: flag for flag in flags_of(sort.table).values()}.values()
        if flag.effect in {Effect.SUPPORTED, Effect.KUBERNETES} and flag.key not in UNSEEN
    ]


@pytest.mark.parametrize(("sort", "flag"), acted(), ids=lambda one: one.names[0])
def test_a_supported_flag_changes_the_job(sort: SubCommand, flag: Flag[object]) -> None:
    needs = NEEDS.get(flag.key, [])
    given = f"{flag.key}={value_of(flag)}" if flag.takes_value else flag.key
    if flag.key in {"--chief", "--evaluator"}:
        given = f"{flag.key}=false"
    assert jobs_of(sort, [*needs, given]) != jobs_of(sort, needs)


@pytest.mark.parametrize(
    ("sub_command", "key", "effect"),
    [
        ("tfjob", "--worker-cpu", Effect.SUPPORTED),
        ("mpijob", "--ssh-port", Effect.IGNORED),
        ("etjob", "--config-file", Effect.REJECTED),
    ],
)
def test_a_flag_has_the_effect_of_its_table(sub_command: str, key: str, effect: Effect) -> None:
    (table,) = (one.table for one in SUB_COMMANDS if sub_command in one.names)
    assert flags_of(table)[key].effect is effect


def test_every_flag_has_a_description() -> None:
    assert all(flag.doc for one in SUB_COMMANDS for flag in flags_of(one.table).values())


@pytest.mark.parametrize(
    ("words", "own", "others"),
    [
        (["tf", "--name", "a", "--wait", "x y"], ["--wait"], ["tf", "--name", "a", "x y"]),
        (["tf", "--name=a", "x y", "-o", "yaml"], ["-o", "yaml"], ["tf", "--name=a", "x y"]),
        (["tf", "--name=a", "train", "-o", "out"], [], ["tf", "--name=a", "train", "-o", "out"]),
        (["tf", "--name=a", "--", "--wait"], [], ["tf", "--name=a", "--", "--wait"]),
        (["--wait", "arena", "submit", "--mode=mpi", "x", "--wait"], ["--wait"], ["arena", "submit", "--mode=mpi", "x", "--wait"]),
        (["-f", "job.yaml", "--wait"], ["-f", "job.yaml", "--wait"], []),
        (["tf", "--env", "--wait", "x y"], [], ["tf", "--env", "--wait", "x y"]),
    ],
)  # fmt: skip
def test_the_options_of_muster_are_split_from_those_of_arena(
    words: list[str], own: list[str], others: list[str]
) -> None:
    takes_value = {"--wait": False, "-o": True, "-f": True}
    assert split_own(words, takes_value) == (own, others)
