import msgspec

from muster_local.programs import (
    GATEWAY,
    POD_LAUNCHER,
    SCALER,
    SERVICES,
    SINK,
    Addresses,
    SystemConfig,
    instances_of,
    module_command,
    service_program,
    sink_program,
)


def config(*names: str, otlp: str | None = "http://127.0.0.1:2") -> SystemConfig:
    addresses = {
        name: Addresses(f"127.0.0.1:{1000 + n}", f"127.0.0.1:{2000 + n}") for n, name in enumerate(names)
    }
    return SystemConfig(
        bus_url="nats://127.0.0.1:1",
        addresses=addresses,
        otlp_endpoint=otlp,
        trace_query_url="http://127.0.0.1:3",
        replicas_root="/data/replicas",
        nodes=("n1:cpu=4,gpu=2", "n2:cpu=4"),
        workdir="/work",
        idle_period_s=2.5,
        policy="dragon",
        log_level="debug",
        base_env={"PATH": "/bin", "MUSTER_BUS_URL": "nats://elsewhere"},
    )


def test_a_service_gets_its_addresses_and_the_bus_url() -> None:
    program = service_program("scheduler", "scheduler", config(*SERVICES, SINK))
    assert program.argv == module_command("muster_scheduler")
    assert program.cwd == "/work"
    assert program.fatal_exit == 2
    expected = {
        "PATH": "/bin",
        "MUSTER_BUS_URL": "nats://127.0.0.1:1",
        "MUSTER_GRPC_ADDRESS": "127.0.0.1:1002",
        "MUSTER_METRICS_ADDRESS": "127.0.0.1:2002",
        "MUSTER_OTLP_ENDPOINT": "http://127.0.0.1:2",
        "MUSTER_INSTANCE": "scheduler",
        "MUSTER_LOG_FORMAT": "json",
        "MUSTER_LOG_LEVEL": "debug",
        "MUSTER_POOL": "local",
    }
    assert expected.items() <= program.env.items()


def test_a_service_gets_its_own_settings_only() -> None:
    system = config(*SERVICES, SINK)
    gateway = service_program(GATEWAY, GATEWAY, system).env
    assert gateway["MUSTER_STATUS_TRACKER_ADDRESS"] == "127.0.0.1:1005"
    assert gateway["MUSTER_TRACE_QUERY_URL"] == "http://127.0.0.1:3"
    launcher = service_program(POD_LAUNCHER, POD_LAUNCHER, system).env
    assert launcher["MUSTER_NODES"] == "n1:cpu=4,gpu=2;n2:cpu=4"
    assert launcher["MUSTER_PROCESS_ROOT"] == "/data/replicas"
    assert "MUSTER_STATUS_TRACKER_ADDRESS" not in launcher
    scaler = service_program(SCALER, SCALER, system).env
    assert (scaler["MUSTER_IDLE_PERIOD_SECONDS"], scaler["MUSTER_POLICY"]) == ("2.5s", "dragon")
    sink = sink_program(system, directory="/data/traces").env
    assert sink["MUSTER_SINK_GRPC_ADDRESS"] == "127.0.0.1:1006"
    assert "MUSTER_OTLP_ENDPOINT" not in sink


def test_the_gateway_gets_the_addresses_of_all_instances() -> None:
    assert instances_of({"scheduler": 2})[2:4] == [("scheduler", "scheduler"), ("scheduler-2", "scheduler")]
    env = service_program(GATEWAY, GATEWAY, config(*SERVICES, "scheduler-2", SINK)).env
    assert env["MUSTER_SCHEDULER_ADDRESS"] == "ipv4:127.0.0.1:1002,127.0.0.1:1006"
    assert env["MUSTER_POD_LAUNCHER_ADDRESS"] == "127.0.0.1:1003"


def test_without_a_receiver_no_spans_are_sent() -> None:
    env = service_program("scheduler", "scheduler", config(*SERVICES, SINK, otlp=None)).env
    assert "MUSTER_OTLP_ENDPOINT" not in env


def _niceness(system: SystemConfig) -> dict[str, int]:
    programs = [service_program(service, service, system) for service in SERVICES]
    return {
        program.name: program.niceness for program in (*programs, sink_program(system, directory="/traces"))
    }


def test_with_the_process_runtime_only_the_gateway_has_normal_priority() -> None:
    niceness = _niceness(config(*SERVICES, SINK))
    assert niceness.pop(GATEWAY) == 0
    assert set(niceness.values()) == {19}


def test_on_kubernetes_only_pod_launcher_has_normal_priority() -> None:
    niceness = _niceness(msgspec.structs.replace(config(*SERVICES, SINK), kubeconfig="/config"))
    assert niceness.pop(POD_LAUNCHER) == 0
    assert set(niceness.values()) == {10}


def test_without_lower_priority_no_program_has_a_niceness() -> None:
    system = msgspec.structs.replace(config(*SERVICES, SINK), kubeconfig="/config", lower_priority=False)
    assert set(_niceness(system).values()) == {0}
