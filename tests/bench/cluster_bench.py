"""`make bench-cluster`: Muster, kube-scheduler, kube-scheduler's gang scheduling, and the ceiling, on one API server.

    cluster_bench.py [--quick] [--only SHAPE ...] [--rounds N] [--unsynced] [--apart] [--data DIR]

Prints a table, then one JSON object a line, as `make bench` does.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from cluster_gangs import NAMESPACE, NODE_CPU, NODE_GPUS, NODE_MEMORY, Shape
from cluster_runs import Arena, Run, alone, bare, cancel, grouped, run, submitted, sweep, uids_of_nodes
from measuring import Measurement, percentile, table
from processes import give_way
from system_under_test import fresh_folder, pids_of

from muster_local import LocalOptions, LocalSystem, use_batch_scheduling
from muster_testing.cluster import ControlPlane

_LEAD, _SHARE_APART = 3.0, 0.85
_CONTENDERS = ("kube", "kube_gang", "muster", "ceiling")
_IN_NO_RATIO = "kube"
_GRACE_S = 3600
"""Nodes do not get lost while their kubelets are stopped."""


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """The size of the benchmark. `crowded` asks for more than there is."""

    nodes: int
    shapes: tuple[Shape, ...]
    crowded: Shape
    idle: int


FULL = Scale(
    nodes=500,
    shapes=(Shape(gangs=500, members=4), Shape(gangs=1000, members=3), Shape(gangs=20, members=100)),
    # A member fills a node, and some nodes are left over.
    crowded=Shape(gangs=100, members=7, cpu=NODE_CPU),
    idle=20,
)
QUICK = Scale(
    nodes=50,
    shapes=(Shape(gangs=50, members=4), Shape(gangs=100, members=3), Shape(gangs=2, members=100)),
    crowded=Shape(gangs=10, members=7, cpu=NODE_CPU),
    idle=5,
)
_FIRST = Shape(gangs=500, members=4)
# Enough to open connections: the other contenders open theirs before they begin.
_WARM_UP = Shape(gangs=20, members=4)
_LONE = Shape(gangs=1, members=4)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the command line asks for; returns the exit code."""
    parser = argparse.ArgumentParser(prog="bench-cluster", description="Measure Muster on a real API server.")
    parser.add_argument("--quick", action="store_true", help="50 nodes and few gangs, for a first look")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="SHAPE",
        help="such as 500x4 or crowded; may be repeated",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=1,
        metavar="N",
        help="run N turns of each shape (kube-scheduler alone, which is in no ratio, one), and report medians",
    )
    parser.add_argument(
        "--data", type=Path, default=Path("/var/tmp"), metavar="DIR", help="a folder on a disk, not in memory"
    )
    parser.add_argument(
        "--unsynced",
        action="store_true",
        help="let etcd acknowledge before syncing, unlike production clusters",
    )
    parser.add_argument(
        "--apart",
        action="store_true",
        help="give the control plane half of the cores and all other programs the rest; by default all share all cores",
    )
    options = parser.parse_args(arguments)
    # This process reads the services' logs: it must not interrupt them.
    use_batch_scheduling()
    cores = _set_apart() if options.apart else ()
    measurements = asyncio.run(
        _measure(
            options.data,
            QUICK if options.quick else FULL,
            only=frozenset(options.only),
            rounds=options.rounds,
            durable=not options.unsynced,
            cores=cores,
        )
    )
    load = os.getloadavg()[0]
    layout = "half of them for the control plane" if cores else "shared by all"
    machine = f"{os.cpu_count()} cores, {layout}, {platform.system()} {platform.machine()}, load {load:.1f}"
    sys.stdout.write(f"{machine}\n\n{table(measurements)}\n\n")
    for measurement in measurements:
        sys.stdout.write(measurement.as_json() + "\n")
    return 0


def _set_apart() -> Sequence[int]:
    """Return the CPUs of the control plane; this process and its children avoid them from now on."""
    cores = sorted(os.sched_getaffinity(0))
    half = len(cores) // 2
    if not half:
        raise SystemExit("bench-cluster: --apart needs two cores, and there is one")
    os.sched_setaffinity(0, cores[half:])
    return cores[:half]


async def _measure(
    root: Path, scale: Scale, *, only: frozenset[str], rounds: int, durable: bool, cores: Sequence[int]
) -> list[Measurement]:
    measurements: list[Measurement] = []
    with fresh_folder(root) as folder:
        async with ControlPlane(
            folder / "control-plane", node_grace_s=_GRACE_S, durable=durable, keeps_memory=True, cores=cores
        ) as cluster:
            await cluster.create_namespace(NAMESPACE)
            _say(f"{scale.nodes} nodes")
            await cluster.add_kwok_nodes(
                scale.nodes, cpu=str(NODE_CPU), memory=NODE_MEMORY, gpus=NODE_GPUS, prefix="node"
            )
            # They do not run on the control plane's cores, and use as little CPU as possible.
            give_way(cluster.pids["kwok"])
            arena = Arena(cluster=cluster, nodes=await uids_of_nodes(cluster), folder=folder)
            muster: list[Run] = []
            shapes = [shape for shape in scale.shapes if not only or shape.name in only]
            for shape in shapes:
                measurements += await _shape(arena, shape, muster, rounds, apart=bool(cores))
            if not only or "crowded" in only:
                measurements += await _crowded(arena, scale, muster)
            if not only or "idle" in only:
                measurements.append(await _idle(arena, scale.idle))
    measurements += _sound(muster)
    # Figures of the two layouts must not be confused.
    return [
        msgspec.structs.replace(each, name=f"{each.name}.apart") if cores else each for each in measurements
    ]


async def _shape(
    arena: Arena, shape: Shape, muster: list[Run], rounds: int, *, apart: bool
) -> list[Measurement]:
    turns: list[dict[str, Run]] = []
    for turn in range(rounds):
        # Muster runs between the contenders it is compared with, and every other turn reverses the order: the machine's
        # speed drifts.
        order = _CONTENDERS if turn % 2 == 0 else _CONTENDERS[::-1]
        runs = {name: await _one(arena, name, shape) for name in order if turn == 0 or name != _IN_NO_RATIO}
        muster.append(runs["muster"])
        turns.append(runs)
    return [
        *(_rate([runs[name] for runs in turns if name in runs], name, shape) for name in _CONTENDERS),
        _ratio(turns, "kube_gang", shape, budget=_LEAD),
        _ratio(turns, "ceiling", shape, budget=_SHARE_APART if apart else None),
    ]


def _rate(runs: Sequence[Run], contender: str, shape: Shape) -> Measurement:
    runs = sorted(runs, key=lambda run: run.pods_per_s)
    middle = runs[(len(runs) - 1) // 2]
    every = ", ".join(f"{run.pods_per_s:.0f}" for run in runs)
    among = f"of {every}; " if len(runs) > 1 else ""
    return Measurement(
        name=f"cluster_pods_per_s.{contender}.{shape.name}",
        value=middle.pods_per_s,
        unit="1/s",
        better="more",
        note=f"{among}{middle.bound} pods in {middle.seconds:.1f} s; {middle.costs}",
    )


def _ratio(
    turns: Sequence[Mapping[str, Run]], other: str, shape: Shape, *, budget: float | None
) -> Measurement:
    """Ratios are taken within a turn: the machine's speed drifts between turns."""
    ratios = sorted(runs["muster"].pods_per_s / runs[other].pods_per_s for runs in turns)
    every = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    return Measurement(
        name=f"cluster_ratio_{other}.{shape.name}",
        value=percentile(ratios, 0.5),
        unit="ratio",
        budget=budget,
        better="more",
        note=f"of {every}" if len(ratios) > 1 else "",
    )


async def _one(arena: Arena, contender: str, shape: Shape, *, fits: bool = True) -> Run:
    _say(f"{contender} {shape.name}")
    await _renew(arena)
    if contender == "muster":
        async with _muster(arena) as system:
            pids = {**pids_of(system), **arena.cluster.pids}
            done = await run(arena, submitted(system, shape), shape, pids=pids, fits=fits)
    elif contender == "ceiling":
        done = await run(arena, bare(arena, shape), shape, pids=arena.cluster.pids, fits=fits)
    else:
        plan = {"kube": alone, "kube_gang": grouped}[contender](arena, shape)
        await arena.cluster.start_scheduler()
        done = await run(arena, plan, shape, pids=arena.cluster.pids, fits=fits)
        arena.cluster.stop_scheduler()
    _say(f"  {done.pods_per_s:.0f}/s; {done.costs}")
    await sweep(arena)
    return done


async def _renew(arena: Arena) -> None:
    """Restart the API server with warm memory: garbage of earlier turns would fall into a random turn."""
    await arena.cluster.renew()
    await run(arena, bare(arena, _FIRST), _FIRST, pids={})
    await sweep(arena)


@asynccontextmanager
async def _muster(arena: Arena) -> AsyncGenerator[LocalSystem]:
    """Start Muster on the cluster and place some gangs, so that lazy loading does not count."""
    with fresh_folder(arena.folder) as folder:
        options = LocalOptions(kubeconfig=arena.cluster.kubeconfig, workdir=folder)
        system = LocalSystem(folder / "data", options)
        async with system:
            await run(arena, submitted(system, _WARM_UP, prefix="warm-"), _WARM_UP, pids={}, played=True)
            await cancel(arena, system, _WARM_UP, prefix="warm-")
            yield system


async def _idle(arena: Arena, count: int) -> Measurement:
    waits: list[float] = []
    await _renew(arena)
    async with _muster(arena) as system:
        for number in range(count):
            prefix = f"lone-{number}-"
            done = await run(arena, submitted(system, _LONE, prefix=prefix), _LONE, pids={}, played=True)
            waits.append(1000 * done.seconds)
            await cancel(arena, system, _LONE, prefix=prefix)
    await sweep(arena)
    return Measurement(
        name="cluster_idle_gang_ms",
        value=percentile(waits, 0.5),
        unit="ms",
        note=f"the median of {count} gangs of {_LONE.members}, one at a time; the longest {max(waits):.0f}",
    )


async def _crowded(arena: Arena, scale: Scale, muster: list[Run]) -> list[Measurement]:
    shape = scale.crowded
    theirs = {name: await _one(arena, name, shape, fits=False) for name in ("kube", "kube_gang")}
    ours = await _one(arena, "muster", shape, fits=False)
    muster.append(ours)
    return [
        Measurement(
            name="cluster_crowded_pods.muster",
            value=ours.bound,
            unit="pods",
            note=f"{shape.pods} in gangs of {shape.members} on {scale.nodes} nodes that hold one each; "
            + ", ".join(
                f"{name} {run.bound} with {run.partial} partial gangs" for name, run in theirs.items()
            ),
        )
    ]


def _sound(muster: Sequence[Run]) -> list[Measurement]:
    return [
        Measurement(
            name="cluster_partial_gangs", value=sum(run.partial for run in muster), unit="gangs", budget=0
        ),
        Measurement(
            name="cluster_overcommit", value=sum(run.overcommitted for run in muster), unit="nodes", budget=0
        ),
    ]


def _say(words: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {words}\n")


if __name__ == "__main__":
    sys.exit(main())
