"""The ``muster`` command, as a user types it."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest
import yaml

from muster._cli.versions import SERVICES
from muster_core.models import Problem, Severity
from muster_rpc.v1 import cluster_service_pb2, explanation_pb2, job_pb2, job_service_pb2

if TYPE_CHECKING:
    from tests.component.client.conftest import GatewayDouble, Muster, Process

JOB_ID = "j-aaaaaaaaaaaaaaaa"
MakeJob = Callable[..., job_pb2.Job]
MakeReplica = Callable[..., job_pb2.Replica]
HISTORY = (
    ("JobSubmitted", "Submitted", "by ann"),
    ("JobPlaced", "Placed", "attempt 1; n1: worker-0"),
    ("JobFinished", "WorkersSucceeded", "all workers ended well"),
)


@pytest.fixture
def document(tmp_path: Path) -> Path:
    file = tmp_path / "job.yaml"
    file.write_text("apiVersion: kubeflow.org/v1\nkind: TFJob\nspec:\n  cleanPodPolice: All\n")
    return file


def problem(severity: Severity = Severity.ERROR) -> Problem:
    return Problem(
        code="UnknownField",
        path="spec.cleanPodPolice",
        message="there is no field cleanPodPolice",
        severity=severity,
        line=4,
        column=3,
        fix="did you mean cleanPodPolicy?",
    )


def test_a_submission_is_confirmed(muster: Muster, document: Path):
    done = muster("submit", "-f", str(document))
    assert done.exit_code == 0
    assert done.stdout == f"demo submitted as {JOB_ID}\n"
    assert "muster watch demo" in done.stderr


def test_a_document_may_come_from_standard_input(muster: Muster, gateway: GatewayDouble):
    done = muster("submit", "-f", "-", "-n", "ml", "--request-id", "mine", "-o", "name", stdin="kind: Job")
    assert (done.exit_code, done.stdout) == (0, f"{JOB_ID}\n")
    (request,) = gateway.requests("SubmitJob")
    assert isinstance(request, job_service_pb2.SubmitJobRequest)
    assert (request.document.text, request.document.source_name) == ("kind: Job", "<stdin>")
    assert (request.namespace, request.request_id) == ("ml", "mine")


@pytest.mark.parametrize("command", [("submit",), ("validate", "--online")])
def test_a_bad_document_is_shown_with_line_caret_and_fix(
    muster: Muster, gateway: GatewayDouble, document: Path, command: tuple[str, ...]
):
    gateway.problems = [problem()]
    done = muster(*command, "-f", str(document))
    assert done.exit_code == 3
    assert f"{document}:4:3: error[UnknownField]" in done.stderr
    assert "cleanPodPolice: All\n      ^\n" in done.stderr
    assert "did you mean cleanPodPolicy?" in done.stderr
    assert "1 error" in done.output


def test_bytes_that_are_no_text_are_refused_like_any_other_problem(muster: Muster):
    for command in (("validate",), ("validate", "--online"), ("submit",)):
        done = muster(*command, "-f", "-", stdin=b"kind: Job\nname: caf\xe9\n")
        assert done.exit_code == 3
        assert "<stdin>:2:10: error[NotUtf8]" in done.stderr


def test_a_folder_is_no_document(muster: Muster, tmp_path: Path):
    for command in ("validate", "submit", "convert", "apply"):
        option = () if command == "convert" else ("-f",)
        done = muster(command, *option, str(tmp_path))
        assert (done.exit_code, done.stderr) == (
            2,
            f"muster: {tmp_path}: a folder is not a document; name the files in it\n",
        )


def test_a_file_that_is_not_there_is_a_usage_error(muster: Muster):
    gone = muster("validate", "-f", "/nonexistent/job.yaml")
    assert (gone.exit_code, gone.stderr) == (2, "muster: /nonexistent/job.yaml: No such file or directory\n")


def test_warnings_are_shown_and_the_job_is_submitted(muster: Muster, gateway: GatewayDouble, document: Path):
    gateway.warnings = [problem(Severity.WARNING)]
    done = muster("submit", "-f", str(document))
    assert done.exit_code == 0
    assert "warning[UnknownField]" in done.stderr
    valid = muster("validate", "--online", "-f", str(document))
    assert (valid.exit_code, valid.stdout) == (0, f"{document}: 1 warning; means demo\n")


def test_a_warning_of_several_jobs_is_shown_once(muster: Muster, gateway: GatewayDouble, document: Path):
    gateway.warnings = [problem(Severity.WARNING), problem(Severity.WARNING)]
    assert muster("submit", "-f", str(document)).stderr.count("warning[UnknownField]") == 1


def test_follow_prints_events_logs_and_the_result(
    muster: Muster, gateway: GatewayDouble, document: Path, job: MakeJob, replica: MakeReplica
):
    runs = (replica(0, job_pb2.REPLICA_STATE_RUNNING),)
    gateway.chunks = [(0, b"step 1\nst"), (0, b"ep 2\n")]
    gateway.publish(
        job(job_pb2.PHASE_SUBMITTED, revision=1, history=HISTORY[:1]),
        job(
            job_pb2.PHASE_RUNNING,
            revision=2,
            replicas=runs,
            history=HISTORY[:2],
            reason="its replica has started",
        ),
        job(job_pb2.PHASE_SUCCEEDED, revision=3, replicas=runs, history=HISTORY),
    )
    done = muster("submit", "-f", str(document), "--follow")
    lines = done.stdout.splitlines()
    assert done.exit_code == 0
    assert [line for line in lines if line.startswith("[worker-0]")] == [
        "[worker-0] step 1",
        "[worker-0] step 2",
    ]
    events = [line for line in lines if not line.startswith("[")]
    assert events == [
        f"demo submitted as {JOB_ID}",
        "22:13:20  submitted   by ann",
        "22:13:21  placed      attempt 1; n1: worker-0",
        "22:13:21  running     its replica has started",
        "22:13:22  finished    all workers ended well (WorkersSucceeded)",
        "demo succeeded after 1m35s",
    ]


def test_following_asks_for_no_state_before_the_submission(
    muster: Muster, gateway: GatewayDouble, document: Path
):
    gateway.failures["WatchJob"] = [(grpc.StatusCode.NOT_FOUND, f"no job {JOB_ID}")]
    done = muster("submit", "-f", str(document), "--follow")
    (asked,) = gateway.requests("WatchJob")
    assert isinstance(asked, job_service_pb2.WatchJobRequest)
    assert asked.job.min_revision == 7
    assert (done.exit_code, done.stderr) == (4, f"muster: no job {JOB_ID}\n")


def test_following_survives_logs_that_cannot_be_had(
    muster: Muster, gateway: GatewayDouble, document: Path, job: MakeJob, replica: MakeReplica
):
    gateway.failures["StreamLogs"] = [(grpc.StatusCode.INTERNAL, "no disk")] * 2
    runs = (replica(0, job_pb2.REPLICA_STATE_RUNNING),)
    gateway.publish(
        job(job_pb2.PHASE_RUNNING, revision=2, replicas=runs),
        job(job_pb2.PHASE_FAILED, revision=3, replicas=runs, reason="worker-0 exited with 1"),
    )
    done = muster("submit", "-f", str(document), "--follow")
    assert done.exit_code == 1
    assert "logs are unavailable" in done.stdout
    assert "demo failed after 1m35s: worker-0 exited with 1" in done.stdout


def test_waiting_is_silent_and_ends_with_the_outcome(
    muster: Muster, gateway: GatewayDouble, document: Path, job: MakeJob
):
    gateway.publish(job(job_pb2.PHASE_FAILED, revision=3, reason="worker-0 exited with 1", history=HISTORY))
    done = muster("submit", "-f", str(document), "--wait")
    assert done.exit_code == 1
    assert done.stdout.splitlines()[1:] == ["demo failed after 1m35s: worker-0 exited with 1"]
    for_programs = muster("submit", "-f", str(document), "--wait", "-o", "json")
    assert json.loads(for_programs.stdout)[0]["status"]["phase"] == "PHASE_FAILED"


def test_a_rejection_after_the_answer_is_shown_like_one_before_it(
    muster: Muster, gateway: GatewayDouble, document: Path, job: MakeJob
):
    rejected = job(job_pb2.PHASE_REJECTED, revision=3, reason="the document has 1 error")
    rejected.status.problems.add(
        code="UnknownField", path="spec.x", message="no such field", line=4, column=3
    )
    gateway.publish(rejected)
    done = muster("submit", "-f", str(document), "--follow")
    assert done.exit_code == 3
    assert "cleanPodPolice: All" in done.stderr


def test_a_list_is_a_table_or_data(
    muster: Muster, gateway: GatewayDouble, job: MakeJob, replica: MakeReplica
):
    gateway.publish(
        job(
            job_pb2.PHASE_QUEUED, revision=1, name="first", job_id="j-bbbbbbbbbbbbbbbb", reason="needs 2 GPUs"
        ),
        job(job_pb2.PHASE_RUNNING, revision=2, replicas=(replica(0, job_pb2.REPLICA_STATE_RUNNING),)),
    )
    head, first, demo = muster("list").stdout.splitlines()
    assert head.split() == ["NAME", "PHASE", "REPLICAS", "QUEUE", "AGE", "REASON"]
    assert first.split()[:4] == ["first", "Queued", "0/2", "research"]
    assert first.endswith("needs 2 GPUs")
    assert demo.split()[:3] == ["demo", "Running", "1/1"]
    assert [found["name"] for found in json.loads(muster("list", "-o", "json").stdout)] == ["first", "demo"]
    assert [found["name"] for found in yaml.safe_load(muster("-o", "yaml", "list").stdout)] == [
        "first",
        "demo",
    ]
    assert muster("list", "-o", "name", "--phase", "running").stdout == f"{JOB_ID}\n"


def test_jobs_are_listed_in_the_order_asked_for(muster: Muster, gateway: GatewayDouble, job: MakeJob):
    old, young = job(job_pb2.PHASE_SUCCEEDED, revision=1), job(job_pb2.PHASE_QUEUED, revision=2)
    old.job_id, old.name, old.status.queue, old.spec.priority = "j-bbbbbbbbbbbbbbbb", "alpha", "b", 7
    young.name, young.status.queue = "zeta", "a"
    young.status.submitted_at.seconds = old.status.submitted_at.seconds + 60
    gateway.publish(old, young)

    def listed(*words: str) -> list[str]:
        return [found["name"] for found in json.loads(muster("list", "-o", "json", *words).stdout)]

    assert listed() == listed("--sort", "age") == ["zeta", "alpha"]
    assert listed("--sort", "name") == ["alpha", "zeta"]
    assert listed("--sort", "queue") == ["zeta", "alpha"]
    assert listed("--sort", "priority") == ["alpha", "zeta"]
    assert listed("--sort", "phase") == ["zeta", "alpha"]


def test_a_list_of_all_namespaces_overrides_the_namespace(muster: Muster, gateway: GatewayDouble):
    muster("-n", "ml", "list")
    muster("-n", "ml", "list", "-A")
    asked = [r for r in gateway.requests("ListJobs") if isinstance(r, job_service_pb2.ListJobsRequest)]
    assert [request.namespace for request in asked] == ["ml", "-"]


def test_the_page_of_a_waiting_job_shows_its_position(muster: Muster, gateway: GatewayDouble, job: MakeJob):
    gateway.publish(job(job_pb2.PHASE_QUEUED, revision=1, reason="needs 2 GPUs"))
    gateway.explanation = explanation_pb2.Explanation(
        job_id=JOB_ID, queue="research", position=2, ahead=["big"], expected_from="when big ends"
    )
    lines = muster("get", "demo").stdout.splitlines()
    assert "Queue:          research, number 2, after big" in lines
    assert "Expected start: when big ends" in lines


def test_the_page_of_a_job_that_waits_does_without_a_scheduler(
    muster: Muster, gateway: GatewayDouble, job: MakeJob
):
    gateway.publish(job(job_pb2.PHASE_QUEUED, revision=1))
    gateway.failures["ExplainJob"] = [(grpc.StatusCode.INTERNAL, "it is away")]
    shown = muster("get", "demo")
    assert shown.exit_code == 0
    assert "Queue:     research" in shown.stdout.splitlines()


def test_the_page_of_a_resized_job_shows_generation_and_attempt_of_replicas(
    muster: Muster, gateway: GatewayDouble, job: MakeJob, replica: MakeReplica
):
    stayed, joined = (replica(0, job_pb2.REPLICA_STATE_RUNNING), replica(1, job_pb2.REPLICA_STATE_RUNNING))
    joined.generation = 2
    gateway.publish(job(job_pb2.PHASE_RUNNING, revision=1, replicas=(stayed, joined)))
    page = muster("get", "demo").stdout
    assert "GENERATION" in page
    assert "ATTEMPT" not in page


def test_jobs_with_the_same_name_are_shown_with_their_ids(
    muster: Muster, gateway: GatewayDouble, job: MakeJob
):
    gateway.publish(
        job(job_pb2.PHASE_SUCCEEDED, revision=1, job_id="j-bbbbbbbbbbbbbbbb"),
        job(job_pb2.PHASE_QUEUED, revision=2),
    )
    assert "j-bbbbbbbbbbbbbbbb" in muster("list").stdout


def test_a_list_that_goes_on_prints_every_change(process: Process, gateway: GatewayDouble, job: MakeJob):
    gateway.publish(job(job_pb2.PHASE_QUEUED, revision=1, reason="needs 2 GPUs"))
    listing = process("list", "-w", "--queue", "research", "-o", "json")
    assert listing.stdout is not None
    assert json.loads(listing.stdout.readline())["job"]["status"]["phase"] == "PHASE_QUEUED"
    gateway.publish(job(job_pb2.PHASE_RUNNING, revision=2))
    assert json.loads(listing.stdout.readline())["job"]["status"]["phase"] == "PHASE_RUNNING"
    listing.send_signal(signal.SIGINT)
    listing.communicate(timeout=30)
    assert listing.returncode == 130


def test_an_empty_list_prints_a_message_to_stderr(muster: Muster):
    done = muster("list")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "no jobs\n")
    assert muster("list", "-o", "json").stdout == "[]\n"


def test_a_job_is_shown_on_one_page(
    muster: Muster, gateway: GatewayDouble, job: MakeJob, replica: MakeReplica
):
    ended = replica(1, job_pb2.REPLICA_STATE_EXITED, signal=9, reason="out of memory")
    replicas = (replica(0, job_pb2.REPLICA_STATE_RUNNING), ended)
    gateway.publish(
        job(
            job_pb2.PHASE_RUNNING,
            revision=2,
            replicas=replicas,
            history=HISTORY,
            reason="all run",
            code="Running",
        )
    )
    done = muster("get", "demo")
    assert "Reason:    all run (Running)" in done.stdout
    assert "Replicas:  2 worker (1 to 4)" in done.stdout
    assert "Trace:     0af7651916cd43dd8448eb211c80319c" in done.stdout
    assert "signal 9, out of memory" in done.stdout
    assert "+1.0s" in done.stdout
    assert json.loads(muster("get", "demo", "-o", "json").stdout)["jobId"] == JOB_ID


def test_a_watch_prints_lines_or_lines_of_json(muster: Muster, gateway: GatewayDouble, job: MakeJob):
    gateway.publish(
        job(job_pb2.PHASE_QUEUED, revision=1, reason="needs 2 GPUs", history=HISTORY[:1]),
        job(job_pb2.PHASE_SUCCEEDED, revision=2, history=HISTORY),
    )
    done = muster("watch", "demo")
    assert done.exit_code == 0
    assert done.stdout.splitlines()[0] == "22:13:20  queued      0/2 replicas; needs 2 GPUs"
    assert done.stdout.splitlines()[-1] == "demo succeeded after 1m35s"
    lines = muster("watch", "demo", "-o", "json").stdout.splitlines()
    assert [json.loads(line)["revision"] for line in lines] == ["1", "2"]


def test_logs_are_named_when_there_are_several_replicas(muster: Muster, gateway: GatewayDouble, job: MakeJob):
    gateway.publish(job(job_pb2.PHASE_RUNNING, revision=1))
    gateway.chunks = [(0, b"one\n"), (1, b"two\n")]
    assert muster("logs", "demo").stdout == "[worker-0] one\n[worker-1] two\n"
    gateway.chunks = [(0, b"one\n")]
    assert muster("logs", "demo", "--replica", "demo-worker-0", "--tail", "5").stdout == "one\n"
    request = gateway.requests("StreamLogs")[-1]
    assert isinstance(request, job_service_pb2.StreamLogsRequest)
    assert (list(request.replicas), request.tail) == ([job_pb2.ReplicaSelector(role="worker", index=0)], 5)


def test_commands_are_confirmed(muster: Muster, gateway: GatewayDouble, job: MakeJob):
    gateway.publish(job(job_pb2.PHASE_RUNNING, revision=1))
    assert muster("cancel", "demo", "-m", "enough").stdout == "demo is being cancelled\n"
    assert muster("delete", "demo").stdout == "demo is being deleted\n"
    assert muster("scale", "demo", "worker=4").exit_code == 0
    (scale,) = gateway.requests("ScaleJob")
    assert isinstance(scale, job_service_pb2.ScaleJobRequest)
    assert (scale.role, scale.replicas) == ("worker", 4)
    assert muster("restart", "demo").stdout == "demo is being restarted\n"
    assert muster("restart", "demo", "--replica", "worker-1").stdout == "demo restarts worker-1\n"
    gang, one = gateway.requests("RestartJob")
    assert isinstance(gang, job_service_pb2.RestartJobRequest)
    assert isinstance(one, job_service_pb2.RestartJobRequest)
    assert not gang.HasField("replica")
    assert one.replica == job_pb2.ReplicaRef(role="worker", index=1)
    assert muster("scale", "demo", "worker").exit_code == 2
    assert muster("scale", "demo", "worker=99999999999999").exit_code == 2


def test_versions_of_both_sides_are_printed(muster: Muster, address: str):
    told = muster("version")
    assert f"server 9.9.9 at {address}" in told.stdout
    assert "does not list its instances" in told.stderr
    assert json.loads(muster("version", "--client", "-o", "json").stdout).keys() == {"client"}


def test_every_instance_is_listed_with_its_version_and_a_mixture_is_reported(
    muster: Muster, gateway: GatewayDouble
):
    gateway.instances = [
        cluster_service_pb2.Instance(service=service, name=name, version=version)
        for service, name, version in (
            ("gateway", "gateway", "9.9.9"),
            ("pod-launcher", "pod-launcher", "9.9.8"),
            ("scaler", "scaler", "9.9.9"),
            ("scheduler", "scheduler", "9.9.9"),
            ("scheduler", "scheduler-2", "9.9.8"),
            ("status-tracker", "status-tracker", "9.9.9"),
        )
    ]
    told = muster("version").stdout
    assert "scheduler        scheduler-2      9.9.8" in told
    assert (
        "warning: versions are mixed: 2 instances of 9.9.8, 4 instances of 9.9.9; see docs/upgrading.md"
        in told
    )
    assert "warning: no instance of spec-validator states its version" in told
    answer = json.loads(muster("version", "-o", "json").stdout)
    assert (len(answer["instances"]), len(answer["warnings"])) == (6, 3)
    assert answer["instances"][1] == {"service": "pod-launcher", "name": "pod-launcher", "version": "9.9.8"}


def test_equal_versions_are_no_warning(muster: Muster, gateway: GatewayDouble):
    gateway.instances = [
        cluster_service_pb2.Instance(service=service, name=service, version="9.9.9") for service in SERVICES
    ]
    assert [
        line for line in muster("version").stdout.splitlines() if "mixed" in line or "states" in line
    ] == []


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (("get", "absent"), 4, "muster: no job absent in default\n"),
        (("get", "No_Name"), 4, "muster: 'No_Name' is neither a job id"),
        (("--server", "127.0.0.1:1", "--timeout", "0.2", "list"), 5, "is `muster up` running?\n"),
        (("lst",), 2, "Did you mean 'list'?"),
        (("submit",), 2, "nothing to submit"),
        (("trace", "absent"), 4, "no job absent"),
    ],
)
def test_errors_are_one_line_and_a_code(muster: Muster, arguments: tuple[str, ...], code: int, expected: str):
    done = muster(*arguments)
    assert done.exit_code == code
    assert expected in done.stderr
    assert "Traceback" not in done.output


def test_ctrl_c_prints_that_the_job_continues(
    process: Process, gateway: GatewayDouble, job: MakeJob, document: Path
):
    gateway.publish(job(job_pb2.PHASE_QUEUED, revision=1, history=HISTORY[:1]))
    following = process("submit", "-f", str(document), "--follow")
    gateway.wait_for("WatchJob")
    following.send_signal(signal.SIGINT)
    out, err = following.communicate(timeout=30)
    assert following.returncode == 130
    assert "demo continues; see it with `muster watch demo`" in err
    assert "Traceback" not in out + err


def test_exit_codes_are_those_of_a_real_process(process: Process, gateway: GatewayDouble, job: MakeJob):
    gateway.publish(job(job_pb2.PHASE_FAILED, revision=1, reason="worker-0 exited with 1"))
    for arguments, code in (
        (("list",), 0),
        (("watch", "demo"), 1),
        (("get", "absent"), 4),
        (("nonsense",), 2),
    ):
        running = process(*arguments)
        running.communicate(timeout=60)
        assert running.returncode == code, arguments


def test_help_names_every_command_and_code(muster: Muster):
    text = muster("--help").stdout
    for word in ("submit", "trace", "top", "130", "Ctrl-C"):
        assert word in text
