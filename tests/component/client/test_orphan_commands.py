"""``muster orphans``, against a double of the gateway."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from click.testing import CliRunner, Result
from google.protobuf import timestamp_pb2

from muster_rpc.v1 import job_pb2, orphan_service_pb2 as pb, orphan_service_pb2_grpc

Muster = Callable[..., Result]
FIRST, SECOND = "j-aaaaaaaaaaaaaaaa", "j-bbbbbbbbbbbbbbbb"
REFUSAL = "the orphan cannot be adopted, because its specification is not retained"


def at(seconds: float) -> timestamp_pb2.Timestamp:
    return timestamp_pb2.Timestamp(seconds=int(time.time() + seconds))


def orphan(job_id: str, name: str) -> pb.Orphan:
    replicas = [
        pb.OrphanReplica(
            replica=job_pb2.ReplicaRef(role="worker", index=index, attempt=1),
            state=job_pb2.REPLICA_STATE_RUNNING if index else job_pb2.REPLICA_STATE_EXITED,
            node=f"n{index}",
        )
        for index in range(2)
    ]
    return pb.Orphan(
        job_id=job_id,
        name=name,
        namespace="default",
        replicas=replicas,
        found_at=at(-121),
        removal_at=at(18_030),
    )


class OrphanDouble(orphan_service_pb2_grpc.OrphanServiceServicer):
    """Has two orphans, of which the second has nothing that recreates its record."""

    def __init__(self) -> None:
        self.orphans = [
            orphan(FIRST, "digits"),
            orphan(SECOND, ""),
        ]
        self.orphans[1].removal_requested = True
        self.received: list[tuple[str, str]] = []

    def ListOrphans(
        self, request: pb.ListOrphansRequest, context: grpc.ServicerContext
    ) -> pb.ListOrphansResponse:
        # Pages of one orphan.
        rest = [one for one in self.orphans if one.job_id > request.page_token]
        return pb.ListOrphansResponse(
            orphans=rest[:1], next_page_token=rest[0].job_id if len(rest) > 1 else ""
        )

    def AdoptOrphan(
        self, request: pb.AdoptOrphanRequest, context: grpc.ServicerContext
    ) -> pb.AdoptOrphanResponse:
        self.received.append(("adopt", request.job_id))
        if request.job_id == SECOND:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, REFUSAL)
        return pb.AdoptOrphanResponse(job_id=request.job_id, revision=7)

    def RemoveOrphan(
        self, request: pb.RemoveOrphanRequest, context: grpc.ServicerContext
    ) -> pb.RemoveOrphanResponse:
        self.received.append(("remove", request.job_id))
        return pb.RemoveOrphanResponse(job_id=request.job_id)


@pytest.fixture
def double() -> OrphanDouble:
    return OrphanDouble()


@pytest.fixture
def muster(double: OrphanDouble, monkeypatch: pytest.MonkeyPatch) -> Iterator[Muster]:
    from muster._cli.app import app

    server = grpc.server(ThreadPoolExecutor(4))
    orphan_service_pb2_grpc.add_OrphanServiceServicer_to_server(double, server)
    monkeypatch.setenv("MUSTER_SERVER", f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
    server.start()

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, list(arguments), prog_name="muster")

    yield run
    server.stop(None).wait(20)


def test_orphans_are_listed_within_80_columns(muster: Muster) -> None:
    lines = muster("orphans").output.splitlines()

    # Seconds may pass.
    lines = [re.sub(r"2m0\ds", "2m01s", line) for line in lines]
    assert lines == [
        "JOB                  NAME     QUEUE     REPLICAS   SINCE   REMOVED IN   NODES",
        f"{FIRST}   digits   default   1/2        2m01s   5h00m        n0,n1",
        f"{SECOND}                      1/2        2m01s   now          n0,n1",
    ]


def test_no_orphans_are_a_note(double: OrphanDouble, muster: Muster) -> None:
    double.orphans.clear()

    result = muster("orphans")

    assert (result.stdout, result.stderr) == ("", "no orphans: every replica belongs to a job\n")


def test_programs_get_ids_or_messages(muster: Muster) -> None:
    assert muster("orphans", "-o", "name").stdout.split() == [FIRST, SECOND]
    assert [one["jobId"] for one in json.loads(muster("orphans", "-o", "json").stdout)] == [FIRST, SECOND]


def test_an_orphan_is_adopted_by_name(double: OrphanDouble, muster: Muster) -> None:
    result = muster("orphans", "adopt", "digits")

    assert result.output == f"digits is adopted; see `muster watch {FIRST}`\n"
    assert double.received == [("adopt", FIRST)]


def test_orphans_are_removed_by_id(double: OrphanDouble, muster: Muster) -> None:
    result = muster("orphans", "remove", FIRST, SECOND, "-o", "name")

    assert result.output.split() == [FIRST, SECOND]
    assert double.received == [("remove", FIRST), ("remove", SECOND)]


def test_a_name_of_several_orphans_needs_an_id(double: OrphanDouble, muster: Muster) -> None:
    double.orphans[1].name = "digits"

    result = muster("orphans", "remove", "digits")

    assert result.exit_code != 0
    assert f"2 orphans have the name digits; give one of the ids {FIRST}, {SECOND}" in result.stderr
    assert double.received == []


def test_a_refusal_says_why(muster: Muster) -> None:
    result = muster("orphans", "adopt", SECOND)

    assert result.exit_code != 0
    assert REFUSAL in result.stderr
