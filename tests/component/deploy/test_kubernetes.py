"""The installation on Kubernetes: what its manifests contain. ``tests/cluster/deploy`` gives them to an API server."""

from __future__ import annotations

from itertools import product
from typing import Any

import msgspec
import pytest

from muster_events.catalogue import CONSUMERS, JOBS_STREAM, SERVICES, STATUS_TRACKER
from muster_events.subjects import PARTITIONS
from muster_gateway.settings import GatewaySettings
from muster_local import ProvisionSettings
from muster_pod_launcher.settings import PodLauncherSettings
from muster_runtimes.kubernetes.permissions import PERMISSIONS, Permission
from muster_scaler.settings import ScalerSettings
from muster_scheduler.settings import SchedulerSettings
from muster_service.settings import Address, load_settings
from muster_spec_validator.settings import SpecValidatorSettings
from muster_status_tracker.settings import StatusTrackerSettings
from muster_testing.cluster.kustomize import LabelSelector, Manifests

SETTINGS: dict[str, type[msgspec.Struct]] = {
    "gateway": GatewaySettings,
    "spec-validator": SpecValidatorSettings,
    "scheduler": SchedulerSettings,
    "pod-launcher": PodLauncherSettings,
    "scaler": ScalerSettings,
    "status-tracker": StatusTrackerSettings,
    "provision": ProvisionSettings,
}
WITH_SERVER = sorted(set(SERVICES) - {"scaler"})


def service_of(variable: str) -> str | None:
    """Return the service whose own variable this is."""
    return next(
        (one for one in SERVICES if variable.startswith(f"MUSTER_{one.upper().replace('-', '_')}_")), None
    )


def test_every_service_runs_in_every_overlay(overlay: Manifests) -> None:
    assert {*SERVICES, "provision", "nats"} <= overlay.workloads().keys()
    for name in SERVICES:
        workload = overlay.workloads()[name]
        assert workload.container.image.partition(":")[0] == f"muster/{name}"
        assert workload.container.image.partition(":")[2]


@pytest.mark.parametrize("name", SETTINGS)
def test_a_workload_is_given_settings_that_it_has(
    everything: Manifests, overlay: Manifests, name: str
) -> None:
    for manifests in (everything, overlay):
        environment = manifests.environment(manifests.workloads()[name])
        load_settings(SETTINGS[name], environment, service=name)
        own = f"MUSTER_{name.upper().replace('-', '_')}_"
        of_others = {each for each in environment if service_of(each) not in {None, name}}
        known = {field.upper() for field in SETTINGS[name].__struct_fields__}
        given = {each.removeprefix(own).removeprefix("MUSTER_") for each in environment.keys() - of_others}
        assert given <= known


def test_a_variable_of_one_service_is_a_setting_of_it(everything: Manifests) -> None:
    environment = everything.environment(everything.workloads()["gateway"])
    own = {each for each in environment if service_of(each) is not None}
    assert own
    for variable in own:
        service = service_of(variable)
        assert service is not None
        field = variable.removeprefix(f"MUSTER_{service.upper().replace('-', '_')}_").lower()
        assert field in SETTINGS[service].__struct_fields__, variable


def test_instances_have_the_names_of_their_pods(production: Manifests) -> None:
    for name in SERVICES:
        assert production.environment(production.workloads()[name])["MUSTER_INSTANCE"] == "metadata.name"


def test_the_ports_of_containers_services_and_settings_match(overlay: Manifests) -> None:
    services = overlay.of_kind("Service")
    for name in SERVICES:
        workload = overlay.workloads()[name]
        environment = overlay.environment(workload)
        ports = {port.name: port.container_port for port in workload.container.ports}
        assert ports["metrics"] == Address(environment["MUSTER_METRICS_ADDRESS"]).port
        assert ("grpc" in ports) is (name in WITH_SERVER)
        if name not in WITH_SERVER:
            continue
        assert ports["grpc"] == Address(environment["MUSTER_GRPC_ADDRESS"]).port
        spec = services[name]["spec"]
        assert spec["clusterIP"] == "None"
        assert [(each["port"], each["targetPort"]) for each in spec["ports"]] == [(ports["grpc"], "grpc")]
        assert LabelSelector(match_labels=spec["selector"]).matches(workload.template.metadata.labels)


def test_the_gateway_finds_the_others_and_all_find_the_broker_by_their_names(overlay: Manifests) -> None:
    services, workloads = overlay.of_kind("Service"), overlay.workloads()
    gateway = load_settings(GatewaySettings, overlay.environment(workloads["gateway"]), service="gateway")
    for target in (
        gateway.spec_validator_address,
        gateway.status_tracker_address,
        gateway.scheduler_address,
        gateway.pod_launcher_address,
    ):
        host, _, port = target.removeprefix("dns:///").partition(":")
        assert [str(each["port"]) for each in services[host]["spec"]["ports"]] == [port]
    brokers = workloads["nats"].replicas or 0
    urls = {overlay.environment(workloads[name])["MUSTER_BUS_URL"] for name in (*SERVICES, "provision")}
    hosts = [f"nats-{n}.nats" for n in range(brokers)] if brokers > 1 else ["nats"]
    assert urls == {",".join(f"nats://{host}:4222" for host in hosts)}
    monitors = [f"http://nats-{n}.nats:8222" for n in range(brokers)]
    assert gateway.bus_monitor_url == ",".join(monitors)


def test_streams_have_a_copy_on_each_server(overlay: Manifests) -> None:
    workloads = overlay.workloads()
    provision = load_settings(ProvisionSettings, overlay.environment(workloads["provision"]))
    assert provision.stream_replicas == workloads["nats"].replicas
    store = int(overlay.environment(workloads["nats"])["STORE_BYTES"])
    assert provision.store_bytes in {None, store}


def test_the_kubernetes_runtime_is_set_where_it_matters(overlay: Manifests) -> None:
    for name in ("pod-launcher", "spec-validator"):
        assert overlay.environment(overlay.workloads()[name])["MUSTER_RUNTIME"] == "kubernetes"
    pools = {
        overlay.environment(overlay.workloads()[name])["MUSTER_POOL"]
        for name in SERVICES
        if "pool" in SETTINGS[name].__struct_fields__
    }
    assert len(pools) == 1


def test_gpus_are_shared_in_one_overlay_only(overlay: Manifests, everything: Manifests) -> None:
    shares = [
        load_settings(
            SpecValidatorSettings,
            manifests.environment(manifests.workloads()["spec-validator"]),
            service="spec-validator",
        ).gpu_shares
        for manifests in (overlay, everything)
    ]
    assert shares[1] == 4
    assert shares[0] in {1, 4}


def test_only_pod_launcher_has_a_token_and_permissions(everything: Manifests) -> None:
    with_token = {
        name
        for name, each in everything.workloads().items()
        if each.template.spec.automount_service_account_token
    }
    assert with_token == {"pod-launcher"}
    accounts = everything.of_kind("ServiceAccount")
    assert {
        name for name, each in accounts.items() if each.get("automountServiceAccountToken", True)
    } == with_token
    for name, each in everything.workloads().items():
        assert each.template.spec.service_account_name == name
    bindings = [
        *everything.of_kind("ClusterRoleBinding").values(),
        *everything.of_kind("RoleBinding").values(),
    ]
    assert {subject["name"] for each in bindings for subject in each["subjects"]} == with_token


def test_the_roles_grant_exactly_what_the_runtime_uses(overlay: Manifests) -> None:
    granted = [
        Permission(
            group=group,
            resource=resource.partition("/")[0],
            subresource=resource.partition("/")[2],
            verb=verb,
            of_cluster=role == "muster-pod-launcher-nodes",
        )
        for role, each in overlay.of_kind("ClusterRole").items()
        for rule in each["rules"]
        for group, resource, verb in product(rule["apiGroups"], rule["resources"], rule["verbs"])
    ]
    assert len(granted) == len(set(granted))
    assert set(granted) == set(PERMISSIONS)


def test_probes_drain_and_limits(overlay: Manifests) -> None:
    for name in SERVICES:
        workload = overlay.workloads()[name]
        container, pod = workload.container, workload.template.spec
        probes = [container.startup_probe, container.liveness_probe, container.readiness_probe]
        paths = [None if probe is None else probe["httpGet"]["path"] for probe in probes]
        assert paths == ["/healthz", "/healthz", "/readyz"]
        assert all(probe and probe["httpGet"]["port"] == "metrics" for probe in probes)
        settings = load_settings(GatewaySettings, overlay.environment(workload))
        assert settings.drain_seconds + 5 <= pod.termination_grace_period_seconds
        assert container.resources["requests"].keys() == {"cpu", "memory"}
        assert "memory" in container.resources["limits"]
        assert not pod.enable_service_links
        assert pod.priority_class_name in overlay.of_kind("PriorityClass")


def test_what_runs_for_long_may_lose_one_pod_at_a_time(production: Manifests) -> None:
    budgets = {
        name: each["spec"]["maxUnavailable"]
        for name, each in production.of_kind("PodDisruptionBudget").items()
    }
    assert budgets == dict.fromkeys([*SERVICES, "nats"], 1)
    assert {name: production.workloads()[name].replicas for name in SERVICES} == dict.fromkeys(SERVICES, 2)


def test_leaders_are_never_autoscaled_and_the_others_by_names_of_the_catalogue(everything: Manifests) -> None:
    scaled = everything.of_kind("ScaledObject")
    horizontal = everything.of_kind("HorizontalPodAutoscaler")
    assert scaled.keys() == {"spec-validator", "status-tracker"}
    assert horizontal.keys() == {"gateway"}
    for name in (*scaled, *horizontal):
        assert everything.workloads()[name].replicas is None
    names = {
        name: {(each["metadata"]["stream"], each["metadata"]["consumer"]) for each in one["spec"]["triggers"]}
        for name, one in scaled.items()
    }
    expected = {
        name: {(each.stream, each.consumer) for each in CONSUMERS if each.consumer.startswith(name)}
        for name in scaled
    }
    assert names == expected
    assert all(stream == JOBS_STREAM for each in names.values() for stream, _ in each)
    assert scaled[STATUS_TRACKER]["spec"]["maxReplicaCount"] == PARTITIONS


Flow = tuple[str, str, int]
"""The two ends of a connection, and its port; ``namespace/KEY=VALUE`` is any pod of such a namespace."""

CLIENTS = "namespace/muster.dev/clients=allowed"
DNS = "namespace/kubernetes.io/metadata.name=kube-system"


def expected_flows() -> set[Flow]:
    """Return the flows of the architecture."""
    flows = {(name, "nats", 4222) for name in (*SERVICES, "provision")}
    flows |= {("gateway", name, 7000) for name in WITH_SERVER if name != "gateway"}
    flows |= {("gateway", "nats", 8222), ("nats", "nats", 6222), (CLIENTS, "gateway", 7000)}
    flows |= {(name, "jaeger", 4317) for name in SERVICES} | {(CLIENTS, "jaeger", 16686)}
    flows |= {("namespace/kubernetes.io/metadata.name=monitoring", name, 7001) for name in SERVICES}
    flows |= {("namespace/kubernetes.io/metadata.name=keda", "nats", 8222)}
    flows |= {(name, DNS, 53) for name in (*SERVICES, "provision", "nats", "jaeger")}
    return flows | {("pod-launcher", "any address", port) for port in (443, 6443)}


def test_the_network_policies_allow_the_flows_of_the_architecture_and_nothing_else(
    everything: Manifests,
) -> None:
    assert allowed_flows(everything) == expected_flows()


def test_a_pod_without_a_policy_of_its_own_is_closed(overlay: Manifests) -> None:
    deny = overlay.of_kind("NetworkPolicy")["default-deny"]["spec"]
    assert deny == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


def allowed_flows(manifests: Manifests) -> set[Flow]:
    """Return the flows that both ends allow; ends outside of the installation need only the other one."""
    pods = {name: each.template.metadata.labels for name, each in manifests.workloads().items()}
    sent: set[Flow] = set()
    received: set[Flow] = set()
    for policy in manifests.of_kind("NetworkPolicy").values():
        spec = policy["spec"]
        assert not set(spec) & {"ingress", "egress"} or spec["policyTypes"]
        selected = [name for name, labels in pods.items() if _selector(spec["podSelector"]).matches(labels)]
        assert selected
        for rule in spec.get("egress", []):
            sent |= set(product(selected, _peers(rule.get("to"), pods), _ports(rule)))
        for rule in spec.get("ingress", []):
            received |= {
                (one, two, port)
                for one, two, port in product(_peers(rule["from"], pods), selected, _ports(rule))
            }
    inside = set(pods)
    return {
        flow
        for flow in sent | received
        if (flow[0] not in inside or flow in sent) and (flow[1] not in inside or flow in received)
    } | {flow for flow in sent if flow[1] not in inside}


def _peers(peers: list[dict[str, Any]] | None, pods: dict[str, dict[str, str]]) -> list[str]:
    if peers is None:
        return ["any address"]
    found: list[str] = []
    for peer in peers:
        if "namespaceSelector" in peer:
            [(key, value)] = peer["namespaceSelector"]["matchLabels"].items()
            found.append(f"namespace/{key}={value}")
        else:
            found += [name for name, labels in pods.items() if _selector(peer["podSelector"]).matches(labels)]
    assert found
    return found


def _ports(rule: dict[str, Any]) -> list[int]:
    return [each["port"] for each in rule["ports"]]


def _selector(content: dict[str, Any]) -> LabelSelector:
    return msgspec.convert(content, LabelSelector)
