"""``muster simulate``: tables, curves, JSON, plots, and the problems of its input."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import grpc
import pytest
from click.testing import CliRunner, Result

from muster._cli.app import app
from muster_core.models import DEFAULT_QUEUE, Node, QueueSpec, Resources
from muster_rpc.convert import job_to_proto, node_to_proto, queue_to_proto, timestamp_to_proto
from muster_rpc.v1 import (
    cluster_service_pb2,
    cluster_service_pb2_grpc,
    job_pb2,
    job_service_pb2,
    job_service_pb2_grpc,
    queue_service_pb2,
    queue_service_pb2_grpc,
)
from muster_testing.pool import ScenarioPool

TRACE = """name,submit_s,replicas,min,max,work_s,serial
a,0,2,1,8,400,0.1
b,5,6,2,8,600,0.1
c,8,2,1,4,100,0.1
"""
NO_SERVER = "127.0.0.1:1"
START_US = 1_700_000_000_000_000

Run = Callable[..., Result]


@pytest.fixture
def muster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run the command in a folder with a trace, with a server that does not answer."""
    monkeypatch.setenv("MUSTER_SERVER", NO_SERVER)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trace.csv").write_text(TRACE)

    def run(arguments: str, *, stdin: str | None = None) -> Result:
        return CliRunner().invoke(app, ["simulate", *arguments.split()], input=stdin, prog_name="muster")

    return run


def simulated(shown: Result) -> list[dict[str, Any]]:
    """The results in JSON."""
    assert shown.exit_code == 0, shown.stderr
    return json.loads(shown.stdout)["results"]


def test_a_table_marks_the_best_value_and_curves_follow(muster: Run) -> None:
    shown = muster("trace.csv --cluster 2x4gpu --policy fifo,marginal_gain")
    assert shown.exit_code == 0
    head, completion, *_ = shown.stdout.splitlines()
    assert head.split() == ["fifo", "marginal_gain"]
    assert completion.startswith("mean completion")
    assert completion.rstrip().endswith("*")
    assert "jobs completed within a time" in shown.stdout
    assert "GPUs held over time" in shown.stdout
    assert "o fifo" in shown.stdout
    assert "3 jobs of trace.csv (muster), the last arrives after 8s" in shown.stderr


def test_the_curves_can_be_omitted(muster: Run) -> None:
    shown = muster("trace.csv --cluster 2x4gpu --policy fifo --no-curves")
    assert "jobs that ended" in shown.stdout
    assert "over time" not in shown.stdout


def test_json_has_the_measures_and_every_job(muster: Run) -> None:
    shown = muster("trace.csv --cluster 2x4gpu --policy fifo --policy max_min -o json")
    assert shown.stderr == ""
    assert json.loads(shown.stdout)["cluster"] == {"nodes": 2, "gpuMilli": 8000}
    fifo, max_min = simulated(shown)
    assert (fifo["policy"], max_min["policy"]) == ("fifo", "max_min")
    assert [one["job"] for one in fifo["perJob"]] == ["a", "b", "c"]
    assert fifo["perJob"][0]["finished"] == pytest.approx(2 + 400 * 1.1 / 2, abs=0.001)
    assert fifo["resizesPerJob"] == 0
    assert set(fifo["completionSeconds"]) == {"mean", "median", "p99", "max"}


def test_a_plot_is_an_svg_with_the_curves_of_every_policy(muster: Run, tmp_path: Path) -> None:
    assert muster("trace.csv --cluster 2x4gpu --policy fifo,max_min --plot out.svg").exit_code == 0
    root = ElementTree.parse(tmp_path / "out.svg").getroot()
    namespace = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{namespace}g")) == 2
    assert len([curve for curve in root.iter(f"{namespace}polyline") if curve.get("points")]) == 4
    labels = [label.text for label in root.iter(f"{namespace}text")]
    assert labels.count("fifo") == labels.count("max_min") == 2
    assert {"jobs completed within a time", "completion (min)", "100%"} <= set(labels)


def test_a_plot_with_another_suffix_is_a_usage_error(muster: Run, tmp_path: Path) -> None:
    shown = muster("trace.csv --cluster 2x4gpu --plot out.png")
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert "'out.png' does not end in .svg" in shown.stderr
    assert not (tmp_path / "out.png").exists()


def test_a_trace_from_standard_input_until_a_given_time(muster: Run) -> None:
    shown = muster("- --cluster 1x8gpu --policy fifo --until 1m --launch 0s -o json", stdin=TRACE)
    (fifo,) = simulated(shown)
    assert (fifo["finished"], fifo["unfinished"]) == (0, 3)
    assert fifo["perJob"][0]["running"] == 0


def test_rigid_jobs_can_be_made_elastic(muster: Run, tmp_path: Path) -> None:
    (tmp_path / "rigid.csv").write_text("submit_s,replicas,duration_s\n0,2,600\n")
    fifo, dragon = simulated(muster("rigid.csv --cluster 1x8gpu --policy fifo,dragon --elastic 4 -o json"))
    assert fifo["makespanSeconds"] == pytest.approx(602, abs=1)
    assert dragon["perJob"][0]["largest"] == 8
    assert dragon["makespanSeconds"] < 0.7 * fifo["makespanSeconds"]


def test_queues_of_a_document_apply(muster: Run, tmp_path: Path) -> None:
    queues = "\n---\n".join(
        f"apiVersion: muster.dev/v1\nkind: Queue\nmetadata: {{name: {name}}}\nspec: {{limit: {{gpu: {gpus}}}}}"
        for name, gpus in (("small", 1), ("large", 8))
    )
    (tmp_path / "queues.yaml").write_text(queues)
    (tmp_path / "two.csv").write_text(
        "name,submit_s,replicas,duration_s,queue\na,0,2,60,small\nb,0,2,60,large\n"
    )
    (fifo,) = simulated(muster("two.csv --cluster 1x8gpu --queues queues.yaml --policy fifo -o json"))
    assert {one["job"]: one["placed"] for one in fifo["perJob"]} == {"a": None, "b": 0}


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ("", 2, "--from-live"),
        ("trace.csv", 2, "--cluster"),
        ("trace.csv --cluster 2x4gpu --policy best", 2, "there is no policy 'best'"),
        ("trace.csv --cluster 2x4gpu --until soon", 2, "not a duration"),
        ("trace.csv --cluster 2x4gpu -o name", 2, "does not apply"),
        ("nowhere.csv --cluster 2x4gpu", 2, "nowhere.csv"),
        ("trace.csv --cluster nowhere.yaml", 2, "nowhere.yaml"),
        ("trace.csv --cluster 2x4gpu --format openb", 3, "cpu_milli"),
        ("trace.csv --cluster trace.csv", 3, "do not describe a cluster"),
        ("trace.csv --cluster 2x4gpu --queues trace.csv", 3, "is refused"),
        ("--from-live", 5, "cannot reach Muster"),
    ],
)
def test_a_problem_is_reported_with_its_exit_code(muster: Run, arguments: str, code: int, words: str) -> None:
    shown = muster(arguments)
    assert (shown.exit_code, words in shown.stderr) == (code, True), shown.stderr


def test_an_error_of_a_trace_is_shown_with_its_line(muster: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("submit_s,replicas,duration_s\n0,2,60\n0,two,60\n")
    shown = muster("bad.csv --cluster 2x4gpu")
    assert shown.exit_code == 3
    assert "bad.csv:3: error[Invalid] replicas must be a number, not 'two'" in shown.stderr
    assert "0,two,60" in shown.stderr


class Live(
    job_service_pb2_grpc.JobServiceServicer,
    cluster_service_pb2_grpc.ClusterServiceServicer,
    queue_service_pb2_grpc.QueueServiceServicer,
):
    """Two nodes; a running job, an earlier success of its name, a waiting job and a suspended one."""

    def ListNodes(
        self, request: cluster_service_pb2.ListNodesRequest, context: grpc.ServicerContext
    ) -> cluster_service_pb2.ListNodesResponse:
        nodes = [Node(name=name, allocatable=Resources(cpu=16_000, gpu=4_000)) for name in ("n1", "n2")]
        return cluster_service_pb2.ListNodesResponse(
            nodes=[node_to_proto(node, pool="local", allocated=Resources()) for node in nodes]
        )

    def GetQueue(
        self, request: queue_service_pb2.GetQueueRequest, context: grpc.ServicerContext
    ) -> queue_service_pb2.GetQueueResponse:
        # Revision 0: no queues were applied.
        queue = queue_service_pb2.Queue(spec=queue_to_proto(QueueSpec(name=DEFAULT_QUEUE)))
        return queue_service_pb2.GetQueueResponse(queue=queue)

    def ListJobs(
        self, request: job_service_pb2.ListJobsRequest, context: grpc.ServicerContext
    ) -> job_service_pb2.ListJobsResponse:
        jobs = [
            _job("waiting", 8, job_pb2.PHASE_QUEUED, submitted_s=20),
            _job("known", 4, job_pb2.PHASE_RUNNING, submitted_s=10),
            _job("known", 4, job_pb2.PHASE_SUCCEEDED, submitted_s=0, ran_s=300),
            _job("suspended", 4, job_pb2.PHASE_SUSPENDED, submitted_s=0),
        ]
        return job_service_pb2.ListJobsResponse(jobs=jobs, total_size=len(jobs))


def _job(
    name: str, workers: int, phase: job_pb2.Phase.ValueType, *, submitted_s: int, ran_s: int = 0
) -> job_pb2.Job:
    status = job_pb2.JobStatus(
        phase=phase, submitted_at=timestamp_to_proto(START_US + submitted_s * 1_000_000)
    )
    if ran_s:
        status.running_at.FromMicroseconds(START_US)
        status.finished_at.FromMicroseconds(START_US + ran_s * 1_000_000)
    return job_pb2.Job(
        job_id=f"{name}-{phase}",
        name=name,
        namespace="default",
        spec=job_to_proto(ScenarioPool().rigid(name, workers)),
        status=status,
    )


@pytest.fixture
def live() -> Iterator[str]:
    """The address of a ``Live`` system."""
    server = grpc.server(ThreadPoolExecutor(max_workers=2))
    double = Live()  # pyright: ignore[reportAbstractUsage] (no other method is called)
    job_service_pb2_grpc.add_JobServiceServicer_to_server(double, server)
    cluster_service_pb2_grpc.add_ClusterServiceServicer_to_server(double, server)
    queue_service_pb2_grpc.add_QueueServiceServicer_to_server(double, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait(5)


def test_the_jobs_of_a_running_system(muster: Run, live: str) -> None:
    shown = muster(f"--from-live --server {live} --policy current --assume 10m -o json")
    (current,) = simulated(shown)
    assert json.loads(shown.stdout)["cluster"] == {"nodes": 2, "gpuMilli": 8000}
    known, waiting = current["perJob"]
    assert known["job"] == f"known-{job_pb2.PHASE_RUNNING}"
    assert known["finished"] == pytest.approx(2 + 300, abs=1)
    assert waiting["placed"] == pytest.approx(known["finished"], abs=1)
    assert waiting["finished"] == pytest.approx(waiting["placed"] + 2 + 600, abs=1)


def test_the_jobs_of_a_running_system_on_another_cluster(muster: Run, live: str) -> None:
    (current,) = simulated(muster(f"--from-live --server {live} --cluster 3x4gpu --policy current -o json"))
    assert current["perJob"][1]["placed"] == pytest.approx(0, abs=0.001)
