"""The native format."""

import pytest

from muster_core.models import (
    CleanPodPolicy,
    ElasticPolicy,
    Framework,
    Job,
    JobKind,
    PlacementPolicy,
    Port,
    Problem,
    Resources,
    RestartPolicy,
    RestartScope,
    Role,
    RunPolicy,
    Severity,
    Strategy,
    SuccessPolicy,
    Template,
    Toleration,
)
from muster_formats import parse

GI = 2**30
MINIMAL = """
apiVersion: muster.dev/v1
kind: Job
metadata:
  name: small
spec:
  roles:
    worker:
      image: trainer
"""

EVERYTHING = """
apiVersion: muster.dev/v1
kind: Job
metadata:
  name: everything
  namespace: vision
  labels: {team: vision}
  annotations: {example.com/owner: "Zoë"}
spec:
  framework: pytorch
  kind: service
  queue: research/vision
  priority: -7
  preemptible: false
  minAvailable: 2
  suspend: true
  roles:
    master:
      image: trainer
      command: [python, train.py]
    worker:
      replicas: 2
      min: 1
      max: 8
      restartPolicy: ExitCode
      image: trainer
      command: [python, train.py]
      args: ["--verbose"]
      env: {STEPS: 20000, RATE: 1.10, DEBUG: true, EMPTY: , NAME: "x"}
      workingDir: /srv
      resources:
        requests: {cpu: 500m, memory: 1Gi, gpu: 0.5, gpuMemory: 3Gi, example.com/fpga: 1}
        limits: {cpu: 2, memory: 2Gi, ephemeralStorage: 1Gi}
      ports: [{name: http, containerPort: 8080}, {containerPort: 9090}]
      labels: {a: b}
      annotations: {c: d}
      nodeSelector: {disk: ssd}
      tolerations: [{key: gpu, operator: Exists, effect: NoSchedule}, {key: k, value: v}]
      nodeAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [a, b]}]}]
      gracePeriod: 1m30s
      overrides:
        - index: 2
          image: other
          resources: {cpu: 1}
  placement: {strategy: spread, topology: topology.kubernetes.io/zone, required: true, gpuTopology: true}
  elastic: {policy: max_min, coolDown: 2m, step: 3}
  run:
    restartScope: gang
    backoffLimit: 0
    activeDeadline: 1h30m
    queueDeadline: 600
    startTimeout: 2m
    ttl: 1d
    cleanPodPolicy: All
    successPolicy: AllWorkers
"""


def job_of(text: str) -> Job:
    parsed = parse(text)
    assert not parsed.problems
    return parsed.jobs[0]


def problems_of(role: str = "", spec: str = "", metadata: str = "") -> list[Problem]:
    """The problems of a small job with more in its role, spec or metadata."""
    text = (
        f"apiVersion: muster.dev/v1\nkind: Job\nmetadata:\n  name: small\n{indented(metadata, 2)}"
        f"spec:\n{indented(spec, 2)}  roles:\n    worker:\n      image: trainer\n{indented(role, 6)}"
    )
    parsed = parse(text)
    assert bool(parsed.jobs) is all(problem.severity is Severity.WARNING for problem in parsed.problems)
    return list(parsed.problems)


def indented(text: str, spaces: int) -> str:
    return "".join(f"{' ' * spaces}{line}\n" for line in text.splitlines())


def test_the_shortest_job_is_one_replica() -> None:
    role = Role(name="worker", replicas=1, min=1, max=1, template=Template(image="trainer"))
    assert job_of(MINIMAL) == Job(name="small", roles=(role,))


def test_every_field_is_read() -> None:
    template = Template(
        image="trainer",
        command=("python", "train.py"),
        args=("--verbose",),
        env={"STEPS": "20000", "RATE": "1.10", "DEBUG": "true", "EMPTY": "", "NAME": "x"},
        working_dir="/srv",
        requests=Resources(
            cpu=500,
            memory=GI,
            gpu=500,
            gpu_memory=3 * GI,
            ephemeral_storage=GI,
            extended={"example.com/fpga": 1},
        ),
        limits=Resources(cpu=2000, memory=2 * GI, ephemeral_storage=GI),
        ports=(Port(name="http", number=8080), Port(name="port-9090", number=9090)),
        labels={"a": "b"},
        annotations={"c": "d"},
        node_selector={"disk": "ssd"},
        tolerations=(
            Toleration(key="gpu", operator="Exists", effect="NoSchedule"),
            Toleration(key="k", operator="Equal", value="v"),
        ),
        node_affinity={
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}
                ]
            }
        },
        grace_s=90,
    )
    job = job_of(EVERYTHING)
    worker = job.role("worker")
    assert worker
    assert worker.template == template
    assert worker.template_of(2).image == "other"
    assert worker.template_of(2).requests == Resources(cpu=1000)
    assert worker.template_of(2).limits == Resources()
    assert worker.template_of(2).env == template.env
    master = Role(
        name="master",
        replicas=1,
        min=1,
        max=1,
        template=Template(image="trainer", command=("python", "train.py")),
        restart_policy=RestartPolicy.ALWAYS,
    )
    assert job == Job(
        name="everything",
        namespace="vision",
        labels={"team": "vision"},
        annotations={"example.com/owner": "Zoë"},
        framework=Framework.PYTORCH,
        kind=JobKind.SERVICE,
        queue="research/vision",
        priority=-7,
        preemptible=False,
        min_available=2,
        roles=(
            master,
            Role(
                name="worker",
                replicas=2,
                min=1,
                max=8,
                restart_policy=RestartPolicy.EXIT_CODE,
                template=template,
                overrides=worker.overrides,
            ),
        ),
        placement=PlacementPolicy(
            strategy=Strategy.SPREAD,
            topology="topology.kubernetes.io/zone",
            topology_required=True,
            gpu_topology=True,
        ),
        elastic=ElasticPolicy(policy="max_min", cool_down_s=120, step=3),
        run=RunPolicy(
            restart_scope=RestartScope.GANG,
            backoff_limit=0,
            active_deadline_s=5400,
            queue_deadline_s=600,
            start_timeout_s=120,
            ttl_s=86_400,
            clean_pod_policy=CleanPodPolicy.ALL,
            success_policy=SuccessPolicy.ALL_WORKERS,
            suspend=True,
        ),
    )


@pytest.mark.parametrize(
    ("given", "counts"),
    [
        ("", (1, 1, 1)),
        ("replicas: 3", (3, 3, 3)),
        ("replicas: 3\nmin: 1", (1, 3, 3)),
        ("replicas: 3\nmax: 5", (3, 3, 5)),
        ("min: 2\nmax: 4", (2, 2, 4)),
        ("max: 4", (1, 1, 4)),
        ("replicas: ~", (1, 1, 1)),
    ],
)
def test_missing_counts_follow_from_the_given_ones(given: str, counts: tuple[int, int, int]) -> None:
    (worker,) = job_of(MINIMAL + indented(given, 6)).roles
    assert (worker.min, worker.replicas, worker.max) == counts


def test_zero_replicas_switch_a_role_off() -> None:
    off = job_of(MINIMAL + "    master: {replicas: 0}\n").role("master")
    assert off
    assert (off.min, off.replicas, off.max) == (0, 0, 0)


def test_a_document_without_a_namespace_gets_the_submission_s() -> None:
    assert parse(MINIMAL, namespace="vision").jobs[0].namespace == "vision"
    assert parse(EVERYTHING, namespace="other").jobs[0].namespace == "vision"
    assert parse(MINIMAL).jobs[0].namespace == "default"


def test_limits_are_the_missing_requests() -> None:
    (worker,) = job_of(
        MINIMAL + "      resources: {limits: {cpu: 2, memory: 1Gi}, requests: {cpu: 1}}\n"
    ).roles
    assert worker.template.requests == Resources(cpu=1000, memory=GI)
    assert worker.template.limits == Resources(cpu=2000, memory=GI)


def test_a_gpu_may_have_its_kubernetes_name() -> None:
    (worker,) = job_of(MINIMAL + "      resources: {nvidia.com/gpu: 2}\n").roles
    assert worker.template.requests == Resources(gpu=2000)


def test_variables_may_be_a_kubernetes_list() -> None:
    (worker,) = job_of(MINIMAL + "      env: [{name: A, value: b}, {name: C}]\n").roles
    assert worker.template.env == {"A": "b", "C": ""}


def test_a_role_may_have_a_whole_template() -> None:
    role = "    ps:\n      template:\n        spec: {containers: [{name: main, image: x, resources: {limits: {cpu: 1}}}]}\n"
    template = job_of(MINIMAL + role).roles[1].template
    assert (template.image, template.requests) == ("x", Resources(cpu=1000))
    assert template.pod["spec"]["containers"][0]["name"] == "main"


def test_a_whole_template_of_tensorflow_gets_its_port() -> None:
    role = "      template: {spec: {containers: [{name: side, image: s}, {name: tensorflow, image: t}]}}\n"
    parsed = parse(
        MINIMAL.replace("spec:\n", "spec:\n  framework: tensorflow\n").replace("      image: trainer\n", role)
    )
    template = parsed.jobs[0].roles[0].template
    assert (template.image, template.ports) == ("t", (Port(name="tfjob-port", number=2222),))


BAD_ROLES = {
    "min: 3\nmax: 2\nreplicas: 2": ("Conflict", "spec.roles.worker.min"),
    "replicas: 3\nmax: 2": ("Conflict", "spec.roles.worker.replicas"),
    "replicas: 0": ("NothingToRun", "spec.roles"),
    "replicas: -1": ("OutOfRange", "spec.roles.worker.replicas"),
    "replicas: 100001": ("OutOfRange", "spec.roles.worker.replicas"),
    "replicas: true": ("WrongType", "spec.roles.worker.replicas"),
    "replicas: 1.0": ("WrongType", "spec.roles.worker.replicas"),
    "replicas: '2'": ("WrongType", "spec.roles.worker.replicas"),
    "command: python train.py": ("WrongType", "spec.roles.worker.command"),
    "command: [python, 3]": ("WrongType", "spec.roles.worker.command[1]"),
    "env: {A=B: c}": ("BadName", "spec.roles.worker.env.A=B"),
    "env: {A: [b]}": ("WrongType", "spec.roles.worker.env.A"),
    "env: [{name: A, valueFrom: {secretKeyRef: {}}}]": ("NotAllowed", "spec.roles.worker.env[0].valueFrom"),
    "restartPolicy: never": ("NotAllowed", "spec.roles.worker.restartPolicy"),
    "resources: {cpu: lots}": ("BadQuantity", "spec.roles.worker.resources.cpu"),
    "resources: {gpu: 1.5}": ("BadQuantity", "spec.roles.worker.resources.gpu"),
    "resources: {cpus: 1}": ("UnknownField", "spec.roles.worker.resources.cpus"),
    "resources: {cpu: 1, limits: {cpu: 2}}": ("Conflict", "spec.roles.worker.resources"),
    "resources: {requests: {cpu: 3}, limits: {cpu: 2}}": ("Conflict", "spec.roles.worker.resources"),
    "resources: {gpu: 1, nvidia.com/gpu: 1}": ("Conflict", "spec.roles.worker.resources.nvidia.com/gpu"),
    "resources: {amd.com/gpu: 1, nvidia.com/gpu: 1}": (
        "Conflict",
        "spec.roles.worker.resources.nvidia.com/gpu",
    ),
    "resources: {gpuMemory: 1Gi}": ("Conflict", "spec.roles.worker.resources"),
    "resources: [cpu]": ("WrongType", "spec.roles.worker.resources"),
    "ports: [{name: http}]": ("Required", "spec.roles.worker.ports[0].containerPort"),
    "ports: [{containerPort: 70000}]": ("OutOfRange", "spec.roles.worker.ports[0].containerPort"),
    "ports: [{containerPort: 1}, {containerPort: 1}]": ("Duplicate", "spec.roles.worker.ports[1]"),
    "labels: {a: b c}": ("BadName", "spec.roles.worker.labels.a"),
    "labels: {a: 1}": ("WrongType", "spec.roles.worker.labels.a"),
    "nodeSelector: {a b: c}": ("BadName", "spec.roles.worker.nodeSelector.a b"),
    "tolerations: [{operator: Equal}]": ("Conflict", "spec.roles.worker.tolerations[0]"),
    "tolerations: [{key: a, operator: Exists, value: b}]": (
        "Conflict",
        "spec.roles.worker.tolerations[0].value",
    ),
    "tolerations: [{key: a, effect: Sometimes}]": ("NotAllowed", "spec.roles.worker.tolerations[0].effect"),
    "labels: x": ("WrongType", "spec.roles.worker.labels"),
    "ports: 80": ("WrongType", "spec.roles.worker.ports"),
    "env: [{value: b}]": ("Required", "spec.roles.worker.env[0].name"),
    "command: 'a \"b'": ("WrongType", "spec.roles.worker.command"),
    "template: x": ("WrongType", "spec.roles.worker.template"),
    "gracePeriod: soon": ("BadDuration", "spec.roles.worker.gracePeriod"),
    "overrides: [{index: 1}]": ("OutOfRange", "spec.roles.worker.overrides[0].index"),
    "overrides: [{image: y}]": ("Required", "spec.roles.worker.overrides[0].index"),
    "overrides: [{index: 0}, {index: 0}]": ("Duplicate", "spec.roles.worker.overrides[1].index"),
    "overrides: [{index: 0, replicas: 2}]": ("UnknownField", "spec.roles.worker.overrides[0].replicas"),
    "overrides: [{index: 0, image: ''}]": ("NothingToRun", "spec.roles.worker.overrides[0]"),
}


@pytest.mark.parametrize(("role", "expected"), BAD_ROLES.items(), ids=BAD_ROLES)
def test_a_bad_role_has_one_error_at_its_path(role: str, expected: tuple[str, str]) -> None:
    problems = problems_of(role=role)
    assert [(problem.code, problem.path) for problem in problems] == [expected]
    assert problems[0].line > 0
    assert problems[0].column > 0


BAD_SPECS = {
    "framework: caffe": ("NotAllowed", "spec.framework"),
    "kind: daemon": ("NotAllowed", "spec.kind"),
    "queue: A B": ("BadName", "spec.queue"),
    "priority: 2147483648": ("OutOfRange", "spec.priority"),
    "preemptible: yes": ("WrongType", "spec.preemptible"),
    "minAvailable: 0": ("OutOfRange", "spec.minAvailable"),
    "minAvailable: 2": ("Conflict", "spec.minAvailable"),
    "placement: {strategy: stack}": ("NotAllowed", "spec.placement.strategy"),
    "placement: {required: true}": ("Conflict", "spec.placement.required"),
    "placement: pack": ("WrongType", "spec.placement"),
    "elastic: {coolDown: -1}": ("BadDuration", "spec.elastic.coolDown"),
    "run: {ttl: 1w}": ("BadDuration", "spec.run.ttl"),
    "run: {cleanPodPolicy: Some}": ("NotAllowed", "spec.run.cleanPodPolicy"),
    "run: {suspend: true}": ("UnknownField", "spec.run.suspend"),
    "replicas: 2": ("UnknownField", "spec.replicas"),
}


@pytest.mark.parametrize(("spec", "expected"), BAD_SPECS.items(), ids=BAD_SPECS)
def test_a_bad_spec_has_one_error_at_its_path(spec: str, expected: tuple[str, str]) -> None:
    assert [(problem.code, problem.path) for problem in problems_of(spec=spec)] == [expected]


def test_a_missing_bound_is_reported_by_the_field_it_follows_from() -> None:
    (problem,) = problems_of(role="replicas: 2\nmin: 5")
    assert problem.message == "min 5 is above replicas 2"
    assert problem.fix == "raise replicas to 5 or lower min to 2"


def test_all_problems_are_reported_at_once() -> None:
    reported = problems_of(
        metadata="lables: {}", spec="priorty: 1", role="replicas: many\nmin: 2\ncomand: [x]\nenv: 3"
    )
    assert [problem.path for problem in reported] == [
        "metadata.lables",
        "spec.priorty",
        "spec.roles.worker.replicas",
        "spec.roles.worker.comand",
        "spec.roles.worker.env",
    ]
    assert [problem.fix for problem in reported[:2]] == ["did you mean labels?", "did you mean priority?"]


def test_the_fix_for_a_command_in_one_string_is_the_list() -> None:
    (problem,) = problems_of(role="command: python train.py --name 'a b'")
    assert problem.fix == 'write ["python", "train.py", "--name", "a b"]'


@pytest.mark.parametrize("missing", ["metadata", "spec"])
def test_missing_fields_are_reported(missing: str) -> None:
    text = MINIMAL.replace(f"{missing}:", "x-other:")
    assert ("Required", missing) in {(problem.code, problem.path) for problem in parse(text).problems}


def test_a_job_without_roles_is_rejected() -> None:
    head = MINIMAL.split("  roles:", maxsplit=1)[0]
    assert [p.path for p in parse(f"{head}  queue: q\n").problems] == ["spec.roles"]
    assert [p.path for p in parse(f"{head}  roles: {{}}\n").problems] == ["spec.roles"]


def test_replica_names_must_not_be_too_long() -> None:
    name = "a" * 55
    (problem,) = parse(MINIMAL.replace("small", name)).problems
    assert (problem.code, problem.path, problem.fix) == (
        "BadName",
        "metadata.name",
        "shorten the job's name by 1",
    )


def test_fields_next_to_a_template_override_it() -> None:
    pod = "template: {spec: {containers: [{name: main, image: %s, args: [a]}]}}"
    role = f"      {pod % 'x'}\n      args: [b]\n      overrides:\n"
    overrides = ["image: y", pod % "z", "template: {}\n          image: w"]
    for index, override in enumerate(overrides):
        role += f"        - index: {index}\n          {override}\n"
    (worker,) = job_of(MINIMAL.replace("      image: trainer\n", f"{role}      replicas: 4\n")).roles
    reported = [(worker.template_of(i).image, worker.template_of(i).args) for i in range(4)]
    assert reported == [("y", ("b",)), ("z", ("a",)), ("w", ()), ("x", ("b",))]
    assert worker.template_of(0).pod == worker.template.pod
    assert worker.template_of(1).pod != worker.template.pod
    assert worker.template_of(2).pod == {}


def test_tensorflow_has_at_most_one_chief() -> None:
    roles = "    chief: {image: x}\n    master: {image: x}\n    evaluator: {image: x, max: 2}\n"
    text = MINIMAL.replace("spec:\n", "spec:\n  framework: tensorflow\n") + roles
    assert [p.path for p in parse(text).problems] == ["spec.roles.master", "spec.roles.evaluator.replicas"]


def test_either_all_parts_are_accepted_or_none() -> None:
    other = MINIMAL.replace("small", "other")
    assert [job.name for job in parse(f"{MINIMAL}---\n{other}").jobs] == ["small", "other"]
    parsed = parse(f"{MINIMAL}---\n{other}      replica: 1\n")
    assert parsed.jobs == ()
    assert [(p.code, p.line) for p in parsed.problems] == [("UnknownField", 20)]


def test_two_jobs_of_one_document_must_not_have_the_same_name() -> None:
    (problem,) = parse(f"{MINIMAL}---\n{MINIMAL}").problems
    assert (problem.code, problem.path, problem.line) == ("Duplicate", "metadata.name", 15)
