"""A double of the gateway that speaks the real protocol, for tests of the client and the command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import grpc
import pytest
from click.testing import CliRunner, Result
from grpc_status import rpc_status

from muster_core.models import Problem
from muster_rpc.calls import OPEN
from muster_rpc.convert import problem_to_proto
from muster_rpc.errors import invalid_argument
from muster_rpc.v1 import (
    cluster_service_pb2,
    cluster_service_pb2_grpc,
    defaults_service_pb2,
    defaults_service_pb2_grpc,
    explanation_pb2,
    job_pb2,
    job_service_pb2,
    job_service_pb2_grpc,
)

JOB_ID = "j-aaaaaaaaaaaaaaaa"
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
START_S = 1_700_000_000
TERMINAL = {
    job_pb2.PHASE_REJECTED,
    job_pb2.PHASE_SUCCEEDED,
    job_pb2.PHASE_FAILED,
    job_pb2.PHASE_CANCELLED,
    job_pb2.PHASE_TIMED_OUT,
}
WAIT_S = 20


class GatewayDouble(
    job_service_pb2_grpc.JobServiceServicer,
    cluster_service_pb2_grpc.ClusterServiceServicer,
    defaults_service_pb2_grpc.DefaultsServiceServicer,
):
    """Answers what the test tells it to. ``failures`` holds statuses to answer first, by method; ``received`` every request."""

    def __init__(self) -> None:
        self.received: list[tuple[str, object]] = []
        self.failures: dict[str, list[tuple[grpc.StatusCode, str]]] = {}
        self.break_streams_after: list[int] = []
        self.break_quiet_streams = threading.Event()
        self.problems: list[Problem] = []
        self.states: list[job_pb2.Job] = []
        self.warnings: list[Problem] = []
        self.chunks: list[tuple[int, bytes]] = []
        """Index of a worker, and what it wrote."""
        self.explanation = explanation_pb2.Explanation(job_id=JOB_ID)
        self.nodes: list[cluster_service_pb2.Node] = []
        self.results: list[cluster_service_pb2.CheckResult] | None = []
        self.client_times: list[float] = []
        self.instances: list[cluster_service_pb2.Instance] | None = None
        self.trace_query_url = ""
        self.spec = job_pb2.JobSpec(name="demo")
        self.defaults = defaults_service_pb2.Defaults()
        self.changed = True
        self.page = 2
        self.exec_ends = job_service_pb2.ExecEnded(exit_code=0)
        self.forward_fails: job_service_pb2.ForwardPortFailed | None = None
        self._changed = threading.Condition()
        self._closing = False

    def publish(self, *states: job_pb2.Job) -> None:
        """States of jobs, the newest last; watches yield them."""
        with self._changed:
            self.states += states
            self._changed.notify_all()

    def close(self) -> None:
        """Let go of every watcher."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def requests(self, method: str) -> list[object]:
        """What was received by a method."""
        return [request for name, request in self.received if name == method]

    def wait_for(self, method: str, count: int = 1) -> None:
        """Wait until a method was called so many times."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.requests(method)) >= count, WAIT_S), method

    def _take(self, method: str, request: object, context: grpc.ServicerContext) -> None:
        with self._changed:
            self.received.append((method, request))
            self._changed.notify_all()
        if planned := self.failures.get(method):
            context.abort(*planned.pop(0))

    def _refuse(self, context: grpc.ServicerContext) -> NoReturn:
        status = rpc_status.to_status(invalid_argument(self.problems))  # pyright: ignore[reportUnknownMemberType] (untyped)
        context.abort_with_status(status)
        raise AssertionError

    def _find(self, ref: job_service_pb2.JobRef, context: grpc.ServicerContext) -> job_pb2.Job:
        for job in reversed(self.states):
            if job.job_id == ref.job_id or (ref.name and job.name == ref.name):
                return job
        context.abort(
            grpc.StatusCode.NOT_FOUND, f"no job {ref.job_id or ref.name} in {ref.namespace or 'default'}"
        )
        raise AssertionError

    def SubmitJob(
        self, request: job_service_pb2.SubmitJobRequest, context: grpc.ServicerContext
    ) -> job_service_pb2.SubmitJobResponse:
        repeated = any(getattr(r, "request_id", "") == request.request_id for r in self.requests("SubmitJob"))
        self._take("SubmitJob", request, context)
        if self.problems:
            self._refuse(context)
        job = job_service_pb2.SubmittedJob(
            job_id=JOB_ID,
            name="demo",
            namespace=request.namespace or "default",
            validated=True,
            duplicate=repeated,
            revision=7,
            trace_id=TRACE_ID,
            warnings=[problem_to_proto(warning) for warning in self.warnings],
        )
        return job_service_pb2.SubmitJobResponse(jobs=[job])

    def ValidateJob(
        self, request: job_service_pb2.ValidateJobRequest, context: grpc.ServicerContext
    ) -> job_service_pb2.ValidateJobResponse:
        self._take("ValidateJob", request, context)
        problems = [problem_to_proto(problem) for problem in (*self.problems, *self.warnings)]
        jobs = [] if self.problems else [self.spec]
        return job_service_pb2.ValidateJobResponse(jobs=jobs, problems=problems)

    def GetJob(
        self, request: job_service_pb2.GetJobRequest, context: grpc.ServicerContext
    ) -> job_service_pb2.GetJobResponse:
        self._take("GetJob", request, context)
        return job_service_pb2.GetJobResponse(job=self._find(request.job, context))

    def ListJobs(
        self, request: job_service_pb2.ListJobsRequest, context: grpc.ServicerContext
    ) -> job_service_pb2.ListJobsResponse:
        self._take("ListJobs", request, context)
        newest = {job.job_id: job for job in self.states}
        wanted = [job for job in newest.values() if not request.phases or job.status.phase in request.phases]
        start = int(request.page_token or 0)
        token = str(start + self.page) if start + self.page < len(wanted) else ""
        page = wanted[start : start + self.page]
        return job_service_pb2.ListJobsResponse(jobs=page, next_page_token=token, total_size=len(wanted))

    def WatchJob(
        self, request: job_service_pb2.WatchJobRequest, context: grpc.ServicerContext
    ) -> Iterator[job_service_pb2.WatchJobResponse]:
        self._take("WatchJob", request, context)
        job_id = self._find(request.job, context).job_id
        context.send_initial_metadata(OPEN)
        sent = 0
        for job in self._states_after(request.after_revision, context):
            if job.job_id != job_id:
                continue
            yield job_service_pb2.WatchJobResponse(
                type=job_service_pb2.WATCH_EVENT_TYPE_MODIFIED, job=job, revision=job.revision
            )
            sent += 1
            self._break(sent, context)
            if job.status.phase in TERMINAL:
                return

    def WatchJobs(
        self, request: job_service_pb2.WatchJobsRequest, context: grpc.ServicerContext
    ) -> Iterator[job_service_pb2.WatchJobsResponse]:
        self._take("WatchJobs", request, context)
        for sent, job in enumerate(self._states_after(request.after_revision, context), start=1):
            yield job_service_pb2.WatchJobsResponse(
                type=job_service_pb2.WATCH_EVENT_TYPE_MODIFIED, job=job, revision=job.revision
            )
            self._break(sent, context)

    def _states_after(self, sequence: int, context: grpc.ServicerContext) -> Iterator[job_pb2.Job]:
        position = 0
        while context.is_active():
            with self._changed:
                self._changed.wait_for(lambda seen=position: len(self.states) > seen or self._closing, 0.2)
                news, closing = self.states[position:], self._closing
            position += len(news)
            yield from (job for job in news if job.revision > sequence)
            if self.break_quiet_streams.is_set():
                self.break_quiet_streams.clear()
                context.abort(grpc.StatusCode.UNAVAILABLE, "this instance is shutting down; call again")
            if closing:
                return

    def _break(self, sent: int, context: grpc.ServicerContext) -> None:
        if self.break_streams_after and sent == self.break_streams_after[0]:
            self.break_streams_after.pop(0)
            context.abort(grpc.StatusCode.UNAVAILABLE, "this instance is shutting down; call again")

    def CancelJob(
        self, request: job_service_pb2.CancelJobRequest, context: grpc.ServicerContext
    ) -> job_service_pb2.CancelJobResponse:
        self._take("CancelJob", request, context)
        return job_service_pb2.CancelJobResponse(job_id=self._find(request.job, context).job_id, revision=11)

    def DeleteJob(
        self, request: job_service_pb2.DeleteJobRequest, context: grpc.ServicerContext
    ) -> job_service_pb2.DeleteJobResponse:
        self._take("DeleteJob", request, context)
        return job_service_pb2.DeleteJobResponse(job_id=self._find(request.job, context).job_id, revision=12)

    def ScaleJob(
        self, request: job_service_pb2.ScaleJobRequest, context: grpc.ServicerContext
    ) -> job_service_pb2.ScaleJobResponse:
        self._take("ScaleJob", request, context)
        return job_service_pb2.ScaleJobResponse(job_id=self._find(request.job, context).job_id, revision=13)

    def SuspendJob(
        self, request: job_service_pb2.SuspendJobRequest, context: grpc.ServicerContext
    ) -> job_service_pb2.SuspendJobResponse:
        self._take("SuspendJob", request, context)
        return job_service_pb2.SuspendJobResponse(job_id=JOB_ID, revision=14)

    def ResumeJob(
        self, request: job_service_pb2.ResumeJobRequest, context: grpc.ServicerContext
    ) -> job_service_pb2.ResumeJobResponse:
        self._take("ResumeJob", request, context)
        return job_service_pb2.ResumeJobResponse(job_id=JOB_ID, revision=15)

    def RestartJob(
        self, request: job_service_pb2.RestartJobRequest, context: grpc.ServicerContext
    ) -> job_service_pb2.RestartJobResponse:
        self._take("RestartJob", request, context)
        return job_service_pb2.RestartJobResponse(job_id=JOB_ID, revision=16)

    def ExplainJob(
        self, request: job_service_pb2.ExplainJobRequest, context: grpc.ServicerContext
    ) -> job_service_pb2.ExplainJobResponse:
        self._take("ExplainJob", request, context)
        return job_service_pb2.ExplainJobResponse(explanation=self.explanation)

    def StreamLogs(
        self, request: job_service_pb2.StreamLogsRequest, context: grpc.ServicerContext
    ) -> Iterator[job_service_pb2.StreamLogsResponse]:
        self._take("StreamLogs", request, context)
        for sent, (index, data) in enumerate(self.chunks, start=1):
            ref = job_pb2.ReplicaRef(role="worker", index=index, attempt=1)
            yield job_service_pb2.StreamLogsResponse(replica=ref, data=data)
            self._break(sent, context)

    def ExecJob(
        self, request_iterator: Iterator[job_service_pb2.ExecJobRequest], context: grpc.ServicerContext
    ) -> Iterator[job_service_pb2.ExecJobResponse]:
        """A command that says what it hears until its input ends, then ``exec_ends``."""
        start = next(request_iterator).start
        self._take("ExecJob", start, context)
        yield job_service_pb2.ExecJobResponse(
            started=job_service_pb2.ExecStarted(replica=job_pb2.ReplicaRef(role="worker"))
        )
        for request in request_iterator if start.command.stdin else ():
            if request.input.end:
                break
            yield job_service_pb2.ExecJobResponse(
                output=job_service_pb2.ExecOutput(stdout=request.input.stdin)
            )
        yield job_service_pb2.ExecJobResponse(ended=self.exec_ends)

    def ForwardPort(
        self, request_iterator: Iterator[job_service_pb2.ForwardPortRequest], context: grpc.ServicerContext
    ) -> Iterator[job_service_pb2.ForwardPortResponse]:
        """A port that says what it hears."""
        start = next(request_iterator).start
        self._take("ForwardPort", start, context)
        yield job_service_pb2.ForwardPortResponse(
            opened=job_service_pb2.ForwardPortOpened(
                replica=job_pb2.ReplicaRef(role="worker"), port=start.port or 8888
            )
        )
        if self.forward_fails is not None:
            yield job_service_pb2.ForwardPortResponse(failed=self.forward_fails)
            return
        for request in () if start.probe else request_iterator:
            if request.end:
                break
            yield job_service_pb2.ForwardPortResponse(data=request.data)

    def DiagnoseCluster(
        self, request: cluster_service_pb2.DiagnoseClusterRequest, context: grpc.ServicerContext
    ) -> cluster_service_pb2.DiagnoseClusterResponse:
        if self.results is None:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        self.client_times.append(request.called_at.ToMicroseconds() / 1e6)
        return cluster_service_pb2.DiagnoseClusterResponse(results=self.results)

    def GetCluster(
        self, request: cluster_service_pb2.GetClusterRequest, context: grpc.ServicerContext
    ) -> cluster_service_pb2.GetClusterResponse:
        self._take("GetCluster", request, context)
        return cluster_service_pb2.GetClusterResponse(version="9.9.9", trace_query_url=self.trace_query_url)

    def ListInstances(
        self, request: cluster_service_pb2.ListInstancesRequest, context: grpc.ServicerContext
    ) -> cluster_service_pb2.ListInstancesResponse:
        self._take("ListInstances", request, context)
        if self.instances is None:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        return cluster_service_pb2.ListInstancesResponse(instances=self.instances)

    def ListNodes(
        self, request: cluster_service_pb2.ListNodesRequest, context: grpc.ServicerContext
    ) -> cluster_service_pb2.ListNodesResponse:
        self._take("ListNodes", request, context)
        start = int(request.page_token or 0)
        token = str(start + self.page) if start + self.page < len(self.nodes) else ""
        return cluster_service_pb2.ListNodesResponse(
            nodes=self.nodes[start : start + self.page], next_page_token=token
        )

    def GetNode(
        self, request: cluster_service_pb2.GetNodeRequest, context: grpc.ServicerContext
    ) -> cluster_service_pb2.GetNodeResponse:
        self._take("GetNode", request, context)
        for node in self.nodes:
            if node.name == request.name:
                return cluster_service_pb2.GetNodeResponse(node=node)
        context.abort(grpc.StatusCode.NOT_FOUND, f"no node {request.name}")
        raise AssertionError

    def GetDefaults(
        self, request: defaults_service_pb2.GetDefaultsRequest, context: grpc.ServicerContext
    ) -> defaults_service_pb2.GetDefaultsResponse:
        self._take("GetDefaults", request, context)
        return defaults_service_pb2.GetDefaultsResponse(defaults=self.defaults)

    def ApplyDefaults(
        self, request: defaults_service_pb2.ApplyDefaultsRequest, context: grpc.ServicerContext
    ) -> defaults_service_pb2.ApplyDefaultsResponse:
        self._take("ApplyDefaults", request, context)
        if self.problems:
            self._refuse(context)
        warnings = [problem_to_proto(warning) for warning in self.warnings]
        return defaults_service_pb2.ApplyDefaultsResponse(
            defaults=self.defaults, changed=self.changed, warnings=warnings
        )


class Running:
    """A double that listens: ``address`` is where."""

    def __init__(self, double: GatewayDouble) -> None:
        self._server = grpc.server(ThreadPoolExecutor(16))
        job_service_pb2_grpc.add_JobServiceServicer_to_server(double, self._server)
        cluster_service_pb2_grpc.add_ClusterServiceServicer_to_server(double, self._server)
        defaults_service_pb2_grpc.add_DefaultsServiceServicer_to_server(double, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self) -> None:
        """Stop at once."""
        self._server.stop(None).wait(WAIT_S)


@pytest.fixture
def gateway() -> GatewayDouble:
    return GatewayDouble()


@pytest.fixture
def address(gateway: GatewayDouble) -> Iterator[str]:
    running = Running(gateway)
    yield running.address
    gateway.close()
    running.stop()


@pytest.fixture
def two_gateways() -> Iterator[tuple[GatewayDouble, GatewayDouble, str]]:
    """Two doubles, and the target that names both."""
    doubles = GatewayDouble(), GatewayDouble()
    running = [Running(double) for double in doubles]
    yield *doubles, "ipv4:" + ",".join(one.address for one in running)
    for double, one in zip(doubles, running, strict=True):
        double.close()
        one.stop()


Muster = Callable[..., Result]


@pytest.fixture
def muster(address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Muster]:
    """Run the command in this process, against the double."""
    from muster._cli.app import app

    monkeypatch.setenv("MUSTER_SERVER", address)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.delenv("MUSTER_TRACE_URL", raising=False)

    def run(*arguments: str, stdin: str | bytes | None = None) -> Result:
        return CliRunner().invoke(app, list(arguments), input=stdin, prog_name="muster")

    yield run
    monkeypatch.undo()
    time.tzset()


Process = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def process(address: str) -> Iterator[Process]:
    """Start the command as a process of its own, against the double."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        command = Path(sys.executable).parent / "muster"
        running = subprocess.Popen(
            [command, *arguments],
            env={**os.environ, "MUSTER_SERVER": address, "TZ": "UTC", **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(running)
        return running

    yield start
    for running in started:
        running.kill()
        running.communicate()


@pytest.fixture
def job() -> Callable[..., job_pb2.Job]:
    """Make a state of the job ``demo``."""
    return make_job


def make_job(
    phase: job_pb2.Phase.ValueType,
    *,
    revision: int,
    reason: str = "",
    code: str = "",
    name: str = "demo",
    job_id: str = JOB_ID,
    replicas: tuple[job_pb2.Replica, ...] = (),
    history: tuple[tuple[str, str, str], ...] = (),
) -> job_pb2.Job:
    made = job_pb2.Job(
        job_id=job_id,
        name=name,
        namespace="default",
        trace_id=TRACE_ID,
        revision=revision,
        spec=job_pb2.JobSpec(
            name=name,
            queue="research",
            framework=job_pb2.FRAMEWORK_TENSORFLOW,
            format="tfjob",
            roles=[job_pb2.Role(name="worker", replicas=2, min=1, max=4)],
        ),
    )
    status = made.status
    status.phase = phase
    status.queue = made.spec.queue
    status.attempt = 1 if replicas else 0
    status.generation = 1 if replicas else 0
    if reason or code:
        status.reason.code, status.reason.message = code, reason
    status.submitted_at.seconds = START_S
    if phase in TERMINAL:
        status.finished_at.seconds = START_S + 95
    status.replicas.extend(replicas)
    for offset, (event, entry_code, message) in enumerate(history):
        entry = status.history.add(
            event=event_type(event), source="scheduler", reason=entry_code, message=message
        )
        entry.at.seconds = START_S + offset
    return made


def event_type(name: str) -> job_pb2.JobEventType.ValueType:
    """The number of an event such as ``JobPlaced``."""
    words = re.sub(r"(?<!^)([A-Z])", r"_\1", name).upper()
    return job_pb2.JobEventType.Value(f"JOB_EVENT_TYPE_{words}")


@pytest.fixture
def replica() -> Callable[..., job_pb2.Replica]:
    """Make a replica of the job ``demo``."""

    def make(index: int, state: job_pb2.ReplicaState.ValueType, **more: object) -> job_pb2.Replica:
        made = job_pb2.Replica(
            name=f"demo-worker-{index}",
            role="worker",
            index=index,
            attempt=1,
            generation=1,
            state=state,
            node=f"n{index + 1}",
            gpus=[index],
        )
        made.MergeFrom(job_pb2.Replica(**more))  # pyright: ignore[reportArgumentType] (any field)
        made.placed_at.seconds = START_S + 2
        return made

    return make
