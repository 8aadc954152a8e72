"""Replicas as pods of a cluster, written with their node's name: the truth is in the API server, and what is kept here is a view of it.

Nothing waits in here. A name that is not free yet, an answer that did not come, a pod that is still on its way out: the job is looked at
again when that has changed, and the same question leads to the rest of the work.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec

from muster_core.frameworks import Addresses, ConfigFile, RemoteShell, Site, service_addresses
from muster_core.models import Job, Node, ReplicaState
from muster_events.subjects import lane_of
from muster_pod_launcher.kubernetes.api import Api
from muster_pod_launcher.kubernetes.archive import Archive
from muster_pod_launcher.kubernetes.claims import Claims
from muster_pod_launcher.kubernetes.config import (
    FILES_FOLDER,
    MEMBERS_PATH,
    REMOTE_SHELL,
    config_name,
    needs_config,
    node_as_owner,
    owner,
)
from muster_pod_launcher.kubernetes.errors import ApiError, NotFound, Refused
from muster_pod_launcher.kubernetes.farewell import Farewell
from muster_pod_launcher.kubernetes.labels import GENERATION, is_addressed, replica_of
from muster_pod_launcher.kubernetes.lanes import Lanes
from muster_pod_launcher.kubernetes.logs import LogReader
from muster_pod_launcher.kubernetes.node_watch import NodeWatch
from muster_pod_launcher.kubernetes.objects import Metadata, Pod
from muster_pod_launcher.kubernetes.pods import PodOptions, make_pod, why_not
from muster_pod_launcher.kubernetes.progress import ProgressLines
from muster_pod_launcher.kubernetes.reach import PodReach
from muster_pod_launcher.kubernetes.requests import requests_of, total
from muster_pod_launcher.kubernetes.runs import Runs
from muster_pod_launcher.kubernetes.services import headless_service
from muster_pod_launcher.kubernetes.writer import InTheWay, Taken, Writer, is_for_later
from muster_pod_launcher.ports import Launch, LogChunk, Observation, ProgressSeen, ReplicaId
from muster_runtime.logs import fields

log = logging.getLogger(__name__)

CANNOT_RUN = 126
"""The exit code of a replica that no pod can be made of, as a shell has it for a command that cannot be run."""

_TICK_S = 1.0
_SOON_S = 0.5
_LEAST_GRACE_S = 1
_ANOTHER = "since another of its gang was refused"


class KubernetesOptions(msgspec.Struct, frozen=True, kw_only=True):
    """``namespace`` confines the launcher to one (empty: all). ``node_selector`` says which nodes are the pool's (empty: all).

    ``cluster_domain`` ends the replicas' addresses (empty: it is left out). ``start_s`` is how long a container may fail to start before
    its gang is placed again, ``node_lost_s`` how long a node may be away before its replicas are given up.
    """

    pool: str
    namespace: str = ""
    node_selector: str = ""
    cluster_domain: str = ""
    start_s: float = 120.0
    node_lost_s: int = 60


Start = tuple[int, int, int]
"""Those that start together, all or none: attempt, generation and restart of each."""


class _GangRefused(Exception):
    """Another of those that are to start together was refused."""


class _NodeTaken(Exception):
    """Others have taken the room of the node since the replica was placed."""


class _Known(msgspec.Struct, kw_only=True):
    """What is known of a job that this copy writes for.

    ``refusal``: why its namespace takes nothing of it. ``late`` are the replicas that could not start when they were first to. ``refused``
    are the starts of which a member was refused, and ``starting`` counts the members of each that are under way.
    """

    job: Job
    uid: str = ""
    members: bytes | None = None
    files: dict[str, ConfigFile] = msgspec.field(default_factory=dict[str, ConfigFile])
    refusal: str = ""
    services: set[ReplicaId] = msgspec.field(default_factory=set[ReplicaId])
    late: set[ReplicaId] = msgspec.field(default_factory=set[ReplicaId])
    refused: set[Start] = msgspec.field(default_factory=set["Start"])
    starting: Counter[Start] = msgspec.field(default_factory=Counter["Start"])


class KubernetesRuntime:
    """The ``Runtime`` of a cluster. Everything but the constructor needs ``run`` to run."""

    def __init__(
        self, *, api: Api, archive: Archive, clock: Callable[[], int], options: KubernetesOptions
    ) -> None:
        self._clock = clock
        self._options = options
        self._archive = archive
        self._nodes = NodeWatch(
            api=api, pool=options.pool, selector=options.node_selector, moved=self._node_moved
        )
        self._runs = Runs(clock=clock, node_away=self._nodes.is_away, start_s=options.start_s)
        self._writer = Writer(api=api, pool=options.pool)
        self._logs = LogReader(api=api, runs=self._runs, archive=archive)
        self._claims = Claims(api=api)
        self._progress = ProgressLines(api=api, runs=self._runs)
        self.reach = PodReach(api=api, runs=self._runs)
        """The way into pods."""
        self._farewell = Farewell(runs=self._runs, writer=self._writer, logs=self._logs)
        self._lanes = Lanes(api=api, pool=options.pool, namespace=options.namespace, runs=self._runs)
        self._jobs: dict[str, _Known] = {}

    async def run(self) -> None:
        """Watch the cluster until cancelled; replicas go on after that."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._nodes.run())
                tasks.create_task(self._lanes.run())
                tasks.create_task(self._farewell.run())
                tasks.create_task(self._tick())
                tasks.create_task(self._sweep())
        finally:
            await self._lanes.aclose()
            await self._logs.aclose()
            await self._claims.aclose()

    async def take(self, lane: int) -> None:
        """Look after the jobs of a lane; returns once every pod of theirs is known."""
        await self._nodes.synced()
        await self._lanes.take(lane)

    async def give_up(self, lane: int) -> None:
        """Look after the jobs of a lane no more."""
        await self._lanes.give_up(lane)
        self._jobs = {job_id: known for job_id, known in self._jobs.items() if lane_of(job_id) != lane}

    def visit(self, job_id: str) -> AbstractAsyncContextManager[None]:
        """Know the replicas of a job while it is entered; those of other lanes are watched for it."""
        return self._lanes.visit(job_id)

    def know(self, job_id: str, job: Job) -> None:
        """What a job is; said before anything is asked for it."""
        if job_id not in self._jobs:
            self._jobs[job_id] = _Known(job=job)

    def nodes(self) -> Sequence[Node]:
        """The nodes of the pool, with what others use of each."""
        return self._nodes.nodes()

    def node_changes(self) -> AsyncIterator[None]:
        """Whenever ``nodes`` has changed, and once at the beginning."""
        return self._nodes.changes()

    def jobs(self) -> Collection[str]:
        """The ids of the jobs of which anything is there, whether or not it ever ran."""
        return {*self._runs.job_ids(), *self._lanes.anchors()}

    async def hold_build(self, job_id: str, build: str) -> None:
        """Images are kept by whoever keeps images: there is nothing to hold."""

    def observed(self) -> Sequence[Observation]:
        """Everything that is known."""
        return self._runs.observed()

    def observed_of(self, job_id: str) -> Sequence[Observation]:
        """The same for one job."""
        return self._runs.observed_of(job_id)

    def changes(self) -> AsyncIterator[str]:
        """The ids of jobs as they change."""
        return self._runs.listen()

    async def addresses(
        self, job_id: str, replicas: Sequence[tuple[str, int]], *, job: str, namespace: str
    ) -> Mapping[tuple[str, int], str]:
        """Names of services, the same for the job's whole life."""
        del job, namespace
        every = service_addresses(self._jobs[job_id].job, cluster_domain=self._options.cluster_domain)
        return {key: every[key] for key in replicas}

    async def start(self, launch: Launch) -> Observation:
        """Have the pod of a run; what stands now. What no pod can be made of has EXITED, what the cluster does not take is REJECTED."""
        replica = launch.replica
        seen = self._runs.observation(replica)
        if seen is not None:
            return seen
        known = self._jobs[replica.job_id]
        if why := why_not(launch) or known.refusal:
            return self._refuse(replica, ReplicaState.EXITED, why)
        if self._runs.is_in_the_way(replica):
            # That it has gone is an event, which has the job looked at.
            known.late.add(replica)
            return self._not_yet(replica)
        start = (replica.attempt, launch.generation, replica.restart)
        known.starting[start] += 1
        try:
            await self._start(launch, known, start)
        except InTheWay:
            known.late.add(replica)
            self._look_soon(replica.job_id)
        except _GangRefused:
            return self._refuse(replica, ReplicaState.REJECTED, f"not started, {_ANOTHER}")
        except (Refused, Taken, NotFound, _NodeTaken) as refusal:
            known.refused.add(start)
            is_passing = isinstance(refusal, Taken | _NodeTaken) or (
                isinstance(refusal, Refused) and is_for_later(refusal)
            )
            state = ReplicaState.REJECTED if is_passing else ReplicaState.EXITED
            return self._refuse(replica, state, str(refusal))
        finally:
            known.starting[start] -= 1
            if not known.starting[start] and start in known.refused:
                await self._take_back(launch, known)
        return self._runs.observation(replica) or self._not_yet(replica)

    async def stop(self, replica: ReplicaId, *, grace_s: float) -> None:
        """Ask for the end of a run's pod; one that has none is REMOVED."""
        self._runs.ask(replica)
        pod = self._runs.pod(replica)
        if pod is not None:
            self._logs.capture(replica, pod)
            # Within 0 s the API server would not ask the node, and say that it is over while it still runs.
            await self._writer.delete_pod(pod.metadata, grace_s=max(int(grace_s), _LEAST_GRACE_S))
        elif self._runs.observation(replica) is None:
            words = "stopped before it ran"
            self._runs.settle(
                Observation(replica=replica, state=ReplicaState.REMOVED, at=self._clock(), reason=words)
            )

    def recorded(self, job_id: str, replicas: Collection[ReplicaId]) -> None:
        """How these ended is on the bus: their pods may go, once their logs are kept."""
        for replica in replicas:
            self._farewell.bid(replica)

    async def clean(self, job_id: str) -> None:
        """Remove the pods and services of a job whose replicas have all ended; what they wrote stays readable."""
        namespaces = {pod.metadata.namespace for pod in self._runs.pods_of(job_id)}
        await self._farewell.done(job_id)
        for namespace in namespaces:
            await self._writer.remove_all(job_id, namespace)

    async def write_members(self, job_id: str, content: bytes) -> str:
        """Have the job's config map say who its members are, or each of its pods; the path at which replicas find it."""
        known = self._jobs[job_id]
        known.members = content
        # One that has a config map keeps it, whoever wrote it.
        if known.uid or needs_config(known.job) or self._lanes.anchor(job_id) is not None:
            await self._write(job_id)
        return MEMBERS_PATH

    async def write_config(self, job_id: str, files: Mapping[str, ConfigFile]) -> None:
        """Have the job's config map hold these files."""
        self._jobs[job_id].files = dict(files)
        await self._write(job_id)

    def site(self, job_id: str, addresses: Addresses) -> Site:
        """Where the job's files are in each of its pods; its replicas meet on the pods' network."""
        del job_id
        return Site(
            addresses=addresses,
            members_path=MEMBERS_PATH,
            config_folder=FILES_FOLDER,
            remote_shell=RemoteShell(script=REMOTE_SHELL),
        )

    def logs(
        self, job_id: str, replicas: Sequence[ReplicaId], *, follow: bool, tail: int | None
    ) -> AsyncIterator[LogChunk]:
        """What the replicas of one job wrote; no replicas means all that are known."""
        chosen = replicas or sorted(seen.replica for seen in self._runs.observed_of(job_id))
        wanted = [replica for replica in chosen if replica.job_id == job_id]
        return self._logs.read(wanted, follow=follow, tail=tail)

    async def progress(self) -> Sequence[ProgressSeen]:
        """What the programs of jobs whose size may change have said since the last time."""
        return await self._progress.read({job_id: known.job for job_id, known in self._jobs.items()})

    async def forget(self, job_id: str) -> None:
        """Remove everything of a job whose replicas have all ended. The config map goes last: it is how a job is found again."""
        anchor = self._lanes.anchor(job_id)
        known = self._jobs.get(job_id)
        namespaces = {pod.metadata.namespace for pod in self._runs.pods_of(job_id)}
        namespaces |= {anchor.metadata.namespace} if anchor else set()
        namespaces |= {known.job.namespace} if known and known.uid else set()
        for seen in self._runs.observed_of(job_id):
            self._farewell.bid(seen.replica)
        await self._farewell.done(job_id)
        for namespace in namespaces:
            await self._writer.remove_all(job_id, namespace)
        if anchor is not None:
            await self._writer.remove_config(anchor.metadata)
        elif known is not None and known.uid:
            await self._writer.remove_config(
                Metadata(name=config_name(known.job.name), namespace=known.job.namespace, uid=known.uid)
            )
        await self._archive.forget(job_id)
        self._runs.forget(job_id)
        self._lanes.forget(job_id)
        self._jobs.pop(job_id, None)

    async def _start(self, launch: Launch, known: _Known, start: Start) -> None:
        def none_is_refused() -> None:
            if start in known.refused:
                raise _GangRefused

        none_is_refused()
        replica, job = launch.replica, known.job
        self._check_node(launch, known)
        # At each start, since somebody may have deleted it meanwhile; that it is there is then the answer.
        if is_addressed(job) and replica not in known.services:
            service = headless_service(
                replica.job_id,
                job,
                replica.role,
                replica.index,
                pool=self._options.pool,
                owner_uid=known.uid,
            )
            await self._writer.service(service)
            known.services.add(replica)
        options = PodOptions(
            pool=self._options.pool,
            gpu_resource=self._nodes.gpu_resource(),
            node_lost_s=self._options.node_lost_s,
        )
        pod_template = launch.template.pod
        await self._claims.select(pod_template, namespace=job.namespace, node=launch.node)
        content = make_pod(
            launch,
            job,
            owner=self._owner_of(launch, known),
            files=known.files,
            options=options,
            members=None if known.uid else (known.members or b"").decode(),
        )
        grace_s = launch.template.grace_s
        pod = await self._writer.pod(content, replica, grace_s=grace_s, unless=none_is_refused)
        self._claims.follow(pod_template, name=launch.name, namespace=job.namespace, node=launch.node)
        self._lanes.put(replica.job_id, pod)

    def _check_node(self, launch: Launch, known: _Known) -> None:
        """Raise where others have taken the node's room meanwhile: a kubelet would refuse the pod, and not every node has one that does.

        Whoever starts at once is placed on what was known a moment ago, and need not be looked at again.
        """
        replica = launch.replica
        if replica not in known.late and not replica.restart:
            return
        ours = total(requests_of(pod.spec) for pod in self._runs.on_node(launch.node))
        if self._nodes.is_overfull(launch.node, ours + launch.template.requests):
            raise _NodeTaken(f"others have taken the room on {launch.node} since it was placed there")

    async def _take_back(self, launch: Launch, known: _Known) -> None:
        """A gang starts as a whole: where a member is refused, those that were created go as well. A replica's own restart is no gang's."""
        replica = launch.replica
        if replica.restart:
            return
        created = [pod for pod in self._runs.pods_of(replica.job_id) if _starts_with(pod, launch)]
        for pod in created:
            if (peer := replica_of(pod.metadata)) is not None:
                self._runs.condemn(peer, f"taken back, {_ANOTHER}")
        if created:
            try:
                await self._writer.delete_start(replica, known.job.namespace, generation=launch.generation)
            except ApiError as error:
                log.warning("a gang that was refused is not taken back yet: %s", error)

    def _owner_of(self, launch: Launch, known: _Known) -> dict[str, Any] | None:
        if known.uid:
            return owner(known.job.name, known.uid)
        uid = self._nodes.uid(launch.node)
        return node_as_owner(launch.node, uid) if uid else None

    async def _write(self, job_id: str) -> None:
        known = self._jobs[job_id]
        try:
            uid = await self._writer.config(
                job_id, known.job, uid=known.uid, members=known.members, files=known.files
            )
        except (Refused, Taken, NotFound) as refusal:
            known.refusal = str(refusal)
            log.warning("a job's config map is refused: %s", refusal, extra=fields(job=known.job.name))
            return
        if uid != known.uid:
            # What belonged to another config map goes with that one.
            known.services.clear()
        known.uid, known.refusal = uid, ""

    def _refuse(self, replica: ReplicaId, state: ReplicaState, why: str) -> Observation:
        code = CANNOT_RUN if state is ReplicaState.EXITED else None
        return self._runs.settle(
            Observation(replica=replica, state=state, at=self._clock(), exit_code=code, reason=why)
        )

    def _not_yet(self, replica: ReplicaId) -> Observation:
        return Observation(replica=replica, state=ReplicaState.PLACED, at=self._clock())

    def _look_soon(self, job_id: str) -> None:
        asyncio.get_running_loop().call_later(_SOON_S, self._runs.tell, job_id)

    def _node_moved(self, node: str) -> None:
        self._runs.look_at_node(node)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._runs.look_again()
            for replica, pod in self._runs.leaving():
                self._logs.capture(replica, pod)

    async def _sweep(self) -> None:
        """End the pods that are to go and have not been asked to: their deciding container has ended, they came late, they do not get to
        run, or they were asked in vain. And say that those are over of which nobody else will.
        """
        while True:
            await asyncio.sleep(_TICK_S)
            company = self._runs.half_over()
            for replica, _ in company:
                self._runs.ask(replica)
            deletions = [self._end(pod, grace_s=_LEAST_GRACE_S) for _, pod in company]
            deletions += [self._end(pod, grace_s=None) for _, pod in self._runs.unwanted()]
            endings = [self._close(pod) for pod in self._runs.orphaned()]
            await asyncio.gather(*deletions, *endings)

    async def _close(self, pod: Pod) -> None:
        try:
            await self._writer.close(pod.metadata)
        except ApiError as error:
            log.warning(
                "a pod deleted by force is not over yet: %s", error, extra=fields(pod=pod.metadata.name)
            )

    async def _end(self, pod: Pod, *, grace_s: int | None) -> None:
        try:
            await self._writer.delete_pod(pod.metadata, grace_s=grace_s)
        except ApiError as error:
            log.warning("a pod does not end yet: %s", error, extra=fields(pod=pod.metadata.name))


def _starts_with(pod: Pod, launch: Launch) -> bool:
    peer, replica = replica_of(pod.metadata), launch.replica
    return (
        peer is not None
        and (peer.attempt, peer.restart) == (replica.attempt, replica.restart)
        and pod.metadata.labels.get(GENERATION) == str(launch.generation)
    )
