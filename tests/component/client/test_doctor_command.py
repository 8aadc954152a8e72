"""``muster doctor``, against a double of the gateway."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from click.testing import CliRunner, Result

from muster._cli.app import app
from muster_rpc.v1 import cluster_service_pb2 as pb, cluster_service_pb2_grpc

Muster = Callable[..., Result]
FINE = pb.CheckResult(check="broker", status=pb.CHECK_STATUS_OK, message="NATS 2.15.1, 1 server")
WARNED = pb.CheckResult(
    check="dead letters",
    status=pb.CHECK_STATUS_WARNING,
    subject="spec-validator",
    message="1 dead letter of spec-validator",
    fix="muster dead-letters list",
)
FAULTY = pb.CheckResult(
    check="leaders",
    status=pb.CHECK_STATUS_ERROR,
    subject="scheduler.local",
    message="no scheduler leads the pool local",
    fix="start the scheduler",
)


class ClusterDouble(cluster_service_pb2_grpc.ClusterServiceServicer):
    """Answers with given results."""

    def __init__(self) -> None:
        self.results: list[pb.CheckResult] = []
        self.client_times: list[float] = []
        self.is_old = False

    def DiagnoseCluster(
        self, request: pb.DiagnoseClusterRequest, context: grpc.ServicerContext
    ) -> pb.DiagnoseClusterResponse:
        if self.is_old:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        self.client_times.append(request.called_at.ToMicroseconds() / 1e6)
        return pb.DiagnoseClusterResponse(results=self.results)

    def GetCluster(
        self, request: pb.GetClusterRequest, context: grpc.ServicerContext
    ) -> pb.GetClusterResponse:
        raise NotImplementedError

    def ListInstances(
        self, request: pb.ListInstancesRequest, context: grpc.ServicerContext
    ) -> pb.ListInstancesResponse:
        raise NotImplementedError

    def ListNodes(self, request: pb.ListNodesRequest, context: grpc.ServicerContext) -> pb.ListNodesResponse:
        raise NotImplementedError

    def GetNode(self, request: pb.GetNodeRequest, context: grpc.ServicerContext) -> pb.GetNodeResponse:
        raise NotImplementedError


@pytest.fixture
def cluster() -> ClusterDouble:
    return ClusterDouble()


@pytest.fixture
def muster(cluster: ClusterDouble) -> Iterator[Muster]:
    server = grpc.server(ThreadPoolExecutor(2))
    cluster_service_pb2_grpc.add_ClusterServiceServicer_to_server(cluster, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["--server", f"127.0.0.1:{port}", "doctor", *arguments])

    yield run
    server.stop(None)


def test_a_healthy_installation_has_no_finding(cluster: ClusterDouble, muster: Muster) -> None:
    cluster.results = [FINE]
    result = muster()
    assert result.exit_code == 0
    assert [line.split()[:2] for line in result.stdout.splitlines()[:-1]] == [
        ["ok", "gateway"],
        ["ok", "broker"],
    ]
    assert result.stdout.splitlines()[-1] == "no faults found"
    assert abs(cluster.client_times[0] - time.time()) < 10


def test_a_warning_is_shown_with_its_fix_and_is_no_failure(cluster: ClusterDouble, muster: Muster) -> None:
    cluster.results = [FINE, WARNED]
    result = muster("--quiet")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "warning  dead letters  1 dead letter of spec-validator",
        "                       fix: muster dead-letters list",
        "1 warning",
    ]


def test_an_error_is_an_exit_code(cluster: ClusterDouble, muster: Muster) -> None:
    cluster.results = [FINE, WARNED, FAULTY]
    result = muster()
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1] == "1 error, 1 warning"


def test_for_programs(cluster: ClusterDouble, muster: Muster) -> None:
    cluster.results = [FINE, FAULTY]
    result = muster("-o", "json")
    assert result.exit_code == 1
    _, fine, faulty = json.loads(result.stdout)
    assert fine == {"check": "broker", "status": "CHECK_STATUS_OK", "message": "NATS 2.15.1, 1 server"}
    assert faulty == {
        "check": "leaders",
        "status": "CHECK_STATUS_ERROR",
        "subject": "scheduler.local",
        "message": "no scheduler leads the pool local",
        "fix": "start the scheduler",
    }
    assert muster("-o", "name").stdout.splitlines() == ["leaders/scheduler.local"]


def test_a_gateway_that_does_not_answer_is_an_error() -> None:
    answer = CliRunner().invoke(app, ["--server", "127.0.0.1:1", "--timeout", "0.2", "doctor", "-o", "json"])
    [result] = json.loads(answer.stdout)
    assert answer.exit_code == 1
    assert (result["check"], result["status"]) == ("gateway", "CHECK_STATUS_ERROR")
    assert "cannot reach Muster at 127.0.0.1:1" in result["message"]
    assert "port-forward service/gateway" in result["fix"]


def test_an_older_gateway_is_a_finding(cluster: ClusterDouble, muster: Muster) -> None:
    cluster.is_old = True
    result = muster()
    assert result.exit_code == 1
    assert "is older than this command" in result.stdout
    assert "fix: upgrade the services" in result.stdout
