"""The way into pods."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import quote

from muster_core.models import ReplicaState
from muster_runtimes.kubernetes import execution, forwarding
from muster_runtimes.kubernetes.api import Api
from muster_runtimes.kubernetes.errors import ApiError, NotFound
from muster_runtimes.kubernetes.labels import MAIN_CONTAINER
from muster_runtimes.kubernetes.objects import Pod
from muster_runtimes.kubernetes.runs import Runs
from muster_runtimes.kubernetes.writer import collection
from muster_runtimes.ports import ReplicaId
from muster_runtimes.reach import CannotReach, Command

_FORBIDDEN = 403
_PASSING = frozenset({0, 429, 502, 503, 504})


class PodReach:
    """Reaches the pods of ``runs``."""

    def __init__(self, *, api: Api, runs: Runs) -> None:
        self._api = api
        self._runs = runs

    @asynccontextmanager
    async def execute(self, replica: ReplicaId, command: Command) -> AsyncGenerator[execution.PodExecution]:
        """See ``Reach``."""
        pod = self._running(replica)
        container = pod.metadata.annotations.get(MAIN_CONTAINER, "")
        opened = self._api.socket(
            _path(pod, "exec"),
            query=execution.query_of(command, container),
            protocols=execution.PROTOCOLS,
        )
        try:
            async with opened as socket:
                session = execution.PodExecution(
                    socket, has_input=command.has_input, in_terminal=command.terminal is not None
                )
                if command.terminal is not None:
                    await session.resize(command.terminal)
                yield session
        except ApiError as error:
            raise _refusal(error, replica, "pods/exec") from error

    @asynccontextmanager
    async def connect(self, replica: ReplicaId, port: int) -> AsyncGenerator[forwarding.PodConnection]:
        """See ``Reach``."""
        pod = self._running(replica)
        opened = self._api.socket(
            _path(pod, "portforward"), query=[("ports", str(port))], protocols=forwarding.PROTOCOLS
        )
        try:
            async with opened as socket:
                yield forwarding.PodConnection(socket)
        except ApiError as error:
            raise _refusal(error, replica, "pods/portforward") from error

    def _running(self, replica: ReplicaId) -> Pod:
        seen = self._runs.observation(replica)
        pod = self._runs.pod(replica)
        if seen is None or pod is None or seen.state is not ReplicaState.RUNNING:
            raise CannotReach(f"{replica.role}-{replica.index} does not run")
        return pod


def _path(pod: Pod, subresource: str) -> str:
    metadata = pod.metadata
    return f"{collection(metadata.namespace, 'pods')}/{quote(metadata.name)}/{subresource}"


def _refusal(error: ApiError, replica: ReplicaId, right: str) -> CannotReach:
    name = f"{replica.role}-{replica.index}"
    if error.status == _FORBIDDEN:
        return CannotReach(f"pod-launcher may not do that in the cluster ({right}): {error}")
    if isinstance(error, NotFound):
        return CannotReach(f"{name} does not run any more: {error}")
    return CannotReach(f"{name} cannot be reached: {error}", is_away=error.status in _PASSING)
