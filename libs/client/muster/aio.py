"""The client for asyncio: the twin of ``muster.client``, method for method."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Self, TypeVar

import grpc
from grpc import aio

from muster._address import channel_options, resolve_address, user_metadata
from muster._aio_live import AsyncConnection, AsyncExecution, Call, begin_connection, begin_execution
from muster._cursors import JobCursor, JobsCursor, LogCursor
from muster._failures import completed, error_of, is_passing
from muster._messages import Size, exec_start, forward_start
from muster._requests import Requests
from muster._retry import DEFAULT_PATIENCE_S, Attempts
from muster._sources import DocumentSource, Source
from muster.errors import InvalidDocument, MusterError
from muster_rpc.streams import has_begun
from muster_rpc.v1 import (
    cluster_service_pb2,
    cluster_service_pb2_grpc,
    defaults_service_pb2,
    defaults_service_pb2_grpc,
    explanation_pb2,
    job_pb2,
    job_service_pb2,
    job_service_pb2_grpc,
    queue_service_pb2,
    queue_service_pb2_grpc,
)

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class AsyncClient:
    """A connection to Muster. Close it, or use it in an ``async with`` block. It belongs to the event loop that made it.

    ``address`` is ``host:port`` (``MUSTER_SERVER``, else 127.0.0.1:8700). ``namespace`` is where names are looked up and where documents go
    that name none. While Muster is away every call is repeated, with the same request id, for ``patience_s`` seconds, and
    then raises ``Unavailable``. A job is named by its id or by its name: then the newest job of that name is meant.

    Answers are the messages of the API (``muster_rpc.v1``). All errors are ``MusterError``.
    """

    def __init__(
        self, address: str | None = None, *, namespace: str = "", patience_s: float = DEFAULT_PATIENCE_S
    ) -> None:
        self.address = resolve_address(address)
        self._patience_s = patience_s
        self._requests = Requests(namespace)
        self._user = user_metadata()
        self._channel = aio.insecure_channel(self.address, channel_options(self.address))
        self._jobs = job_service_pb2_grpc.JobServiceStub(self._channel)
        self._cluster = cluster_service_pb2_grpc.ClusterServiceStub(self._channel)
        self._defaults = defaults_service_pb2_grpc.DefaultsServiceStub(self._channel)
        self._queues = queue_service_pb2_grpc.QueueServiceStub(self._channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; open streams end."""
        await self._channel.close()

    def saw(self, sequence: int) -> None:
        """Answer no question from a state older than ``sequence``, which another client was told of."""
        self._requests.saw(sequence)

    async def submit(
        self,
        source: Source,
        *,
        source_name: str = "",
        request_id: str | None = None,
        namespace: str | None = None,
        validation_wait_s: float | None = None,
    ) -> Sequence[job_service_pb2.SubmittedJob]:
        """Submit a document (text, a ``Path``, a mapping) or a typed spec; one answer for each part of a document.

        Returns when the submission is durable. The same ``request_id`` submits once; one is drawn where none is given. Waits up to
        ``validation_wait_s`` (2 s unless said) for the validation, so that a bad document raises ``InvalidDocument`` with every problem.
        """
        request = self._requests.submit(
            source,
            source_name=source_name,
            request_id=request_id,
            namespace=namespace,
            validation_wait_s=validation_wait_s,
        )
        try:
            response = await self._call(self._jobs.SubmitJob, request)
        except InvalidDocument as refused:
            if refused.total == len(refused.problems):
                raise
            answer = await self.validate(source, source_name=source_name, namespace=namespace)
            raise completed(refused, answer) from None
        for job in response.jobs:
            self._requests.saw(job.sequence)
        return response.jobs

    async def validate(
        self, source: Source, *, source_name: str = "", namespace: str | None = None
    ) -> job_service_pb2.ValidateJobResponse:
        """What a document or spec means, or all that is wrong with it: ``jobs`` is empty when ``problems`` has an error."""
        request = self._requests.validate(source, source_name=source_name, namespace=namespace)
        return await self._call(self._jobs.ValidateJob, request)

    async def get(self, job: str, *, namespace: str | None = None) -> job_pb2.Job:
        """One job as it stands now, with its history."""
        return (await self._call(self._jobs.GetJob, self._requests.get(job, namespace))).job

    async def list(
        self, *, namespace: str | None = None, queue: str = "", phases: Iterable[str] = ()
    ) -> AsyncIterator[job_pb2.Job]:
        """Jobs without their history, newest first; ``phases`` are names such as ``Running``."""
        request = self._requests.list(namespace=namespace, queue=queue, phases=phases)
        while True:
            page = await self._call(self._jobs.ListJobs, request)
            for job in page.jobs:
                yield job
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def watch(
        self, job: str, *, namespace: str | None = None, after_sequence: int = 0
    ) -> AsyncIterator[job_pb2.Job]:
        """One job now and at every change, until it has ended and nothing of it runs.

        A stream that breaks is taken up again where it was; no state is told twice.
        """
        cursor = JobCursor(self._requests.ref(job, namespace), after_sequence)
        async for response in self._stream(lambda: self._jobs.WatchJob(cursor.request())):
            if cursor.admits(response):
                yield response.job

    async def wait(self, job: str, *, namespace: str | None = None) -> job_pb2.Job:
        """Wait until a job has ended and nothing of it runs; returns it as it ended."""
        last = None
        async for last in self.watch(job, namespace=namespace):  # noqa: B007 (the last one is wanted)
            pass
        if last is None:
            raise MusterError(f"the watch of {job} ended without an answer")
        return last

    async def watch_all(
        self, *, namespace: str | None = None, after_sequence: int = 0
    ) -> AsyncIterator[job_service_pb2.WatchJobsResponse]:
        """All jobs of a namespace, without history: everything that there is, then every change; does not end by itself."""
        cursor = JobsCursor(self._requests.watch_all(namespace), after_sequence)
        async for response in self._stream(lambda: self._jobs.WatchJobs(cursor.request())):
            if cursor.admits(response):
                yield response

    async def logs(
        self,
        job: str,
        *,
        replicas: Iterable[str] = (),
        follow: bool = False,
        tail: int = 0,
        namespace: str | None = None,
    ) -> AsyncIterator[job_service_pb2.StreamLogsResponse]:
        """What replicas wrote, in chunks that may end within a line.

        ``replicas`` are ``worker-0`` or whole roles (``worker``), all when empty; ``tail`` bounds the lines of each, 0 is all.
        With ``follow`` it goes on until they end. A broken stream is taken up again where it was, but not with ``tail``: nobody
        knows where that was.
        """
        request = self._requests.logs(job, namespace=namespace, replicas=replicas, follow=follow, tail=tail)
        cursor = LogCursor()

        def begin() -> aio.UnaryStreamCall[
            job_service_pb2.StreamLogsRequest, job_service_pb2.StreamLogsResponse
        ]:
            cursor.restart()
            return self._jobs.StreamLogs(request)

        async for chunk in self._stream(begin, resumable=not tail):
            if (news := cursor.news(chunk)) is not None:
                yield news

    async def exec(
        self,
        job: str,
        command: Sequence[str],
        *,
        replica: str = "",
        stdin: bool = False,
        terminal: Size | None = None,
        namespace: str | None = None,
    ) -> AsyncExecution:
        """Run a command in a replica that runs; returns when it runs. No shell reads the words. Nothing is repeated.

        ``replica`` is ``worker-0`` or a role, or empty: then the one that leads the job, else the first that runs. With ``stdin`` it has an
        input, else that is at its end. In a ``terminal`` what it writes to stderr comes as stdout. Leaving the ``async
        with`` block ends the command.
        """
        start = exec_start(
            self._requests.ref(job, namespace), command, replica=replica, stdin=stdin, terminal=terminal
        )
        call = Call(self._jobs.ExecJob(metadata=self._user), address=self.address)
        return await begin_execution(call, start)

    async def connect(
        self, job: str, port: int = 0, *, replica: str = "", namespace: str | None = None
    ) -> AsyncConnection:
        """Connect to a port of a replica that runs, by default the first that it declares; ``replica`` as for ``exec``."""
        start = forward_start(self._requests.ref(job, namespace), port, replica=replica, probe=False)
        call = Call(self._jobs.ForwardPort(metadata=self._user), address=self.address)
        return await begin_connection(call, start)

    async def port(
        self, job: str, port: int = 0, *, replica: str = "", namespace: str | None = None
    ) -> job_service_pb2.ForwardPortOpened:
        """Whereto ``connect`` would connect. Raises ``Refused`` and ``NotFound`` as that would."""
        start = forward_start(self._requests.ref(job, namespace), port, replica=replica, probe=True)
        opened = None
        async for answer in self._stream(lambda: self._jobs.ForwardPort(iter([start]), metadata=self._user)):
            opened = answer.opened
        if opened is None:
            raise MusterError("nobody said where the port is")
        return opened

    async def cancel(
        self, job: str, *, message: str = "", namespace: str | None = None, request_id: str | None = None
    ) -> job_service_pb2.CancelJobResponse:
        """End a job; ``message`` is kept in its history."""
        request = self._requests.cancel(job, namespace=namespace, message=message, request_id=request_id)
        response = await self._call(self._jobs.CancelJob, request)
        self._requests.saw(response.sequence)
        return response

    async def delete(
        self, job: str, *, namespace: str | None = None, request_id: str | None = None
    ) -> job_service_pb2.DeleteJobResponse:
        """End a job and remove all that it owns, its record and logs included."""
        request = self._requests.delete(job, namespace=namespace, request_id=request_id)
        response = await self._call(self._jobs.DeleteJob, request)
        self._requests.saw(response.sequence)
        return response

    async def suspend(
        self, job: str, *, namespace: str | None = None, request_id: str | None = None
    ) -> job_service_pb2.SuspendJobResponse:
        """Take a job off its nodes and hold it until it is resumed; it keeps its place in the queue. One that is held stays so."""
        request = self._requests.suspend(job, namespace=namespace, request_id=request_id)
        response = await self._call(self._jobs.SuspendJob, request)
        self._requests.saw(response.sequence)
        return response

    async def resume(
        self, job: str, *, namespace: str | None = None, request_id: str | None = None
    ) -> job_service_pb2.ResumeJobResponse:
        """Let a suspended job wait for its room again; one that is not suspended goes on as it did."""
        request = self._requests.resume(job, namespace=namespace, request_id=request_id)
        response = await self._call(self._jobs.ResumeJob, request)
        self._requests.saw(response.sequence)
        return response

    async def restart(
        self,
        job: str,
        *,
        replica: str = "",
        namespace: str | None = None,
        request_id: str | None = None,
    ) -> job_service_pb2.RestartJobResponse:
        """End what runs of a job and start it again: the whole gang, or one ``replica`` (``worker-3``). No failure is counted."""
        request = self._requests.restart(job, replica=replica, namespace=namespace, request_id=request_id)
        response = await self._call(self._jobs.RestartJob, request)
        self._requests.saw(response.sequence)
        return response

    async def scale(
        self,
        job: str,
        replicas: int,
        *,
        role: str = "worker",
        namespace: str | None = None,
        request_id: str | None = None,
    ) -> job_service_pb2.ScaleJobResponse:
        """Grow or shrink a role by hand, within its bounds."""
        request = self._requests.scale(
            job, role=role, replicas=replicas, namespace=namespace, request_id=request_id
        )
        response = await self._call(self._jobs.ScaleJob, request)
        self._requests.saw(response.sequence)
        return response

    async def explain(self, job: str, *, namespace: str | None = None) -> explanation_pb2.Explanation:
        """Why a job stands where it stands, and what would change it."""
        return (await self._call(self._jobs.ExplainJob, self._requests.explain(job, namespace))).explanation

    async def nodes(self) -> AsyncIterator[cluster_service_pb2.Node]:
        """Every node with what stands on it, by name."""
        request = self._requests.nodes()
        while True:
            page = await self._call(self._cluster.ListNodes, request)
            for node in page.nodes:
                yield node
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def node(self, name: str) -> cluster_service_pb2.Node:
        """One node."""
        request = cluster_service_pb2.GetNodeRequest(name=name)
        return (await self._call(self._cluster.GetNode, request)).node

    async def cluster(self) -> cluster_service_pb2.GetClusterResponse:
        """What this Muster is and where its traces are."""
        return await self._call(self._cluster.GetCluster, cluster_service_pb2.GetClusterRequest())

    async def get_defaults(self, version: int = 0) -> defaults_service_pb2.Defaults:
        """The platform's defaults: those in force, or of an earlier version."""
        request = defaults_service_pb2.GetDefaultsRequest(version=version)
        return (await self._call(self._defaults.GetDefaults, request)).defaults

    async def apply_defaults(
        self,
        source: DocumentSource,
        *,
        source_name: str = "",
        dry_run: bool = False,
        expected_version: int | None = None,
    ) -> defaults_service_pb2.ApplyDefaultsResponse:
        """Replace the platform's defaults as a whole, by the native form or a ``polyaxon_config.yml``.

        The same defaults again are no new version. With ``expected_version`` only over that one, else ``Refused``; with ``dry_run`` it is
        only said what would be.
        """
        request = self._requests.apply_defaults(
            source, source_name=source_name, dry_run=dry_run, expected_version=expected_version
        )
        return await self._call(self._defaults.ApplyDefaults, request)

    async def queues(self) -> AsyncIterator[queue_service_pb2.Queue]:
        """Every queue as applied and as it is, by name."""
        request = self._requests.queues()
        while True:
            page = await self._call(self._queues.ListQueues, request)
            for queue in page.queues:
                yield queue
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def queue(self, name: str) -> queue_service_pb2.GetQueueResponse:
        """One queue, and which version of all of them is in force."""
        return await self._call(self._queues.GetQueue, queue_service_pb2.GetQueueRequest(name=name))

    async def apply_queues(
        self,
        source: DocumentSource,
        *,
        source_name: str = "",
        prune: bool = False,
        dry_run: bool = False,
        expected_version: int | None = None,
        request_id: str | None = None,
    ) -> queue_service_pb2.ApplyQueuesResponse:
        """Create or replace queues, all or none, by documents of ``kind: Queue``; with ``prune`` delete all others.

        With ``expected_version`` only over that one, else ``Refused``; with ``dry_run`` it is only said what would be. Raises
        ``InvalidDocument`` with all that is wrong with the queues.
        """
        request = self._requests.apply_queues(
            source,
            source_name=source_name,
            prune=prune,
            dry_run=dry_run,
            expected_version=expected_version,
            request_id=request_id,
        )
        return await self._call(self._queues.ApplyQueues, request)

    async def delete_queue(
        self, name: str, *, expected_version: int | None = None, request_id: str | None = None
    ) -> queue_service_pb2.DeleteQueueResponse:
        """Delete a queue. Raises ``Refused`` while jobs wait or run in it, or queues are below it."""
        request = self._requests.delete_queue(name, expected_version=expected_version, request_id=request_id)
        return await self._call(self._queues.DeleteQueue, request)

    async def _call(
        self, method: aio.UnaryUnaryMultiCallable[RequestT, ResponseT], request: RequestT
    ) -> ResponseT:
        attempts = Attempts(self._patience_s)
        while True:
            try:
                return await method(request, timeout=attempts.remaining_s(), metadata=self._user)
            except grpc.RpcError as error:
                await self._pause_or_raise(attempts, error, resumable=True)

    async def _stream(
        self,
        begin: Callable[
            [], aio.UnaryStreamCall[RequestT, ResponseT] | aio.StreamStreamCall[RequestT, ResponseT]
        ],
        *,
        resumable: bool = True,
    ) -> AsyncIterator[ResponseT]:
        attempts = Attempts(self._patience_s)
        while True:
            stream = begin()
            begun = False
            try:
                async for response in stream:
                    begun = True
                    yield response
                return
            except grpc.RpcError as error:
                if begun or has_begun(await stream.initial_metadata()):
                    attempts.reset()
                await self._pause_or_raise(attempts, error, resumable=resumable)
            finally:
                stream.cancel()

    async def _pause_or_raise(self, attempts: Attempts, error: grpc.RpcError, *, resumable: bool) -> None:
        pause = attempts.pause_s() if resumable and is_passing(error) else None
        if pause is None:
            raise error_of(error, address=self.address) from None
        await asyncio.sleep(pause)
