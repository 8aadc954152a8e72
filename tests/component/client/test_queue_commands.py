"""``muster queue`` and ``muster apply`` of queues, against a double of the gateway that keeps what it is given."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import grpc
import pytest
from click.testing import CliRunner, Result
from google.protobuf import timestamp_pb2
from grpc_status import rpc_status

from muster_core.models import Problem, Severity
from muster_formats.queues import parse_queues
from muster_rpc.convert import problem_to_proto, queue_to_proto
from muster_rpc.errors import invalid_argument
from muster_rpc.v1 import job_pb2, queue_service_pb2 as pb, queue_service_pb2_grpc

Muster = Callable[..., Result]

TREE = """\
apiVersion: muster.dev/v1
kind: Queue
metadata:
  name: research
spec:
  guaranteed:
    gpu: "8"
---
apiVersion: muster.dev/v1
kind: Queue
metadata:
  name: vision
spec:
  parent: research
  weight: 2
"""


class QueueDouble(queue_service_pb2_grpc.QueueServiceServicer):
    """Answers from ``queues`` and ``version``; ``failure`` and ``problems`` refuse the next change."""

    def __init__(self) -> None:
        self.queues = [
            pb.Queue(spec=pb.QueueSpec(name="default", weight=1, policy=pb.QUEUE_POLICY_FIFO_SKIP))
        ]
        self.version = pb.AppliedQueues()
        self.received: list[pb.ApplyQueuesRequest | pb.DeleteQueueRequest] = []
        self.users: list[str] = []
        self.failure: tuple[grpc.StatusCode, str] | None = None
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []

    def ListQueues(
        self, request: pb.ListQueuesRequest, context: grpc.ServicerContext
    ) -> pb.ListQueuesResponse:
        # Pages of one queue, so that a list needs several calls.
        rest = [queue for queue in self.queues if queue.spec.name > request.page_token]
        token = rest[0].spec.name if len(rest) > 1 else ""
        return pb.ListQueuesResponse(queues=rest[:1], next_page_token=token, applied=self.version)

    def GetQueue(self, request: pb.GetQueueRequest, context: grpc.ServicerContext) -> pb.GetQueueResponse:
        for queue in self.queues:
            if queue.spec.name == request.name:
                return pb.GetQueueResponse(queue=queue, applied=self.version)
        context.abort(grpc.StatusCode.NOT_FOUND, f"no queue {request.name}")

    def ApplyQueues(
        self, request: pb.ApplyQueuesRequest, context: grpc.ServicerContext
    ) -> pb.ApplyQueuesResponse:
        self._take(request, context)
        if self.problems:
            status = rpc_status.to_status(invalid_argument(self.problems))  # pyright: ignore[reportUnknownMemberType] (untyped)
            context.abort_with_status(status)
        names = sorted(spec.name for spec in parse_queues(request.document.text).queues)
        kinds = [pb.QueueChange(name=name, kind=pb.QUEUE_CHANGE_KIND_CREATED) for name in names]
        return pb.ApplyQueuesResponse(
            applied=pb.AppliedQueues(revision=1), changes=kinds, warnings=map(problem_to_proto, self.warnings)
        )

    def DeleteQueue(
        self, request: pb.DeleteQueueRequest, context: grpc.ServicerContext
    ) -> pb.DeleteQueueResponse:
        self._take(request, context)
        return pb.DeleteQueueResponse(applied=pb.AppliedQueues(revision=len(self.received) + 1))

    def _take(
        self, request: pb.ApplyQueuesRequest | pb.DeleteQueueRequest, context: grpc.ServicerContext
    ) -> None:
        self.received.append(request)
        self.users += [str(value) for key, value in context.invocation_metadata() if key == "muster-user"]
        if self.failure:
            _refuse(context, *self.failure)


def _refuse(context: grpc.ServicerContext, code: grpc.StatusCode, words: str) -> NoReturn:
    context.abort(code, words)
    raise AssertionError("abort returned")


@pytest.fixture
def double() -> QueueDouble:
    return QueueDouble()


@pytest.fixture
def muster(double: QueueDouble, monkeypatch: pytest.MonkeyPatch) -> Iterator[Muster]:
    from muster._cli.app import app

    server = grpc.server(ThreadPoolExecutor(4))
    queue_service_pb2_grpc.add_QueueServiceServicer_to_server(double, server)
    monkeypatch.setenv("MUSTER_SERVER", f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
    monkeypatch.setenv("MUSTER_USER", "ann")
    server.start()

    def run(*arguments: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(app, list(arguments), input=stdin, prog_name="muster")

    yield run
    server.stop(None).wait(20)


@pytest.fixture
def tree(double: QueueDouble) -> QueueDouble:
    """The double with a tree of queues in use."""
    for spec in parse_queues(TREE).queues:
        status = pb.QueueStatus(
            allocated=job_pb2.Resources(gpu_milli=6500),
            running=3,
            waiting=2,
            oldest_wait_at=timestamp_pb2.Timestamp(seconds=int(time.time()) - 90),
            share_milli=406,
            fair_share_milli=500,
        )
        double.queues.append(pb.Queue(spec=queue_to_proto(spec), status=status))
    double.version = pb.AppliedQueues(revision=4, applied_by="bob")
    return double


def test_queues_are_listed_with_what_they_hold(tree: QueueDouble, muster: Muster) -> None:
    lines = [" ".join(line.split()) for line in muster("queue", "list").output.splitlines()]

    assert lines[0] == "QUEUE GUARANTEED LIMIT USED SHARE FAIR SHARE BORROWED RUNNING WAITING OLDEST WAIT"
    assert lines[2].startswith("research 8 GPU - 6.5 GPU 40.6% 50% - 3 2 1m3")


def test_the_tree_is_drawn(tree: QueueDouble, muster: Muster) -> None:
    names = [line.split("  ")[0] for line in muster("queue", "tree").output.splitlines()]

    assert names == ["QUEUE", "default", "research", "└─ vision"]


def test_what_is_shown_can_be_applied_again(tree: QueueDouble, muster: Muster) -> None:
    expected = (*parse_queues(TREE).queues,)
    for form in ("yaml", "json"):
        shown = muster("queue", "list", "-o", form).stdout
        assert parse_queues(shown).queues[1:] == expected
        assert not parse_queues(shown).problems
    one = json.loads(muster("queue", "get", "vision", "-o", "json").stdout)
    assert one["status"]["waiting"] == 2
    assert parse_queues(json.dumps(one)).queues == expected[1:]
    assert muster("queue", "list", "-o", "name").stdout.split() == ["default", "research", "vision"]


def test_one_queue_is_shown_on_a_page(tree: QueueDouble, muster: Muster) -> None:
    page = muster("queue", "get", "vision").output

    assert "Parent:        research" in page
    assert "Jobs:          3 running, 2 waiting, the oldest for 1m3" in page
    assert "Version:       4 of all queues" in page


def test_an_empty_list_of_queues_prints_a_hint(muster: Muster) -> None:
    assert "no queues were applied yet" in muster("queue", "list").stderr


def test_invalid_stored_queues_are_reported(tree: QueueDouble, muster: Muster) -> None:
    tree.version.error = "the stored queues are invalid"

    assert "the stored queues are invalid" in muster("queue", "tree").stderr


def test_a_queue_that_is_not_there_is_code_4(muster: Muster) -> None:
    result = muster("queue", "get", "x")

    assert (result.exit_code, result.stderr) == (4, "muster: no queue x\n")


@pytest.mark.parametrize("command", [("apply",), ("queue", "apply")])
def test_queues_are_applied(
    command: tuple[str, ...], double: QueueDouble, muster: Muster, tmp_path: Path
) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text(TREE)
    result = muster(*command, "-f", str(file), "--prune", "--expected-version", "0")

    assert result.output.splitlines() == [
        "research created",
        "vision created",
        "version 1 of the queues is in force",
    ]
    (request,) = double.received
    assert isinstance(request, pb.ApplyQueuesRequest)
    assert (request.prune, request.dry_run, request.expected_revision) == (True, False, 0)
    assert request.document.source_name == str(file)
    assert request.request_id
    assert double.users == ["ann"]


def test_a_dry_run_only_prints_the_changes(double: QueueDouble, muster: Muster) -> None:
    result = muster("apply", "-f", "-", "--dry-run", stdin=TREE)

    assert result.output.splitlines()[-1] == "would be version 1 of the queues; nothing was applied"
    (request,) = double.received
    assert isinstance(request, pb.ApplyQueuesRequest)
    assert request.dry_run


def test_a_client_dry_run_calls_no_server(double: QueueDouble, muster: Muster) -> None:
    assert muster("apply", "-f", "-", "--dry-run=client", stdin=TREE).stdout == TREE
    assert not double.received


def test_an_invalid_document_is_shown_with_a_caret_and_not_sent(double: QueueDouble, muster: Muster) -> None:
    result = muster("apply", "-f", "-", stdin=TREE.replace("weight", "wieght"))

    assert result.exit_code == 3
    assert "<stdin>:15:3: error[UnknownField] spec has no field wieght" in result.stderr
    assert "fix: did you mean weight?" in result.stderr
    assert not double.received


def test_what_only_muster_knows_is_shown_at_its_line_too(double: QueueDouble, muster: Muster) -> None:
    double.problems = [
        Problem(code="UnknownParent", path="spec.parent", message="there is no queue x", line=14, column=3)
    ]
    result = muster("apply", "-f", "-", stdin=TREE)

    assert result.exit_code == 3
    assert "<stdin>:14:3: error[UnknownParent] there is no queue x" in result.stderr


def test_warnings_are_shown_and_refuse_nothing(double: QueueDouble, muster: Muster) -> None:
    double.warnings = [
        Problem(code="Ignored", path="x", message="3 jobs name queue x", severity=Severity.WARNING)
    ]
    result = muster("apply", "-f", "-", stdin=TREE)

    assert result.exit_code == 0
    assert "warning[Ignored] 3 jobs name queue x" in result.stderr


def test_queues_are_deleted_one_after_the_other(double: QueueDouble, muster: Muster) -> None:
    result = muster("queue", "delete", "a", "b", "--expected-version", "1")

    assert result.output.splitlines() == [
        "a deleted: version 2 is in force",
        "b deleted: version 3 is in force",
    ]
    assert [
        (request.name, request.expected_revision)
        for request in double.received
        if isinstance(request, pb.DeleteQueueRequest)
    ] == [("a", 1), ("b", 2)]


def test_a_refusal_is_code_1_with_the_reason(double: QueueDouble, muster: Muster) -> None:
    double.failure = (grpc.StatusCode.FAILED_PRECONDITION, "queue a has 1 job waiting in it")
    result = muster("queue", "delete", "a")

    assert (result.exit_code, result.stderr) == (1, "muster: queue a has 1 job waiting in it\n")


def test_pruning_is_for_queues_alone(muster: Muster) -> None:
    result = muster("apply", "-f", "-", "--prune", stdin="nodeSelectors: {jobs: {a: b}}\n")

    assert result.exit_code == 2
    assert "--prune applies to queues" in result.stderr
