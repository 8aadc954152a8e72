"""The synchronous client, generated from ``aio.py`` by ``libs/client/generate.py``; do not edit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Self, TypeVar

import grpc

from muster._connection import (
    DEFAULT_RETRY_TIMEOUT_S,
    Retries,
    can_resume,
    channel_options,
    completed,
    error_of,
    is_transient,
    resolve_address,
    user_metadata,
)
from muster._messages import (
    EXEC_END,
    FORWARD_END,
    Output,
    Size,
    exec_inputs,
    exec_size,
    exec_start,
    failure_of,
    forward_data,
    forward_start,
    output_of,
    replica_label,
)
from muster._requests import DocumentSource, RequestBuilder, Source
from muster._streams import (
    Call,
    HasNextPageToken,
    HasPageToken,
    HasRevision,
    JobCursor,
    JobsCursor,
    LogCursor,
    Responses,
)
from muster.errors import ConnectionLost, InvalidDocument, MusterError
from muster_rpc.calls import has_begun
from muster_rpc.v1 import (
    cluster_service_pb2,
    cluster_service_pb2_grpc,
    defaults_service_pb2,
    defaults_service_pb2_grpc,
    explanation_pb2,
    job_pb2,
    job_service_pb2,
    job_service_pb2_grpc,
    orphan_service_pb2,
    orphan_service_pb2_grpc,
    queue_service_pb2,
    queue_service_pb2_grpc,
)

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")
CommandResponseT = TypeVar("CommandResponseT", bound=HasRevision)
PageRequestT = TypeVar("PageRequestT", bound=HasPageToken)
PageT = TypeVar("PageT", bound=HasNextPageToken)


class Execution:
    """A command that runs in a replica. Use it in a ``with`` block: leaving it ends the command.

    Iterate over its output; afterwards ``exit_code`` is set. One thread may read while another writes.
    """

    def __init__(
        self, call: Call[job_service_pb2.ExecJobRequest, job_service_pb2.ExecJobResponse], replica: str
    ) -> None:
        self._call = call
        self.replica = replica
        """The replica, as ROLE-INDEX."""
        self.exit_code: int | None = None
        """The exit code: 128 plus the number of a signal that ended it; 127 or 126 if it could not be run."""
        self.message = ""
        """Why it could not be run or was ended; empty if it ended by itself."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Output]:
        """Yield its output as it arrives. Raises ``ConnectionLost``."""
        while (answer := self._call.receive()) is not None:
            if answer.HasField("ended"):
                self.exit_code, self.message = answer.ended.exit_code, answer.ended.message
                return
            if (output := output_of(answer)) is not None:
                yield output
        raise ConnectionLost("the connection was lost before the command ended")

    def write(self, data: bytes) -> None:
        """Send input; returns when it is on its way."""
        self._call.send(exec_inputs(data))

    def end_input(self) -> None:
        """Close its input."""
        self._call.send([EXEC_END])

    def resize(self, size: Size) -> None:
        """Set the size of its terminal."""
        self._call.send([exec_size(size)])

    def close(self) -> None:
        """End the command, unless it has ended."""
        self._call.close()


class Connection:
    """A connection to a port of a replica. Use it in a ``with`` block. One thread may read while another writes."""

    def __init__(
        self,
        call: Call[job_service_pb2.ForwardPortRequest, job_service_pb2.ForwardPortResponse],
        replica: str,
    ) -> None:
        self._call = call
        self.replica = replica
        """The replica, as ROLE-INDEX."""
        self._is_over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self) -> bytes:
        """Return the next data; empty at the end. Raises ``ConnectionLost`` and ``Rejected``."""
        while not self._is_over:
            answer = self._call.receive()
            if answer is not None and answer.HasField("failed"):
                raise failure_of(answer.failed)
            if answer is None or answer.end:
                self._is_over = True
            elif answer.data:
                return answer.data
        return b""

    def write(self, data: bytes) -> None:
        """Send data; returns when it is on its way."""
        self._call.send(forward_data(data))

    def end(self) -> None:
        """Close the sending direction; receiving continues."""
        self._call.send([FORWARD_END])

    def close(self) -> None:
        """Close the connection."""
        self._call.close()


class Client:
    """A connection to Muster. Close it, or use it in a ``with`` block. Threads may share it.

    ``address`` is ``host:port`` (``MUSTER_SERVER``, else 127.0.0.1:8700). ``namespace`` is the default namespace of names
    and documents. While the server is unavailable every call is retried with the same request id for ``retry_timeout_s``
    seconds, then raises ``Unavailable``. A job is given by id or by name, which means the newest job of that name.

    Answers are API messages (``muster_rpc.v1``). All errors are ``MusterError``.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        namespace: str = "",
        retry_timeout_s: float = DEFAULT_RETRY_TIMEOUT_S,
    ) -> None:
        self.address = resolve_address(address)
        self._retry_timeout_s = retry_timeout_s
        self._requests = RequestBuilder(namespace)
        self._user = user_metadata()
        self._channel = grpc.insecure_channel(self.address, channel_options(self.address))
        self._jobs = job_service_pb2_grpc.JobServiceStub(self._channel)
        self._cluster = cluster_service_pb2_grpc.ClusterServiceStub(self._channel)
        self._defaults = defaults_service_pb2_grpc.DefaultsServiceStub(self._channel)
        self._queues = queue_service_pb2_grpc.QueueServiceStub(self._channel)
        self._orphans = orphan_service_pb2_grpc.OrphanServiceStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; open streams end."""
        self._channel.close()

    def saw(self, revision: int) -> None:
        """Require answers no older than ``revision``, which another client received."""
        self._requests.saw(revision)

    def submit(
        self,
        source: Source,
        *,
        source_name: str = "",
        request_id: str | None = None,
        namespace: str | None = None,
        validation_wait_s: float | None = None,
    ) -> Sequence[job_service_pb2.SubmittedJob]:
        """Submit a document (text, a ``Path``, a mapping) or a typed spec; returns one answer for each job.

        Returns when the submission is durable. The same ``request_id`` submits once; by default one is generated. Waits
        up to ``validation_wait_s`` (default 2 s) for the validation, so that a bad document raises ``InvalidDocument``
        with every problem.
        """
        request = self._requests.submit(
            source,
            source_name=source_name,
            request_id=request_id,
            namespace=namespace,
            validation_wait_s=validation_wait_s,
        )
        try:
            response = self._call(self._jobs.SubmitJob, request)
        except InvalidDocument as refused:
            if refused.total == len(refused.problems):
                raise
            answer = self.validate(source, source_name=source_name, namespace=namespace)
            raise completed(refused, answer) from None
        for job in response.jobs:
            self._requests.saw(job.revision)
        return response.jobs

    def validate(
        self, source: Source, *, source_name: str = "", namespace: str | None = None
    ) -> job_service_pb2.ValidateJobResponse:
        """Validate a document or spec: ``jobs`` is empty if ``problems`` contains an error."""
        request = self._requests.validate(source, source_name=source_name, namespace=namespace)
        return self._call(self._jobs.ValidateJob, request)

    def get(self, job: str, *, namespace: str | None = None) -> job_pb2.Job:
        """Return one job with its history."""
        response = self._call(self._jobs.GetJob, self._requests.get(job, namespace))
        return response.job

    def list(
        self, *, namespace: str | None = None, queue: str = "", phases: Iterable[str] = ()
    ) -> Iterator[job_pb2.Job]:
        """Yield jobs without their history, newest first; ``phases`` are names such as ``Running``."""
        request = self._requests.list(namespace=namespace, queue=queue, phases=phases)
        for page in self._pages(self._jobs.ListJobs, request):
            yield from page.jobs

    def watch(
        self, job: str, *, namespace: str | None = None, after_revision: int = 0
    ) -> Iterator[job_pb2.Job]:
        """Yield one job now and at every change, until it has ended and its replicas have stopped.

        A broken stream resumes; no state is repeated.
        """
        cursor = JobCursor(self._requests.ref(job, namespace), after_revision)
        for response in self._stream(lambda: self._jobs.WatchJob(cursor.request())):
            if cursor.admits(response):
                yield response.job

    def wait(self, job: str, *, namespace: str | None = None) -> job_pb2.Job:
        """Wait until a job has ended and its replicas have stopped; returns its final state."""
        last = None
        for last in self.watch(job, namespace=namespace):  # noqa: B007 (the last one is wanted)
            pass
        if last is None:
            raise MusterError(f"the watch of {job} ended without a response")
        return last

    def watch_all(
        self, *, namespace: str | None = None, after_revision: int = 0
    ) -> Iterator[job_service_pb2.WatchJobsResponse]:
        """Yield an event for each job of a namespace, SYNCED once, then one for each change; never ends by itself.

        Jobs have no history. A deleted job has its id only, SYNCED has no job.
        """
        cursor = JobsCursor(self._requests.watch_all(namespace), after_revision)
        for response in self._stream(lambda: self._jobs.WatchJobs(cursor.request())):
            if cursor.admits(response):
                yield response

    def logs(
        self,
        job: str,
        *,
        replicas: Iterable[str] = (),
        follow: bool = False,
        tail: int = 0,
        namespace: str | None = None,
    ) -> Iterator[job_service_pb2.StreamLogsResponse]:
        """Yield the output of replicas in chunks that may end within a line.

        ``replicas`` are ``worker-0`` or whole roles (``worker``), all if empty; ``tail`` bounds the lines of each, 0
        means all. ``follow`` continues until they end. A broken stream resumes, except with ``tail``, where the position
        is unknown.
        """
        request = self._requests.logs(job, namespace=namespace, replicas=replicas, follow=follow, tail=tail)
        cursor = LogCursor()

        def begin() -> Responses[job_service_pb2.StreamLogsResponse]:
            cursor.restart()
            return self._jobs.StreamLogs(request)

        for chunk in self._stream(begin, resumable=not tail):
            if (news := cursor.news(chunk)) is not None:
                yield news

    def exec(
        self,
        job: str,
        command: Sequence[str],
        *,
        replica: str = "",
        stdin: bool = False,
        terminal: Size | None = None,
        namespace: str | None = None,
    ) -> Execution:
        """Run a command in a running replica; returns when it runs. No shell interprets the words. Never retried.

        ``replica`` is ``worker-0`` or a role, or empty: the leading replica, else the first that runs. ``stdin`` opens an
        input. In a ``terminal`` stderr is merged into stdout. Leaving the ``with`` block ends the command.
        """
        start = exec_start(
            self._requests.ref(job, namespace), command, replica=replica, stdin=stdin, terminal=terminal
        )
        call = Call(self._jobs.ExecJob, metadata=self._user, address=self.address)
        call.send([start])
        first = call.receive()
        return Execution(call, replica_label(first.started.replica) if first else "")

    def connect(
        self, job: str, port: int = 0, *, replica: str = "", namespace: str | None = None
    ) -> Connection:
        """Connect to a port of a running replica, by default its first declared port; ``replica`` as for ``exec``."""
        start = forward_start(self._requests.ref(job, namespace), port, replica=replica, probe=False)
        call = Call(self._jobs.ForwardPort, metadata=self._user, address=self.address)
        call.send([start])
        first = call.receive()
        return Connection(call, replica_label(first.opened.replica) if first else "")

    def port(
        self, job: str, port: int = 0, *, replica: str = "", namespace: str | None = None
    ) -> job_service_pb2.ForwardPortOpened:
        """Return where ``connect`` would connect. Raises ``Rejected`` and ``NotFound`` like it."""
        start = forward_start(self._requests.ref(job, namespace), port, replica=replica, probe=True)
        opened = None
        for answer in self._stream(lambda: self._jobs.ForwardPort(iter([start]), metadata=self._user)):
            opened = answer.opened
        if opened is None:
            raise MusterError("the response has no port")
        return opened

    def cancel(
        self, job: str, *, message: str = "", namespace: str | None = None, request_id: str | None = None
    ) -> job_service_pb2.CancelJobResponse:
        """End a job; ``message`` is stored in its history."""
        request = self._requests.cancel(job, namespace=namespace, message=message, request_id=request_id)
        return self._command(self._jobs.CancelJob, request)

    def delete(
        self, job: str, *, namespace: str | None = None, request_id: str | None = None
    ) -> job_service_pb2.DeleteJobResponse:
        """End a job and remove its record and logs."""
        request = self._requests.delete(job, namespace=namespace, request_id=request_id)
        return self._command(self._jobs.DeleteJob, request)

    def suspend(
        self, job: str, *, namespace: str | None = None, request_id: str | None = None
    ) -> job_service_pb2.SuspendJobResponse:
        """Suspend a job until it is resumed; it keeps its queue position. A suspended job stays suspended."""
        request = self._requests.suspend(job, namespace=namespace, request_id=request_id)
        return self._command(self._jobs.SuspendJob, request)

    def resume(
        self, job: str, *, namespace: str | None = None, request_id: str | None = None
    ) -> job_service_pb2.ResumeJobResponse:
        """Resume a suspended job; any other job is unchanged."""
        request = self._requests.resume(job, namespace=namespace, request_id=request_id)
        return self._command(self._jobs.ResumeJob, request)

    def restart(
        self, job: str, *, replica: str = "", namespace: str | None = None, request_id: str | None = None
    ) -> job_service_pb2.RestartJobResponse:
        """Restart the whole gang, or one ``replica`` (``worker-3``). Counts as no failure."""
        request = self._requests.restart(job, replica=replica, namespace=namespace, request_id=request_id)
        return self._command(self._jobs.RestartJob, request)

    def scale(
        self,
        job: str,
        replicas: int,
        *,
        role: str = "worker",
        namespace: str | None = None,
        request_id: str | None = None,
    ) -> job_service_pb2.ScaleJobResponse:
        """Resize a role within its bounds."""
        request = self._requests.scale(
            job, role=role, replicas=replicas, namespace=namespace, request_id=request_id
        )
        return self._command(self._jobs.ScaleJob, request)

    def explain(self, job: str, *, namespace: str | None = None) -> explanation_pb2.Explanation:
        """Explain why a job waits, and what would let it start."""
        response = self._call(self._jobs.ExplainJob, self._requests.explain(job, namespace))
        return response.explanation

    def nodes(self) -> Iterator[cluster_service_pb2.Node]:
        """Yield every node with its replicas, by name."""
        for page in self._pages(self._cluster.ListNodes, self._requests.nodes()):
            yield from page.nodes

    def node(self, name: str) -> cluster_service_pb2.Node:
        """Return one node."""
        request = cluster_service_pb2.GetNodeRequest(name=name)
        response = self._call(self._cluster.GetNode, request)
        return response.node

    def cluster(self) -> cluster_service_pb2.GetClusterResponse:
        """Return version and trace store of the server."""
        return self._call(self._cluster.GetCluster, cluster_service_pb2.GetClusterRequest())

    def instances(self) -> Iterator[cluster_service_pb2.Instance]:
        """Yield the running instances of all services with their versions, by service and name."""
        request = cluster_service_pb2.ListInstancesRequest()
        for page in self._pages(self._cluster.ListInstances, request):
            yield from page.instances

    def diagnose(self) -> cluster_service_pb2.DiagnoseClusterResponse:
        """Examine the installation; what is wrong is a result, not an exception."""
        request = cluster_service_pb2.DiagnoseClusterRequest()
        request.called_at.GetCurrentTime()
        return self._call(self._cluster.DiagnoseCluster, request)

    def orphans(self) -> Iterator[orphan_service_pb2.Orphan]:
        """Yield the jobs that have replicas and no record, because an older store was restored, by job id."""
        for page in self._pages(self._orphans.ListOrphans, self._requests.orphans()):
            yield from page.orphans

    def adopt_orphan(self, job_id: str) -> orphan_service_pb2.AdoptOrphanResponse:
        """Create the record of an orphan again; it continues as a job. Raises ``Rejected`` if too little is retained of it."""
        request = orphan_service_pb2.AdoptOrphanRequest(job_id=job_id)
        return self._command(self._orphans.AdoptOrphan, request)

    def remove_orphan(self, job_id: str) -> orphan_service_pb2.RemoveOrphanResponse:
        """End the replicas of an orphan and remove their logs."""
        request = orphan_service_pb2.RemoveOrphanRequest(job_id=job_id)
        return self._call(self._orphans.RemoveOrphan, request)

    def get_defaults(self, revision: int = 0) -> defaults_service_pb2.Defaults:
        """Return the platform defaults: the current or an earlier revision."""
        request = defaults_service_pb2.GetDefaultsRequest(revision=revision)
        response = self._call(self._defaults.GetDefaults, request)
        return response.defaults

    def apply_defaults(
        self,
        source: DocumentSource,
        *,
        source_name: str = "",
        dry_run: bool = False,
        expected_revision: int | None = None,
    ) -> defaults_service_pb2.ApplyDefaultsResponse:
        """Replace the platform defaults by the native form or a ``polyaxon_config.yml``.

        The same defaults create no new revision. ``expected_revision`` applies only over that revision, else raises
        ``Rejected``; ``dry_run`` only validates.
        """
        request = self._requests.apply_defaults(
            source, source_name=source_name, dry_run=dry_run, expected_revision=expected_revision
        )
        return self._call(self._defaults.ApplyDefaults, request)

    def queues(self) -> Iterator[queue_service_pb2.Queue]:
        """Yield every queue with its status, by name."""
        for page in self._pages(self._queues.ListQueues, self._requests.queues()):
            yield from page.queues

    def queue(self, name: str) -> queue_service_pb2.GetQueueResponse:
        """Return one queue, and the version of all queues."""
        return self._call(self._queues.GetQueue, queue_service_pb2.GetQueueRequest(name=name))

    def apply_queues(
        self,
        source: DocumentSource,
        *,
        source_name: str = "",
        prune: bool = False,
        dry_run: bool = False,
        expected_revision: int | None = None,
        request_id: str | None = None,
    ) -> queue_service_pb2.ApplyQueuesResponse:
        """Create or replace queues, all or none, by documents of ``kind: Queue``; ``prune`` deletes all others.

        ``expected_revision`` applies only over that revision, else raises ``Rejected``; ``dry_run`` only validates. Raises
        ``InvalidDocument`` with every problem of the queues.
        """
        request = self._requests.apply_queues(
            source,
            source_name=source_name,
            prune=prune,
            dry_run=dry_run,
            expected_revision=expected_revision,
            request_id=request_id,
        )
        return self._call(self._queues.ApplyQueues, request)

    def delete_queue(
        self, name: str, *, expected_revision: int | None = None, request_id: str | None = None
    ) -> queue_service_pb2.DeleteQueueResponse:
        """Delete a queue. Raises ``Rejected`` while it has waiting or running jobs, or children."""
        request = self._requests.delete_queue(
            name, expected_revision=expected_revision, request_id=request_id
        )
        return self._call(self._queues.DeleteQueue, request)

    def _call(
        self, method: grpc.UnaryUnaryMultiCallable[RequestT, ResponseT], request: RequestT
    ) -> ResponseT:
        retries = Retries(self._retry_timeout_s)
        while True:
            try:
                return method(request, timeout=retries.remaining_s(), metadata=self._user)
            except grpc.RpcError as error:
                self._pause_or_raise(retries, error, resumable=is_transient(error))

    def _command(
        self, method: grpc.UnaryUnaryMultiCallable[RequestT, CommandResponseT], request: RequestT
    ) -> CommandResponseT:
        response = self._call(method, request)
        self._requests.saw(response.revision)
        return response

    def _pages(
        self, method: grpc.UnaryUnaryMultiCallable[PageRequestT, PageT], request: PageRequestT
    ) -> Iterator[PageT]:
        while True:
            page = self._call(method, request)
            yield page
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def _stream(
        self, begin: Callable[[], Responses[ResponseT]], *, resumable: bool = True
    ) -> Iterator[ResponseT]:
        retries = Retries(self._retry_timeout_s)
        while True:
            stream = begin()
            begun = False
            try:
                for response in stream:
                    begun = True
                    yield response
                return
            except grpc.RpcError as error:
                if begun or has_begun(stream.initial_metadata()):
                    retries.reset()
                self._pause_or_raise(retries, error, resumable=resumable and can_resume(error))
            finally:
                stream.cancel()

    def _pause_or_raise(self, retries: Retries, error: grpc.RpcError, *, resumable: bool) -> None:
        pause = retries.pause_s() if resumable else None
        if pause is None:
            raise error_of(error, address=self.address) from None
        time.sleep(pause)
