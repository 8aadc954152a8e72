"""Command lines of Arena's as submissions, dry runs with Muster's help, and the platform's defaults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest
import yaml

from muster import AsyncClient, Client
from muster_core.models import Problem, Severity
from muster_rpc.v1 import defaults_service_pb2, job_pb2, job_service_pb2

if TYPE_CHECKING:
    from tests.component.client.conftest import GatewayDouble, Muster

JOB_ID = "j-aaaaaaaaaaaaaaaa"
START_S = 1_700_000_000
CONFIG = "nodeSelectors:\n  experiments: {disk: ssd}\n"
MakeJob = Callable[..., job_pb2.Job]


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "polyaxon_config.yml"
    file.write_text(CONFIG)
    return str(file)


def applied(version: int = 3) -> defaults_service_pb2.Defaults:
    found = defaults_service_pb2.Defaults(revision=version, applied_by="ann", document="kind: Defaults\n")
    found.applied_at.seconds = START_S
    return found


def test_an_arena_command_line_is_the_document(muster: Muster, gateway: GatewayDouble):
    done = muster("submit", "tfjob", "--name=demo", "-e", "A=b c", "--request-id", "mine", "python t.py")
    assert (done.exit_code, done.stdout) == (0, f"demo submitted as {JOB_ID}\n")
    (request,) = gateway.requests("SubmitJob")
    assert isinstance(request, job_service_pb2.SubmitJobRequest)
    assert request.document.text == "muster submit tfjob --name=demo -e 'A=b c' 'python t.py'"
    assert (request.document.source_name, request.request_id) == ("the command line", "mine")


def test_the_words_arena_submit_may_be_given(muster: Muster, gateway: GatewayDouble):
    assert muster("submit", "arena", "submit", "--mode=tensorflow", "--name=demo", "x").exit_code == 0
    (request,) = gateway.requests("SubmitJob")
    assert isinstance(request, job_service_pb2.SubmitJobRequest)
    assert request.document.text == "arena submit --mode=tensorflow --name=demo x"


def test_a_file_without_f_gets_a_hint(muster: Muster, gateway: GatewayDouble, config: str):
    done = muster("submit", config)
    assert done.exit_code == 2
    assert f"{config} is a document: write -f {config}" in done.stderr
    assert gateway.requests("SubmitJob") == []


def test_a_dry_run_shows_what_muster_would_fill_in(muster: Muster, gateway: GatewayDouble):
    template = job_pb2.Template(image="trainer", node_selector={"disk": "ssd"})
    gateway.spec = job_pb2.JobSpec(name="demo", roles=[job_pb2.Role(name="worker", template=template)])
    gateway.spec.defaults.category = job_pb2.CATEGORY_EXPERIMENTS
    gateway.spec.defaults.revision = 3
    gateway.spec.defaults.fields.append("worker.node_selector")
    done = muster("submit", "-f", "-", "--dry-run", stdin="kind: Job")
    assert done.exit_code == 0
    assert "Defaults: experiments, version 3: worker.node_selector" in done.stdout
    native = yaml.safe_load(
        muster("submit", "-f", "-", "--dry-run=server", "-o", "yaml", stdin="kind: Job").stdout
    )
    assert native["spec"]["roles"]["worker"]["nodeSelector"] == {"disk": "ssd"}
    assert gateway.requests("SubmitJob") == []


def test_a_dry_run_of_a_bad_document_is_refused(muster: Muster, gateway: GatewayDouble):
    gateway.problems = [
        Problem(code="UnknownField", path="spec.x", message="no such field", line=1, column=1)
    ]
    done = muster("submit", "-f", "-", "--dry-run", stdin="kind: Job")
    assert (done.exit_code, done.stdout) == (3, "")
    assert "no such field" in done.stderr


def test_a_job_is_shown_with_its_address_its_build_and_its_defaults(
    muster: Muster, gateway: GatewayDouble, job: MakeJob
):
    state = job(job_pb2.PHASE_RUNNING, revision=1)
    state.status.address = "http://127.0.0.1:21003"
    state.built_by, state.spec.built_by = "j-bbbbbbbbbbbbbbbb", "demo-build"
    state.spec.defaults.category = job_pb2.CATEGORY_JOBS
    state.spec.defaults.revision = 2
    state.spec.defaults.fields.append("worker.tolerations")
    gateway.publish(state)
    shown = muster("get", "demo").stdout
    assert "Address:   http://127.0.0.1:21003\n" in shown
    assert "Built by:  demo-build (j-bbbbbbbbbbbbbbbb)\n" in shown
    assert shown.count("Address:") == shown.count("Built by:") == 1
    assert "Defaults:  worker.tolerations (version 2 for jobs)\n" in shown


def test_defaults_are_applied(muster: Muster, gateway: GatewayDouble, config: str):
    gateway.defaults = applied()
    done = muster("apply", "-f", config, "--expected-version", "2")
    assert (done.exit_code, done.stdout) == (0, "version 3 is in force\n")
    (request,) = gateway.requests("ApplyDefaults")
    assert isinstance(request, defaults_service_pb2.ApplyDefaultsRequest)
    assert (request.document.text, request.expected_revision, request.dry_run) == (CONFIG, 2, False)
    gateway.changed = False
    assert "nothing changes" in muster("apply", "-f", config).stdout
    assert muster("apply", "-f", config, "-o", "name").stdout == "3\n"


def test_defaults_may_be_looked_at_before_they_are_applied(
    muster: Muster, gateway: GatewayDouble, config: str
):
    gateway.defaults = applied()
    gateway.warnings = [
        Problem(code="Ignored", path="core", message="for the deployment", severity=Severity.WARNING)
    ]
    done = muster("apply", "-f", config, "--dry-run")
    assert done.stdout == "kind: Defaults\nwould be version 3; nothing was applied\n"
    assert "for the deployment" in done.stderr


def test_refused_defaults_are_shown(muster: Muster, gateway: GatewayDouble, config: str):
    gateway.problems = [Problem(code="Conflict", path="x", message="not these", line=1, column=1)]
    done = muster("apply", "-f", config)
    assert done.exit_code == 3
    assert "not these" in done.stderr
    gateway.problems = []
    gateway.failures["ApplyDefaults"] = [(grpc.StatusCode.ABORTED, "version 4 is in force")]
    raced = muster("apply", "-f", config, "--expected-version", "3")
    assert (raced.exit_code, raced.stderr) == (1, "muster: version 4 is in force\n")


def test_defaults_are_shown(muster: Muster, gateway: GatewayDouble):
    assert muster("defaults").stderr.startswith("no defaults were applied yet")
    gateway.defaults = applied()
    assert muster("defaults").stdout == "# version 3, applied 2023-11-14 22:13:20 by ann\nkind: Defaults\n"
    assert yaml.safe_load(muster("defaults", "-o", "yaml", "--version", "3").stdout)["revision"] == "3"
    request = gateway.requests("GetDefaults")[-1]
    assert isinstance(request, defaults_service_pb2.GetDefaultsRequest)
    assert request.revision == 3


async def test_the_clients_apply_and_get_defaults(gateway: GatewayDouble, address: str):
    gateway.defaults = applied()
    with Client(address) as client:
        assert client.apply_defaults(CONFIG, dry_run=True).changed
        assert client.get_defaults().revision == 3
    async with AsyncClient(address) as other:
        assert (await other.apply_defaults(CONFIG, expected_revision=0)).defaults.revision == 3
        assert (await other.get_defaults(1)).applied_by == "ann"
