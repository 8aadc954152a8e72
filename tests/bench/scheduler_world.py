"""The pool and jobs of the scheduler benchmark."""

from muster_core.models import Job, Node, Resources, Role, Template

POOL = "local"
NODES = 1_000
FILLERS = 3_000
"""The number of jobs that run throughout."""

_GIB = 2**30
_WAITING = ((1, 8), (2, 8), (1, 4), (3, 4), (2, 6))
"""Replicas, and GPUs of each: an empty node would hold them, and no node has more than three free."""


def nodes() -> list[Node]:
    """Return nodes of 96 CPUs and 8 GPUs, in racks of 16."""
    return [
        Node(
            name=f"node-{position:04d}",
            allocatable=Resources(cpu=96_000, memory=768 * _GIB, gpu=8_000),
            labels={"example.com/rack": f"rack-{position // 16:03d}"},
        )
        for position in range(NODES)
    ]


def filler(position: int) -> Job:
    """Return the jobs that run throughout: on every node one of five GPUs, on every third three more of one, and gangs without GPUs."""
    kind = position * 3 // FILLERS
    if kind == 0:
        return job(f"filler-{position}", replicas=1, cpu=20_000, gpu=5)
    if kind == 1:
        return job(f"filler-{position}", replicas=1, cpu=4_000, gpu=1)
    return job(f"filler-{position}", replicas=3, cpu=2_000, gpu=0)


def waiting(position: int, *, shapes: int) -> Job:
    """Return jobs that wait for whole nodes, in this many ``shapes`` with different CPU demands."""
    replicas, gpu = _WAITING[position % len(_WAITING)]
    return job(f"waiting-{position}", replicas=replicas, cpu=4_000 + position % shapes, gpu=gpu)


def passing(position: int) -> Job:
    """Return a gang of 3 that fits and ends."""
    return job(f"passing-{position}", replicas=3, cpu=4_000, gpu=1)


def job(name: str, *, replicas: int, cpu: int, gpu: int) -> Job:
    """Return a rigid gang of one role, as the spec-validator produces it."""
    template = Template(
        image="python:3.11-slim",
        command=("python", "train.py"),
        requests=Resources(cpu=cpu, memory=4 * _GIB, gpu=gpu * 1000),
    )
    role = Role(name="worker", replicas=replicas, min=replicas, max=replicas, template=template)
    return Job(name=name, format="native", roles=(role,))
