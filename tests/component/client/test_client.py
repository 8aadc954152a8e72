"""The library against a server that speaks the real protocol: retries, resumed streams, pages, errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest

from muster import Client, InvalidDocument, JobSpec, MusterError, NotFound, Rejected, Unavailable
from muster_core.models import Problem
from muster_rpc.v1 import cluster_service_pb2, job_pb2, job_service_pb2

if TYPE_CHECKING:
    from tests.component.client.conftest import GatewayDouble

JOB_ID = "j-aaaaaaaaaaaaaaaa"
MakeJob = Callable[..., job_pb2.Job]


@pytest.fixture
def client(address: str):
    with Client(address, retry_timeout_s=15) as connected:
        yield connected


def request_ids(gateway: GatewayDouble, method: str) -> list[str]:
    return [getattr(request, "request_id", "") for request in gateway.requests(method)]


def test_a_submission_is_retried_with_the_same_request_id(client: Client, gateway: GatewayDouble):
    gateway.failures["SubmitJob"] = [(grpc.StatusCode.UNAVAILABLE, "draining")] * 2
    (submitted,) = client.submit("kind: Job")
    assert submitted.job_id == JOB_ID
    ids = request_ids(gateway, "SubmitJob")
    assert len(ids) == 3
    assert len(set(ids)) == 1
    assert ids[0]


def test_two_submissions_have_two_ids_unless_one_is_given(client: Client, gateway: GatewayDouble):
    client.submit("kind: Job")
    client.submit("kind: Job")
    client.submit("kind: Job", request_id="mine")
    (again,) = client.submit("kind: Job", request_id="mine")
    first, second, *rest = request_ids(gateway, "SubmitJob")
    assert first != second
    assert rest == ["mine", "mine"]
    assert again.duplicate


def test_a_document_is_text_a_file_a_mapping_or_a_spec(
    client: Client, gateway: GatewayDouble, tmp_path: Path
):
    file = tmp_path / "job.yaml"
    file.write_text("kind: Job\n")
    client.submit("kind: Text", source_name="given")
    client.submit(file)
    client.submit({"kind": "Mapping"})
    client.submit(JobSpec(name="typed"))
    text, path, mapping, spec = (
        r for r in gateway.requests("SubmitJob") if isinstance(r, job_service_pb2.SubmitJobRequest)
    )
    assert (text.document.text, text.document.source_name) == ("kind: Text", "given")
    assert (path.document.text, path.document.source_name) == ("kind: Job\n", str(file))
    assert mapping.document.text == '{"kind": "Mapping"}'
    assert spec.spec.name == "typed"


def test_a_rejected_document_lists_every_problem(client: Client, gateway: GatewayDouble):
    gateway.problems = [
        Problem(code="UnknownField", path="spec.x", message="no such field", line=3, column=5)
    ]
    with pytest.raises(InvalidDocument) as refused:
        client.submit("kind: Job")
    assert refused.value.problems == tuple(gateway.problems)


def test_problems_that_no_status_can_hold_are_asked_for(client: Client, gateway: GatewayDouble):
    gateway.problems = [
        Problem(code="UnknownField", path=f"spec.field{number}", message="no such field")
        for number in range(400)
    ]
    with pytest.raises(InvalidDocument) as refused:
        client.submit("kind: Job")
    assert len(refused.value.problems) == refused.value.total == 400


def test_what_could_not_be_sent_is_refused_here(client: Client, gateway: GatewayDouble, tmp_path: Path):
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"kind: Job\nname: caf\xe9\n")
    with pytest.raises(InvalidDocument) as not_text:
        client.submit(latin)
    assert [(p.code, p.line, p.column) for p in not_text.value.problems] == [("NotUtf8", 2, 10)]
    with pytest.raises(InvalidDocument) as too_long:
        client.submit("x" * (512 * 1024 + 1))
    assert too_long.value.problems[0].code == "TooLarge"
    assert gateway.requests("SubmitJob") == []


def test_a_job_is_found_by_id_or_by_name(client: Client, gateway: GatewayDouble, job: MakeJob):
    gateway.publish(job(job_pb2.PHASE_RUNNING, revision=5))
    client.get(JOB_ID)
    client.get("demo", namespace="ml")
    by_id, by_name = (
        r.job for r in gateway.requests("GetJob") if isinstance(r, job_service_pb2.GetJobRequest)
    )
    assert by_id.job_id == JOB_ID
    assert (by_name.name, by_name.namespace) == ("demo", "ml")


def test_a_client_reads_its_own_writes(client: Client, gateway: GatewayDouble, job: MakeJob):
    gateway.publish(job(job_pb2.PHASE_RUNNING, revision=5))
    client.cancel("demo")
    client.get("demo")
    (asked,) = gateway.requests("GetJob")
    assert isinstance(asked, job_service_pb2.GetJobRequest)
    assert asked.job.min_revision == 11


def test_a_list_goes_through_every_page(client: Client, gateway: GatewayDouble, job: MakeJob):
    for number in range(5):
        gateway.publish(job(job_pb2.PHASE_RUNNING, revision=number, job_id=f"job{number}"))
    assert [found.job_id for found in client.list()] == [f"job{number}" for number in range(5)]
    assert len(gateway.requests("ListJobs")) == 3


def test_a_list_can_be_of_some_phases(client: Client, gateway: GatewayDouble, job: MakeJob):
    gateway.publish(job(job_pb2.PHASE_RUNNING, revision=1, job_id="a"))
    gateway.publish(job(job_pb2.PHASE_TIMED_OUT, revision=2, job_id="b"))
    assert [found.job_id for found in client.list(phases=["TimedOut"])] == ["b"]
    with pytest.raises(ValueError, match="not a phase"):
        list(client.list(phases=["Sleeping"]))


def test_a_broken_watch_goes_on_where_it_was(client: Client, gateway: GatewayDouble, job: MakeJob):
    gateway.break_streams_after = [2, 1]
    gateway.publish(
        job(job_pb2.PHASE_QUEUED, revision=3),
        job(job_pb2.PHASE_PLACED, revision=4),
        job(job_pb2.PHASE_RUNNING, revision=8),
        job(job_pb2.PHASE_SUCCEEDED, revision=9),
    )
    assert [state.revision for state in client.watch("demo")] == [3, 4, 8, 9]
    asked = [r for r in gateway.requests("WatchJob") if isinstance(r, job_service_pb2.WatchJobRequest)]
    assert [request.after_revision for request in asked] == [0, 4, 8]
    assert [request.job.job_id for request in asked] == ["", JOB_ID, JOB_ID]


def test_a_watch_that_was_quiet_for_longer_than_the_retry_timeout_resumes_when_it_breaks(
    address: str, gateway: GatewayDouble, job: MakeJob
):
    gateway.publish(job(job_pb2.PHASE_RUNNING, revision=3))
    with Client(address, retry_timeout_s=0.5) as client:

        def break_it() -> None:
            time.sleep(0.8)
            gateway.break_quiet_streams.set()
            gateway.wait_for("WatchJob", 2)
            gateway.publish(job(job_pb2.PHASE_SUCCEEDED, revision=4))

        with ThreadPoolExecutor(1) as beside:
            breaking = beside.submit(break_it)
            # Nothing newer than 3 comes through before the break.
            assert [state.revision for state in client.watch("demo", after_revision=3)] == [4]
            breaking.result()


def test_waiting_for_a_job_returns_it_as_it_ended(client: Client, gateway: GatewayDouble, job: MakeJob):
    gateway.publish(job(job_pb2.PHASE_RUNNING, revision=3))
    ended: list[job_pb2.Job] = []
    waiting = threading.Thread(target=lambda: ended.append(client.wait("demo")))
    waiting.start()
    gateway.wait_for("WatchJob")
    gateway.publish(job(job_pb2.PHASE_FAILED, revision=4))
    waiting.join(20)
    assert [found.status.phase for found in ended] == [job_pb2.PHASE_FAILED]


def test_a_resumed_watch_of_all_jobs_repeats_nothing(client: Client, gateway: GatewayDouble, job: MakeJob):
    gateway.break_streams_after = [2]
    gateway.publish(*(job(job_pb2.PHASE_RUNNING, revision=n, job_id=f"job{n}") for n in (2, 1, 3)))
    output = [response.job.revision for response in islice(client.watch_all(), 3)]
    assert output == [2, 1, 3]


def test_a_watch_that_was_read_too_slowly_starts_anew(client: Client, gateway: GatewayDouble, job: MakeJob):
    gateway.failures["WatchJobs"] = [(grpc.StatusCode.ABORTED, "the watch was read too slowly")]
    gateway.publish(job(job_pb2.PHASE_RUNNING, revision=1))
    assert next(client.watch_all()).job.revision == 1


def test_broken_logs_go_on_where_they_were(client: Client, gateway: GatewayDouble):
    gateway.chunks = [(0, b"one\n"), (1, b"two\n"), (0, b"three\n")]
    gateway.break_streams_after = [2]
    output = [(chunk.replica.index, chunk.data) for chunk in client.logs("demo", follow=True)]
    assert output == gateway.chunks


def test_a_tail_of_logs_that_breaks_is_not_guessed_on(client: Client, gateway: GatewayDouble):
    gateway.chunks = [(0, b"one\n"), (0, b"two\n")]
    gateway.break_streams_after = [1]
    with pytest.raises(Unavailable):
        list(client.logs("demo", tail=5))


def test_nodes_come_from_every_page(client: Client, gateway: GatewayDouble):
    gateway.nodes = [cluster_service_pb2.Node(name=f"n{number}") for number in range(3)]
    assert [node.name for node in client.nodes()] == ["n0", "n1", "n2"]
    assert client.node("n2").name == "n2"
    assert client.cluster().version == "9.9.9"


def test_commands_send_their_arguments(client: Client, gateway: GatewayDouble, job: MakeJob):
    gateway.publish(job(job_pb2.PHASE_RUNNING, revision=5))
    assert client.scale("demo", 4, role="worker").revision == 13
    assert client.delete("demo").job_id == JOB_ID
    assert client.explain("demo").job_id == JOB_ID
    (scale,) = gateway.requests("ScaleJob")
    assert isinstance(scale, job_service_pb2.ScaleJobRequest)
    assert (scale.role, scale.replicas, bool(scale.request_id)) == ("worker", 4, True)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (grpc.StatusCode.NOT_FOUND, NotFound),
        (grpc.StatusCode.FAILED_PRECONDITION, Rejected),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, Rejected),
        (grpc.StatusCode.INVALID_ARGUMENT, Rejected),
        (grpc.StatusCode.INTERNAL, MusterError),
    ],
)
def test_each_refusal_has_its_error(
    client: Client, gateway: GatewayDouble, code: grpc.StatusCode, expected: type[MusterError]
):
    gateway.failures["GetJob"] = [(code, "so it is")]
    with pytest.raises(expected, match="so it is") as raised:
        client.get("demo")
    assert type(raised.value) is expected


def test_what_is_neither_id_nor_name_is_not_found(client: Client):
    with pytest.raises(NotFound, match="neither a job id"):
        client.get("No_Such")


def test_an_unreachable_server_is_reported_in_one_sentence():
    with (
        Client("127.0.0.1:1", retry_timeout_s=0.3) as client,
        pytest.raises(Unavailable, match=r"cannot reach Muster at 127\.0\.0\.1:1: is `muster up` running\?"),
    ):
        client.get("demo")


def test_a_server_that_is_not_ready_has_its_own_message(gateway: GatewayDouble, address: str):
    gateway.failures["GetJob"] = [(grpc.StatusCode.UNAVAILABLE, "the bus is away")] * 100
    with (
        Client(address, retry_timeout_s=0.3) as hasty,
        pytest.raises(Unavailable, match="not ready: the bus is away"),
    ):
        hasty.get("demo")
