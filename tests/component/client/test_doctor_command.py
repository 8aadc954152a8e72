"""``muster doctor``, against a double of the gateway."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from muster._cli.app import app
from muster_rpc.v1 import cluster_service_pb2 as pb

if TYPE_CHECKING:
    from conftest import GatewayDouble

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


@pytest.fixture
def muster(address: str) -> Muster:
    """Runs the command against the double."""

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["--server", address, "doctor", *arguments])

    return run


def test_a_healthy_installation_has_no_finding(gateway: GatewayDouble, muster: Muster) -> None:
    gateway.results = [FINE]
    result = muster()
    assert result.exit_code == 0
    assert [line.split()[:2] for line in result.stdout.splitlines()[:-1]] == [
        ["ok", "gateway"],
        ["ok", "broker"],
    ]
    assert result.stdout.splitlines()[-1] == "no faults found"
    assert abs(gateway.client_times[0] - time.time()) < 10


def test_a_warning_is_shown_with_its_fix_and_is_no_failure(gateway: GatewayDouble, muster: Muster) -> None:
    gateway.results = [FINE, WARNED]
    result = muster("--quiet")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "warning  dead letters  1 dead letter of spec-validator",
        "                       fix: muster dead-letters list",
        "1 warning",
    ]


def test_an_error_is_an_exit_code(gateway: GatewayDouble, muster: Muster) -> None:
    gateway.results = [FINE, WARNED, FAULTY]
    result = muster()
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1] == "1 error, 1 warning"


def test_for_programs(gateway: GatewayDouble, muster: Muster) -> None:
    gateway.results = [FINE, FAULTY]
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


def test_an_older_gateway_is_a_finding(gateway: GatewayDouble, muster: Muster) -> None:
    gateway.results = None
    result = muster()
    assert result.exit_code == 1
    assert "is older than this command" in result.stdout
    assert "fix: upgrade the services" in result.stdout
