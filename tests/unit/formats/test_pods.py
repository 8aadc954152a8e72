"""Kubernetes PodTemplateSpecs: resources, placement constraints, warnings and errors."""

from typing import Any

import pytest
import yaml

from muster_core.models import Port, Resources, Severity, Template, Toleration
from muster_core.scheduling.placement import replica_affinity_of
from muster_formats import Parsed, parse

MI = 2**20
BASE = "spec.roles.worker.template"


def parsed_of(
    spec: dict[str, Any], metadata: dict[str, Any] | None = None, annotations: dict[str, str] | None = None
) -> Parsed:
    document = {
        "apiVersion": "muster.dev/v1",
        "kind": "Job",
        "metadata": {"name": "a", "annotations": annotations or {}},
        "spec": {"roles": {"worker": {"template": {"metadata": metadata or {}, "spec": spec}}}},
    }
    return parse(yaml.safe_dump(document))


def template_of(parsed: Parsed) -> Template:
    assert [problem for problem in parsed.problems if problem.severity is Severity.ERROR] == []
    return parsed.jobs[0].roles[0].template


def problems_of(parsed: Parsed, severity: Severity = Severity.ERROR) -> list[tuple[str, str]]:
    return [
        (p.code, p.path.removeprefix(BASE).lstrip(".")) for p in parsed.problems if p.severity is severity
    ]


def container(
    name: str = "main",
    *,
    requests: dict[str, Any] | None = None,
    limits: dict[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    resources = {"requests": requests or {}, "limits": limits or {}}
    return {"name": name, "image": "x", "resources": resources, **more}


def test_requests_of_containers_are_added_and_default_to_limits() -> None:
    spec = {
        "containers": [
            container(requests={"cpu": 1}, limits={"cpu": 2, "memory": "64Mi"}),
            container("side", limits={"cpu": "250m"}),
        ]
    }
    template = template_of(parsed_of(spec))
    assert template.requests == Resources(cpu=1250, memory=64 * MI)


def test_a_pod_has_a_limit_only_if_every_container_has_one() -> None:
    spec = {
        "containers": [container(limits={"cpu": 2, "memory": "64Mi"}), container("side", limits={"cpu": 1})]
    }
    assert template_of(parsed_of(spec)).limits == Resources(cpu=3000)


def test_the_largest_init_container_counts_with_the_sidecars_before_it() -> None:
    spec = {
        "containers": [container(requests={"cpu": 1, "memory": "10Mi"})],
        "initContainers": [
            container("first", requests={"cpu": 3}),
            container("sidecar", requests={"cpu": "500m"}, restartPolicy="Always"),
            container("second", requests={"cpu": 3, "memory": "100Mi"}),
        ],
        "overhead": {"cpu": "100m"},
    }
    assert template_of(parsed_of(spec)).requests == Resources(cpu=3600, memory=100 * MI)


def test_sidecars_are_added_to_the_containers() -> None:
    spec = {
        "containers": [container(requests={"cpu": 1})],
        "initContainers": [container("sidecar", requests={"cpu": "500m"}, restartPolicy="Always")],
    }
    assert template_of(parsed_of(spec)).requests == Resources(cpu=1500)


def test_resources_of_the_pod_replace_those_of_its_containers() -> None:
    spec = {
        "containers": [container(requests={"cpu": 1, "memory": "1Mi"})],
        "resources": {"requests": {"cpu": 4}},
    }
    assert template_of(parsed_of(spec)).requests == Resources(cpu=4000, memory=MI)


def test_gpus_and_other_extended_resources_are_counted() -> None:
    limits = {
        "nvidia.com/gpu": 1,
        "amd.com/gpu": "1",
        "example.com/fpga": 3,
        "ephemeral-storage": "1Mi",
        "hugepages-2Mi": "4Mi",
    }
    assert template_of(parsed_of({"containers": [container(limits=limits)]})).requests == Resources(
        gpu=2000, ephemeral_storage=MI, extended={"example.com/fpga": 3, "hugepages-2Mi": 4 * MI}
    )


def test_placement_constraints_are_read() -> None:
    affinity = {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 5, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}
        ]
    }
    spec = {
        "containers": [
            container(
                ports=[{"name": "http", "containerPort": 80, "protocol": "TCP"}],
                workingDir="/srv",
                args=["x"],
            )
        ],
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": affinity},
        "terminationGracePeriodSeconds": 5,
    }
    template = template_of(parsed_of(spec, {"labels": {"a": "b"}, "annotations": {"c": "d"}}))
    assert template.node_selector == {"disk": "ssd"}
    assert template.tolerations == (Toleration(operator="Exists"),)
    assert template.node_affinity == affinity
    assert (template.grace_s, template.working_dir, template.args) == (5, "/srv", ("x",))
    assert (template.labels, template.annotations) == ({"a": "b"}, {"c": "d"})
    assert template.ports == (Port(name="http", number=80),)
    assert template.pod["spec"] == spec


DROPPED = {
    "schedulerName": "volcano",
    "nodeName": "n1",
    "restartPolicy": "Never",
    "schedulingGates": [{"name": "g"}],
}


@pytest.mark.parametrize(("key", "value"), DROPPED.items(), ids=DROPPED)
def test_fields_that_muster_decides_are_removed_with_a_warning(key: str, value: object) -> None:
    parsed = parsed_of({"containers": [container()], key: value})
    assert problems_of(parsed, Severity.WARNING) == [("Ignored", f"spec.{key}")]
    assert key not in template_of(parsed).pod["spec"]


IGNORED: dict[str, dict[str, Any]] = {
    "spec.priorityClassName": {"priorityClassName": "high"},
    "spec.tolerations[0].tolerationSeconds": {
        "tolerations": [{"operator": "Exists", "tolerationSeconds": 3}]
    },
}


@pytest.mark.parametrize(("path", "given"), IGNORED.items(), ids=IGNORED)
def test_a_field_without_effect_is_a_warning(path: str, given: dict[str, Any]) -> None:
    assert problems_of(parsed_of({"containers": [container()], **given}), Severity.WARNING) == [
        ("Ignored", path)
    ]


def test_kubernetes_only_fields_are_kept_with_one_warning() -> None:
    spec = {
        "containers": [
            container(
                env=[{"name": "A", "value": "b"}, {"name": "B", "valueFrom": {"fieldRef": {}}}],
                volumeMounts=[],
            ),
            container("side"),
        ],
        "volumes": [],
    }
    parsed = parsed_of(spec)
    (warning,) = parsed.problems
    assert warning.code == "KubernetesOnly"
    assert warning.found == "volumes, volumeMounts, env.valueFrom, further containers"
    template = template_of(parsed)
    assert template.env == {"A": "b"}
    assert template.pod["spec"]["containers"][0]["env"][1]["name"] == "B"


REJECTED: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "no containers": ({}, ("Required", "spec.containers")),
    "resources that are no mapping": (
        {"containers": [container()], "overhead": 3},
        ("WrongType", "spec.overhead"),
    ),
    "a value from here and from elsewhere": (
        {"containers": [container(env=[{"name": "A", "value": "b", "valueFrom": {"fieldRef": {}}}])]},
        ("Conflict", "spec.containers[0].env[0].valueFrom"),
    ),
    "a misspelt pod key": ({"containers": [container()], "volums": []}, ("UnknownField", "spec.volums")),
    "a misspelt container key": (
        {"containers": [container(comand=["x"])]},
        ("UnknownField", "spec.containers[0].comand"),
    ),
    "a misspelt resource": (
        {"containers": [container(limits={"memroy": "1Mi"})]},
        ("UnknownField", "spec.containers[0].resources.limits.memroy"),
    ),
    "a fraction of a gpu": (
        {"containers": [container(limits={"nvidia.com/gpu": 0.5})]},
        ("BadQuantity", "spec.containers[0].resources.limits.nvidia.com/gpu"),
    ),
    "half an fpga": (
        {"containers": [container(limits={"example.com/fpga": "500m"})]},
        ("BadQuantity", "spec.containers[0].resources.limits.example.com/fpga"),
    ),
    "more requested than allowed": (
        {"containers": [container(requests={"cpu": 2}, limits={"cpu": 1})]},
        ("Conflict", "spec.containers[0].resources.requests"),
    ),
    "a container without a name": ({"containers": [{"image": "x"}]}, ("Required", "spec.containers[0].name")),
    "an init container without an image": (
        {"containers": [container()], "initContainers": [{"name": "i"}]},
        ("Required", "spec.initContainers[0].image"),
    ),
    "two containers of one name": (
        {"containers": [container(), container()]},
        ("Duplicate", "spec.containers[1]"),
    ),
    "a number as a variable": (
        {"containers": [container(env=[{"name": "A", "value": 3}])]},
        ("WrongType", "spec.containers[0].env[0].value"),
    ),
    "an operator with values that it does not take": (
        {
            "containers": [container()],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}
                        ]
                    }
                }
            },
        },
        (
            "Conflict",
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0]",
        ),
    ),
    "a negative grace": (
        {"containers": [container()], "terminationGracePeriodSeconds": -1},
        ("OutOfRange", "spec.terminationGracePeriodSeconds"),
    ),
}


@pytest.mark.parametrize(("spec", "expected"), REJECTED.values(), ids=REJECTED)
def test_an_error_is_reported_at_its_path(spec: dict[str, Any], expected: tuple[str, str]) -> None:
    assert problems_of(parsed_of(spec)) == [expected]


TERM = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}
SPREAD = {**TERM, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def test_pod_affinity_is_kept_for_placement() -> None:
    affinity = {
        "podAffinity": {REQUIRED: [TERM], PREFERRED: [{"weight": 1, "podAffinityTerm": TERM}]},
        "podAntiAffinity": {REQUIRED: [{**TERM, "namespaceSelector": {}}]},
    }
    parsed = parsed_of(
        {"containers": [container()], "affinity": affinity, "topologySpreadConstraints": [SPREAD]}
    )
    assert not parsed.problems
    template = template_of(parsed)
    assert template.pod["spec"]["affinity"] == affinity
    assert replica_affinity_of(template, "team").supported


BESIDE = f"spec.affinity.podAffinity.{REQUIRED}[0]"
NOT_FOLLOWED: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "no topology": ({"labelSelector": {}}, ("Required", f"{BESIDE}.topologyKey")),
    "an operator of nodes": (
        {**TERM, "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}},
        ("NotAllowed", f"{BESIDE}.labelSelector.matchExpressions[0].operator"),
    ),
    "no values": (
        {**TERM, "labelSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
        ("Conflict", f"{BESIDE}.labelSelector.matchExpressions[0]"),
    ),
    "namespaces by label": (
        {**TERM, "namespaceSelector": {"matchLabels": {"a": "b"}}},
        ("Unsupported", f"{BESIDE}.namespaceSelector.matchLabels"),
    ),
    "labels of a revision": ({**TERM, "matchLabelKeys": ["a"]}, ("Unsupported", f"{BESIDE}.matchLabelKeys")),
}


@pytest.mark.parametrize(("term", "expected"), NOT_FOLLOWED.values(), ids=NOT_FOLLOWED)
def test_an_unsupported_pod_affinity_is_rejected_at_its_line(
    term: dict[str, Any], expected: tuple[str, str]
) -> None:
    spec = {"containers": [container()], "affinity": {"podAffinity": {REQUIRED: [term]}}}
    assert problems_of(parsed_of(spec)) == [expected]


BAD_SPREADS: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "no skew": (
        {key: value for key, value in SPREAD.items() if key != "maxSkew"},
        ("Required", "spec.topologySpreadConstraints[0].maxSkew"),
    ),
    "a skew of none": ({**SPREAD, "maxSkew": 0}, ("OutOfRange", "spec.topologySpreadConstraints[0].maxSkew")),
    "a policy": (
        {**SPREAD, "nodeTaintsPolicy": "Honor"},
        ("Unsupported", "spec.topologySpreadConstraints[0].nodeTaintsPolicy"),
    ),
}


@pytest.mark.parametrize(("constraint", "expected"), BAD_SPREADS.values(), ids=BAD_SPREADS)
def test_an_unsupported_topology_spread_is_rejected_at_its_line(
    constraint: dict[str, Any], expected: tuple[str, str]
) -> None:
    spec = {"containers": [container()], "topologySpreadConstraints": [constraint]}
    assert problems_of(parsed_of(spec)) == [expected]


SWITCH = {"DRAGON_KUBESHARE": "true"}


def shared(**annotations: str) -> dict[str, Any]:
    return {"annotations": {f"kubeshare/{key}": value for key, value in annotations.items()}}


def test_annotations_request_a_share_of_a_gpu() -> None:
    metadata = shared(gpu_request="0.5", gpu_limit="1.0", gpu_mem="1073741824")
    template = template_of(parsed_of({"containers": [container()]}, metadata, SWITCH))
    assert template.requests == Resources(gpu=500, gpu_memory=2**30)
    assert template.limits == Resources(gpu=1000, gpu_memory=2**30)


def test_a_share_without_a_request_is_the_limit() -> None:
    template = template_of(parsed_of({"containers": [container()]}, shared(gpu_limit="0.25"), SWITCH))
    assert (template.requests.gpu, template.limits.gpu) == (250, 250)


def test_a_share_without_the_job_s_annotation_has_no_effect() -> None:
    parsed = parsed_of({"containers": [container()]}, shared(gpu_request="0.5"))
    assert problems_of(parsed, Severity.WARNING) == [
        ("Ignored", "metadata.annotations.kubeshare/gpu_request")
    ]
    assert template_of(parsed).requests == Resources()


BAD_SHARES: dict[str, tuple[dict[str, str], str]] = {
    "more than a gpu": ({"gpu_request": "1.5"}, "BadQuantity"),
    "no number": ({"gpu_request": "half"}, "BadQuantity"),
    "more than the limit": ({"gpu_request": "0.5", "gpu_limit": "0.4"}, "Conflict"),
    "memory alone": ({"gpu_mem": "1024"}, "Required"),
}


@pytest.mark.parametrize(("annotations", "code"), BAD_SHARES.values(), ids=BAD_SHARES)
def test_a_bad_share_is_rejected(annotations: dict[str, str], code: str) -> None:
    assert [
        code
        for code, _ in problems_of(parsed_of({"containers": [container()]}, shared(**annotations), SWITCH))
    ] == [code]


def test_a_share_and_whole_gpus_exclude_each_other() -> None:
    spec = {"containers": [container(limits={"nvidia.com/gpu": 1})]}
    assert problems_of(parsed_of(spec, shared(gpu_request="0.5", gpu_limit="1"), SWITCH)) == [
        ("Conflict", "spec.containers")
    ]
