"""One turn: a contender starts the gangs of a shape on an empty cluster, and an independent watch reports when they are bound."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

import msgspec
from cluster_gangs import (
    NAMESPACE,
    NODE_CPU,
    NODE_GPUS,
    Shape,
    gang_name,
    gang_of,
    in_groups,
    pods,
    request_id,
    submissions,
)
from cluster_http import Request, Server, send_all
from cluster_load import LoadPlan, LoadReport
from cluster_watch import Onlooker, onlooker
from processes import CpuMeter

from muster.aio import AsyncClient
from muster_events.subjects import job_id_of
from muster_local import LocalSystem
from muster_testing.cluster import ControlPlane, Rest
from muster_testing.cluster.views import Metadata, Named

IN_FLIGHT = 64
"""Requests in flight to the API server for every contender: the pod-launcher's own setting."""

_LOAD = Path(__file__).with_name("cluster_load.py")
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_CONFIGS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
_UNCHECKED = f"{_PODS}?fieldValidation=Ignore"
_GROUPS = f"/apis/scheduling.k8s.io/v1alpha2/namespaces/{NAMESPACE}/podgroups"
_ROOM = {"cpu": NODE_CPU, "nvidia.com/gpu": NODE_GPUS}
_SETTLE_S = 240.0
_QUIET_S = 10.0
_EMPTY_S = 60.0
_AT_ONCE = b'{"gracePeriodSeconds":0}'
_POLL_S = 0.2
_READY = b"ready\n"


class LoadFailed(Exception):
    """The load generator ended early."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a turn.

    ``seconds`` from the first request to the last bound pod, ``partial`` gangs with some but not all members bound,
    ``overcommitted`` nodes, ``costs`` as text.
    """

    seconds: float
    bound: int
    partial: int
    overcommitted: int
    costs: str

    @property
    def pods_per_s(self) -> float:
        """Bound pods per second."""
        return self.bound / self.seconds


class Arena(msgspec.Struct, frozen=True, kw_only=True):
    """The shared environment: the cluster, the uids of its nodes, and a folder for load plans."""

    cluster: ControlPlane
    nodes: Mapping[str, str]
    folder: Path

    @property
    def server(self) -> Server:
        """Return the API server, with administrator credentials."""
        return Server(url=self.cluster.url, ca_file=str(self.cluster.ca_file), token=self.cluster.token)


async def uids_of_nodes(cluster: ControlPlane) -> dict[str, str]:
    """Return the uid of every node by name."""
    async with cluster.connect() as api:
        return {node.metadata.name: node.metadata.uid for node in await api.items("/api/v1/nodes", Named)}


def bare(arena: Arena, shape: Shape) -> LoadPlan:
    """Create the pods on their nodes, and nothing else: the ceiling."""
    return _created(arena, [pod for gang in pods(shape, nodes=arena.nodes) for pod in gang])


def alone(arena: Arena, shape: Shape) -> LoadPlan:
    """Create the pods unscheduled, for kube-scheduler to bind one by one."""
    return _created(arena, [pod for gang in pods(shape) for pod in gang])


def grouped(arena: Arena, shape: Shape) -> LoadPlan:
    """Create pod groups and their pods, for kube-scheduler to bind gang by gang."""
    return _created(arena, in_groups(shape, ahead=1 + IN_FLIGHT // shape.members))


def submitted(system: LocalSystem, shape: Shape, *, prefix: str = "") -> LoadPlan:
    """Submit the gangs to Muster."""
    requests = [request.SerializeToString() for request in submissions(shape, prefix=prefix)]
    return LoadPlan(in_flight=IN_FLIGHT, gateway=system.address, submissions=requests)


async def run(
    arena: Arena,
    plan: LoadPlan,
    shape: Shape,
    *,
    pids: Mapping[str, int],
    fits: bool = True,
    played: bool = False,
) -> Run:
    """Execute the plan until all pods of the shape are bound or, if they do not fit, nothing more happens. The pods stay.

    With ``played`` False kubelets are stopped: their requests to the API server would depend on how many pods they reach
    before the last is bound.
    """
    expected = shape.pods if fits else None
    async with onlooker(arena.server) as seen:
        with tempfile.NamedTemporaryFile(dir=arena.folder) as file:
            file.write(msgspec.msgpack.encode(plan))
            file.flush()
            with nullcontext() if played else arena.cluster.kwok_suspended():
                report, costs = await _carry_out(Path(file.name), seen, expected=expected, pids=pids)
        last = max(seen.bound.values(), default=report.ended)
    partial, overcommitted = await _judge(arena, shape)
    return Run(
        seconds=last - report.began,
        bound=len(seen.bound),
        partial=partial,
        overcommitted=overcommitted,
        costs=costs,
    )


async def cancel(arena: Arena, system: LocalSystem, shape: Shape, *, prefix: str) -> None:
    """Cancel Muster's gangs and wait until their capacity is free."""
    async with AsyncClient(system.address) as muster:
        for index in range(shape.gangs):
            await muster.cancel(job_id_of(request_id(f"{prefix}{gang_name(index)}")))
    async with arena.cluster.connect() as api:
        await _until_empty(api, _PODS)


async def sweep(arena: Arena) -> None:
    """Delete everything of the last turn and wait until it is gone; nothing may be creating objects."""
    async with arena.cluster.connect() as api:
        for path in (_PODS, _GROUPS, _CONFIGS):
            found = [each for each in await api.items(path, Named) if _is_of_the_run(each)]
            await _release(arena, path, [each.metadata.name for each in found if each.metadata.finalizers])
            away = [Request(f"{path}/{each.metadata.name}", _AT_ONCE, "DELETE") for each in found]
            await send_all(arena.server, away, connections=IN_FLIGHT)
        for path in (_PODS, _GROUPS):
            await _until_empty(api, path)


async def _until_empty(api: Rest, path: str) -> None:
    async with asyncio.timeout(_EMPTY_S):
        while await api.items(path, Named):
            await asyncio.sleep(_POLL_S)


async def _release(arena: Arena, path: str, names: Sequence[str]) -> None:
    """Remove finalizers whose owners are gone."""
    change = msgspec.json.encode({"metadata": {"finalizers": None}})
    patches = [Request(f"{path}/{name}", change, "PATCH", "application/merge-patch+json") for name in names]
    await send_all(arena.server, patches, connections=IN_FLIGHT)


def _is_of_the_run(found: Named) -> bool:
    # Every namespace has this one.
    return found.metadata.name != "kube-root-ca.crt"


def _created(arena: Arena, objects: Sequence[dict[str, object]]) -> LoadPlan:
    # All pods are requested in Muster's way.
    paths = {"Pod": _UNCHECKED, "PodGroup": _GROUPS}
    requests = [Request(paths[str(each["kind"])], msgspec.json.encode(each)) for each in objects]
    return LoadPlan(in_flight=IN_FLIGHT, server=arena.server, requests=requests)


async def _carry_out(
    file: Path, seen: Onlooker, *, expected: int | None, pids: Mapping[str, int]
) -> tuple[LoadReport, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(_LOAD), str(file), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(_SETTLE_S):
            if process.stdin is None or process.stdout is None or await process.stdout.readline() != _READY:
                raise LoadFailed("the load generator did not get ready")
            meter = CpuMeter(pids)
            process.stdin.write(b"\n")
            process.stdin.close()
            if expected is not None:
                await seen.until(expected, timeout_s=_SETTLE_S)
            line = await process.stdout.readline()
            if not line:
                raise LoadFailed("the load generator ended without a report")
            report = msgspec.json.decode(line, type=LoadReport)
            if expected is None:
                await seen.until_quiet(idle_s=_QUIET_S, timeout_s=_SETTLE_S)
            each = meter.each(max(len(seen.bound), 1), client_s=report.cpu_s)
            strangers = meter.strangers(client_s=report.cpu_s)
            return report, f"CPU ms a pod: {each}; other programs: {strangers:.1f} cores"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


class _Asked(msgspec.Struct, frozen=True):
    requests: dict[str, str]


class _Container(msgspec.Struct, frozen=True):
    resources: _Asked


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    containers: tuple[_Container, ...]
    node_name: str = ""


class _Member(msgspec.Struct, frozen=True):
    metadata: Metadata
    spec: _Spec


async def _judge(arena: Arena, shape: Shape) -> tuple[int, int]:
    """Return partially bound gangs, and overcommitted nodes."""
    async with arena.cluster.connect() as api:
        bound = [pod for pod in await api.items(_PODS, _Member) if pod.spec.node_name]
    present = Counter(gang_of(pod.metadata.name) for pod in bound)
    asked = Counter[tuple[str, str]]()
    for pod in bound:
        for container in pod.spec.containers:
            for resource in _ROOM:
                asked[pod.spec.node_name, resource] += int(container.resources.requests[resource])
    crowded = {node for (node, resource), amount in asked.items() if amount > _ROOM[resource]}
    return sum(count < shape.members for count in present.values()), len(crowded)
