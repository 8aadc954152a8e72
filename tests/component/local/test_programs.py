from pathlib import Path
from typing import Any

from muster_local.directory import DataDirectory
from muster_local.programs import (
    GATEWAY,
    POD_LAUNCHER,
    SERVICES,
    ExternalBroker,
    LocalOptions,
    Spans,
    SystemPrograms,
    module_command,
)


def system(**options: Any) -> SystemPrograms:
    chosen = LocalOptions(
        nodes=("n1:cpu=4,gpu=2", "n2:cpu=4"),
        workdir=Path("/work"),
        idle_period_s=2.5,
        policy="dragon",
        log_level="debug",
        environ={"PATH": "/bin", "MUSTER_BUS_URL": "nats://elsewhere"},
        **options,
    )
    ports = {name: 1000 + number for number, name in enumerate(chosen.port_names)}
    return SystemPrograms(chosen, DataDirectory(Path("/data")), ports)


def test_a_service_gets_its_addresses_and_the_bus_url() -> None:
    programs = system()
    program = programs.service("scheduler")
    assert program.argv == module_command("muster_scheduler")
    assert program.cwd == "/work"
    assert program.fatal_exit == 2
    expected = {
        "PATH": "/bin",
        "MUSTER_BUS_URL": "nats://127.0.0.1:1000",
        "MUSTER_GRPC_ADDRESS": "127.0.0.1:1005",
        "MUSTER_METRICS_ADDRESS": "127.0.0.1:1006",
        "MUSTER_OTLP_ENDPOINT": "http://127.0.0.1:1013",
        "MUSTER_INSTANCE": "scheduler",
        "MUSTER_LOG_FORMAT": "json",
        "MUSTER_LOG_LEVEL": "debug",
        "MUSTER_POOL": "local",
    }
    assert expected.items() <= program.env.items()


def test_a_service_gets_its_own_settings_only() -> None:
    programs = system()
    gateway = programs.service(GATEWAY).env
    assert gateway["MUSTER_STATUS_TRACKER_ADDRESS"] == programs.addresses["status-tracker"].grpc
    assert gateway["MUSTER_TRACE_QUERY_URL"] == "http://127.0.0.1:1014"
    launcher = programs.service(POD_LAUNCHER).env
    assert launcher["MUSTER_NODES"] == "n1:cpu=4,gpu=2;n2:cpu=4"
    assert launcher["MUSTER_PROCESS_ROOT"] == "/data/replicas"
    assert "MUSTER_STATUS_TRACKER_ADDRESS" not in launcher
    scaler = programs.service("scaler").env
    assert (scaler["MUSTER_IDLE_PERIOD_SECONDS"], scaler["MUSTER_POLICY"]) == ("2.5s", "dragon")
    sink = programs.sink().env
    assert sink["MUSTER_SINK_GRPC_ADDRESS"] == "127.0.0.1:1013"
    assert sink["MUSTER_SINK_DIRECTORY"] == "/data/traces"
    assert "MUSTER_OTLP_ENDPOINT" not in sink


def test_the_gateway_gets_the_addresses_of_all_instances() -> None:
    programs = system(instances={"scheduler": 2})
    env = programs.service(GATEWAY).env
    first, second = programs.addresses["scheduler"].grpc, programs.addresses["scheduler-2"].grpc
    assert env["MUSTER_SCHEDULER_ADDRESS"] == f"ipv4:{first},{second}"
    assert env["MUSTER_POD_LAUNCHER_ADDRESS"] == programs.addresses[POD_LAUNCHER].grpc
    assert programs.service("scheduler-2").argv == module_command("muster_scheduler")


def test_services_use_a_broker_that_runs_elsewhere() -> None:
    broker = ExternalBroker(url="nats://a:1,nats://b:1", monitor_url="http://a:2,http://b:2")
    programs = system(broker=broker)
    for service in SERVICES:
        env = programs.service(service).env
        assert env["MUSTER_BUS_URL"] == broker.url
        # Its disk is not this machine's.
        assert "MUSTER_BUS_STORE" not in env
    assert programs.service(GATEWAY).env["MUSTER_BUS_MONITOR_URL"] == broker.monitor_url
    assert "MUSTER_BUS_STORE" in system().service(GATEWAY).env


def test_without_a_receiver_no_spans_are_sent() -> None:
    assert "MUSTER_OTLP_ENDPOINT" not in system(spans=Spans(sink=False)).service("scheduler").env


def test_an_allocator_setting_of_the_user_is_kept() -> None:
    assert system().service("scheduler").env["MALLOC_ARENA_MAX"] == "1"
    chosen = LocalOptions(environ={"MALLOC_ARENA_MAX": "4"})
    ports = {name: 1000 + number for number, name in enumerate(chosen.port_names)}
    programs = SystemPrograms(chosen, DataDirectory(Path("/data")), ports)
    assert programs.service("scheduler").env["MALLOC_ARENA_MAX"] == "4"


def niceness_of(programs: SystemPrograms) -> dict[str, int]:
    return {program.name: program.niceness for program in (*map(programs.service, SERVICES), programs.sink())}


def test_with_the_process_runtime_only_the_gateway_has_normal_priority() -> None:
    niceness = niceness_of(system())
    assert niceness.pop(GATEWAY) == 0
    assert set(niceness.values()) == {19}


def test_on_kubernetes_only_pod_launcher_has_normal_priority() -> None:
    programs = system(kubeconfig=Path("/config"))
    niceness = niceness_of(programs)
    assert niceness.pop(POD_LAUNCHER) == 0
    assert set(niceness.values()) == {10}
    launcher = programs.service(POD_LAUNCHER).env
    assert (launcher["MUSTER_RUNTIME"], launcher["MUSTER_KUBECONFIG"]) == ("kubernetes", "/config")
    assert programs.service("spec-validator").env["MUSTER_RUNTIME"] == "kubernetes"


def test_without_lower_priority_no_program_has_a_niceness() -> None:
    assert set(niceness_of(system(lower_priority=False)).values()) == {0}
