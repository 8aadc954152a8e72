"""The metrics of the running services, and what is deployed to read them: rules, alerts, the dashboard and the page of operations."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
from collections import defaultdict
from contextlib import AsyncExitStack
from pathlib import Path
from typing import cast

import msgspec
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from muster_bus import BusSettings
from muster_events.catalogue import SERVICES
from muster_events.subjects import PARTITIONS
from muster_local import provision_bus
from muster_pod_launcher.kubernetes_metrics import PrometheusRequestMetrics
from muster_service.metrics import Metrics
from muster_testing.broker import Broker
from muster_testing.service_process import ServiceProcess

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "deploy/prometheus/rules"
DASHBOARD = ROOT / "deploy/grafana/muster.json"
OPERATIONS = ROOT / "docs/operations.md"
PAGES = (OPERATIONS, ROOT / "docs/webhooks.md")

KUBERNETES = "kubernetes"
OF_PROMETHEUS = {"up"}
OF_TARGET = {"job", "instance", "le"}
KEYWORDS = {"by", "without", "and", "or", "unless", "on", "ignoring", "group_left", "group_right", "bool"}

RECEIVERS = """
receivers:
- {name: ci, url: "http://127.0.0.1:9/hooks", secretFile: SECRET}
"""


class Rule(msgspec.Struct, frozen=True):
    """A recording rule or an alert."""

    expr: str
    record: str = ""
    alert: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class _Group(msgspec.Struct, frozen=True):
    rules: list[Rule]


class _Rules(msgspec.Struct, frozen=True):
    groups: list[_Group]


class _Target(msgspec.Struct, frozen=True):
    expr: str


class _Panel(msgspec.Struct, frozen=True):
    id: int
    title: str
    targets: list[_Target] = []


class _Dashboard(msgspec.Struct, frozen=True):
    panels: list[_Panel]


class _AlertTest(msgspec.Struct, frozen=True):
    alertname: str
    exp_alerts: list[object]


class _Test(msgspec.Struct, frozen=True):
    alert_rule_test: list[_AlertTest]


class _Tests(msgspec.Struct, frozen=True):
    tests: list[_Test]


def read_yaml(path: Path) -> object:
    return cast("object", yaml.safe_load(path.read_text()))


def rules(name: str) -> list[Rule]:
    found = msgspec.convert(read_yaml(RULES / name), _Rules)
    return [rule for group in found.groups for rule in group.rules]


def panels() -> list[_Panel]:
    return msgspec.json.decode(DASHBOARD.read_bytes(), type=_Dashboard).panels


def expressions() -> dict[str, str]:
    """Every expression that is deployed, by where it is."""
    found = {rule.record or rule.alert: rule.expr for rule in (*rules("recording.yml"), *rules("alerts.yml"))}
    for panel in panels():
        for number, target in enumerate(panel.targets):
            found[f"panel {panel.title} {number}"] = target.expr
    return found


def metrics_in(expression: str) -> set[str]:
    """The names of the metrics and recording rules that an expression reads."""
    bare = re.sub(r'"[^"]*"', "", expression)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", bare)
    bare = re.sub(r"\b(by|without|on|ignoring)\s*\([^)]*\)", "", bare)
    return {
        name
        for name, call in re.findall(r"\b([a-zA-Z_:][a-zA-Z0-9_:]*)\b(\s*\(?)", bare)
        if name not in KEYWORDS and not call.strip()
    }


def labels_in(expression: str) -> set[str]:
    """The labels that an expression selects or groups by."""
    bare = re.sub(r'"[^"]*"', '""', expression)
    selected = {
        name for group in re.findall(r"\{([^}]*)\}", bare) for name in re.findall(r"(\w+)\s*[=!]", group)
    }
    grouped = re.findall(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)", bare)
    return selected | {name.strip() for group in grouped for name in group.split(",") if name.strip()}


async def _collect(folder: Path) -> dict[str, str]:
    secret = folder / "secret"
    secret.write_text("a secret of the tests only\n")
    webhooks = folder / "webhooks.yaml"
    webhooks.write_text(RECEIVERS.replace("SECRET", str(secret)))
    async with Broker(folder / "broker") as broker, AsyncExitStack() as stack:
        await provision_bus(BusSettings(url=broker.url))
        environ = {
            "MUSTER_BUS_URL": broker.url,
            "MUSTER_PROCESS_ROOT": str(folder / "replicas"),
            "MUSTER_NODES": "n1:cpu=4,memory=4Gi,gpu=2",
            "MUSTER_WEBHOOKS": str(webhooks),
        }
        started = {
            name: await stack.enter_async_context(
                ServiceProcess.running("-m", f"muster_{name.replace('-', '_')}", **environ)
            )
            for name in SERVICES
        }
        for service in started.values():
            await service.logged("ready")
        for leader in ("scheduler", "scaler"):
            await started[leader].logged("leading")
        # A leader publishes the totals of the pool once it has read the nodes.
        while "muster_pool_free_gpus{" not in await started["scheduler"].metrics():
            await asyncio.sleep(0.05)
        return {name: await service.metrics() for name, service in started.items()}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The metrics of each service, and those of requests to an API server."""
    found = asyncio.run(asyncio.wait_for(_collect(tmp_path_factory.mktemp("metrics")), 240))
    kubernetes = Metrics(process=False)
    PrometheusRequestMetrics(kubernetes)
    return {**found, KUBERNETES: kubernetes.exposition().decode()}


@pytest.fixture(scope="module")
def exported(pages: dict[str, str]) -> dict[str, set[str]]:
    """The labels of each metric that is exported, by its name; empty for one without a sample."""
    labels: defaultdict[str, set[str]] = defaultdict(set)
    for page in pages.values():
        for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE):
            suffixes = ("_bucket", "_count", "_sum") if kind == "histogram" else ("",)
            for suffix in suffixes:
                labels[name + suffix] |= set()
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                labels[sample.name] |= sample.labels.keys()
    return labels


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        reason = "promtool is not installed: apt-get install prometheus"
        if os.environ.get("MUSTER_TEST_PROMTOOL") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def run(*command: str | Path, page: str | None = None) -> str:
    done = subprocess.run(command, input=page, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", [*SERVICES, KUBERNETES])
def test_the_metrics_follow_the_conventions(name: str, pages: dict[str, str], promtool: str) -> None:
    assert run(promtool, "check", "metrics", page=pages[name]).strip() == ""


def test_no_series_tells_when_it_was_created(pages: dict[str, str]) -> None:
    assert not any("_created" in page for page in pages.values())


def test_a_family_has_one_unit(exported: dict[str, set[str]]) -> None:
    named = {name for name, labels in exported.items() if name.startswith("muster_") and "resource" in labels}
    assert all(name.endswith("_extended_resources") for name in named)


def test_metrics_of_a_pool_say_which(exported: dict[str, set[str]]) -> None:
    of_pool = ("muster_pool_", "muster_queue_", "muster_gangs_", "muster_proposals_", "muster_scheduling_")
    for name, labels in exported.items():
        if name.startswith(
            (*of_pool, "muster_leader", "muster_elections", "muster_replica", "muster_orphans")
        ):
            assert not labels or "pool" in labels, name


def test_every_service_tells_its_state(pages: dict[str, str]) -> None:
    for name in SERVICES:
        page = pages[name]
        assert re.search(r'^muster_build_info{version="\d[^"]*"} 1.0$', page, re.MULTILINE), name
        assert "\nmuster_ready 1.0\n" in page, name
        assert 'muster_ready_condition{condition="storage"} 1.0' in page, name
        assert "\nmuster_bus_connected 1.0\n" in page, name
        assert 'muster_stream_bytes{stream="JOBS"}' in page, name
        assert re.search(r"^muster_event_loop_lag_seconds_count \d", page, re.MULTILINE), name
    for name in ("scheduler", "scaler"):
        assert f'muster_leader{{lease="{name}",pool="local"}} 1.0' in pages[name]
        assert f'muster_elections_total{{lease="{name}",pool="local"}} 1.0' in pages[name]
    for name in ("status-tracker", "pod-launcher"):
        assert f'muster_partitions_owned{{group="{name}"}} {PARTITIONS}.0' in pages[name]
    assert 'muster_dead_letters{stream="DEAD"} 0.0' in pages["status-tracker"]
    assert 'muster_pool_free_gpus{pool="local"} 2.0' in pages["scheduler"]


@pytest.mark.parametrize("where", expressions())
def test_what_is_read_is_exported(where: str, exported: dict[str, set[str]]) -> None:
    expression = expressions()[where]
    recorded = {rule.record for rule in rules("recording.yml")}
    read = metrics_in(expression)
    assert read
    assert read <= exported.keys() | recorded | OF_PROMETHEUS
    known = [exported.get(name) or set[str]() for name in read]
    if all(known):
        assert labels_in(expression) <= {label for labels in known for label in labels} | OF_TARGET
    for name in read & recorded:
        assert labels_in(expression) <= set(name.partition(":")[0].split("_"))


def test_the_metrics_of_an_expression_are_recognised() -> None:
    expression = (
        'max by (pool) (rate(muster_a_total{code=~"4..|by"}[5m])) / a:muster_b:sum{x!="y"} > 0 or up == 1'
    )
    assert metrics_in(expression) == {"muster_a_total", "a:muster_b:sum", "up"}
    assert labels_in(expression) == {"pool", "code", "x"}


def test_every_panel_has_queries() -> None:
    shown = [panel for panel in panels() if panel.targets]
    assert len(shown) > 30
    assert len({panel.id for panel in panels()}) == len(panels())


def test_every_metric_is_documented_and_no_other(exported: dict[str, set[str]]) -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    families = {re.sub(r"_(bucket|count|sum)$", "", name) for name in exported if name.startswith("muster_")}
    named = set(re.findall(r"`(muster_[a-z0-9_]+)(?:\{[^`]*\})?`", text))
    assert families - named == set()
    assert named - families - exported.keys() == set()


def test_every_alert_tells_what_to_do() -> None:
    headings = re.findall(r"^#+ (.*)$", OPERATIONS.read_text(), re.MULTILINE)
    anchors = {re.sub(r"[^\w-]", "", heading.lower().replace(" ", "-")) for heading in headings}
    alerts = rules("alerts.yml")
    assert {heading for heading in headings if heading.startswith("Muster")} == {
        rule.alert for rule in alerts
    }
    for rule in alerts:
        page, _, anchor = rule.annotations["runbook_url"].partition("#")
        assert ROOT / page == OPERATIONS
        assert anchor in anchors, rule.alert
        assert rule.annotations["summary"], rule.alert
        assert re.search(r"\d|value|labels", rule.annotations["description"]), rule.alert
        assert rule.labels["severity"] in {"critical", "warning"}, rule.alert


def test_every_alert_is_tested_both_ways() -> None:
    tests = msgspec.convert(read_yaml(RULES / "alerts_test.yml"), _Tests).tests
    tested = {(one.alertname, bool(one.exp_alerts)) for test in tests for one in test.alert_rule_test}
    assert tested == {(rule.alert, fires) for rule in rules("alerts.yml") for fires in (True, False)}


def test_the_rules_do_what_their_tests_say(promtool: str) -> None:
    run(promtool, "check", "config", ROOT / "deploy/prometheus/prometheus.yml")
    run(promtool, "test", "rules", RULES / "alerts_test.yml")


def test_the_queries_of_the_dashboard_are_valid(promtool: str, tmp_path: Path) -> None:
    queries = [target.expr for panel in panels() for target in panel.targets]
    recorded = [
        {
            "record": f"query_{number}",
            "expr": query.replace("$__rate_interval", "5m").replace("$pool", ".*"),
        }
        for number, query in enumerate(queries)
    ]
    checked = tmp_path / "queries.yml"
    checked.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": recorded}]}))
    run(promtool, "check", "rules", checked)


def test_prometheus_scrapes_every_service_of_compose() -> None:
    text = (ROOT / "deploy/prometheus/prometheus.yml").read_text()
    jobs = dict(re.findall(r"job_name: muster-(\S+)\n.*\n.*names: \[(\S+)\]", text))
    assert jobs == {name: name for name in SERVICES}
    metrics_port = re.search(r"MUSTER_METRICS_ADDRESS: \S+:(\d+)", (ROOT / "compose.yaml").read_text())
    assert metrics_port is not None
    assert set(re.findall(r"port: (\d+)", text)) == {metrics_port[1]}
