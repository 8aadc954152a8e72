"""What the fields of Polyaxon 0.x mean."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from muster_core.models import (
    Category,
    Framework,
    Job,
    JobKind,
    Port,
    Resources,
    RestartPolicy,
    Role,
    Severity,
    Template,
)
from muster_formats import parse
from muster_formats.field_types import ListOf
from muster_formats.polyaxon_v0.fields import TABLES
from muster_formats.schema import Effect, Nested, Table

MI = 2**20


def jobs(kind: str = "experiment", source: str = "", **fields: Any) -> tuple[Job, ...]:
    """The jobs of a document of a kind, which trains unless it says otherwise."""
    run = {} if kind == "build" else {"run": {"cmd": "train"}}
    parsed = parse(yaml.safe_dump({"version": 1, "kind": kind, **run, **fields}), name=source)
    assert [problem for problem in parsed.problems if problem.severity is Severity.ERROR] == []
    return parsed.jobs


def job(kind: str = "experiment", source: str = "", **fields: Any) -> Job:
    (one,) = jobs(kind, source, **fields)
    return one


def only(roles: tuple[Role, ...]) -> Role:
    (role,) = roles
    return role


def master(**environment: Any) -> Template:
    return only(job(environment=environment).roles).template


@pytest.mark.parametrize(
    ("cpu", "milli"),
    [(0.1, 100), (0.3, 300), (1, 1000), (1.5, 1500), (2.001, 2001), (0.0001, 1), ("0.1", 100)],
)
def test_cores_are_exact(cpu: Any, milli: int) -> None:
    assert master(resources={"cpu": {"requests": cpu}}).requests == Resources(cpu=milli)


@pytest.mark.parametrize(("memory", "size"), [(256, 256 * MI), (0.5, MI // 2), ("1024", 1024 * MI)])
def test_memory_is_in_mebibytes(memory: Any, size: int) -> None:
    assert master(resources={"memory": {"requests": memory}}).requests == Resources(memory=size)


def test_requests_default_to_limits_and_limits_to_none() -> None:
    template = master(resources={"cpu": {"limits": 2}, "memory": {"requests": 256}})
    assert template.requests == Resources(cpu=2000, memory=256 * MI)
    assert template.limits == Resources(cpu=2000)


def test_devices_are_limited_to_what_is_requested() -> None:
    template = master(resources={"gpu": {"requests": 2}, "tpu": {"limits": 8}})
    everything = Resources(gpu=2000, extended={"cloud-tpus.google.com/v2": 8})
    assert (template.requests, template.limits) == (everything, everything)


def test_the_later_layout_of_resources_has_kubernetes_units() -> None:
    template = master(
        resources={
            "requests": {"cpu": "100m", "memory": "1Gi"},
            "limits": {"memory": "2Gi", "nvidia.com/gpu": 1, "tpu": 8, "example.com/fpga": 1},
        }
    )
    devices = {"cloud-tpus.google.com/v2": 8, "example.com/fpga": 1}
    assert template.requests == Resources(cpu=100, memory=1024 * MI, gpu=1000, extended=devices)
    assert template.limits == Resources(memory=2048 * MI, gpu=1000, extended=devices)


def test_the_environment_applies_to_the_master_only() -> None:
    environment = {"node_selector": {"a": "b"}, "resources": {"gpu": {"requests": 1}}}
    roles = job(
        framework="tensorflow", environment={**environment, "replicas": {"n_workers": 1, "n_ps": 1}}
    ).roles
    assert [(role.name, role.template.node_selector, role.template.requests.gpu) for role in roles] == [
        ("master", {"a": "b"}, 1000),
        ("worker", {}, 0),
        ("ps", {}, 0),
    ]


DEFAULT = {
    "resources": {"cpu": {"requests": 1}, "gpu": {"requests": 1}},
    "labels": {"of": "default"},
    "annotations": {"of": "default"},
    "node_selector": {"of": "default"},
    "tolerations": [{"key": "default", "operator": "Exists"}],
    "env_vars": [["OF", "default"]],
}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("resources", {"cpu": {"requests": 2}}),
        ("labels", {"other": "one"}),
        ("annotations", {"other": "one"}),
        ("node_selector", {"other": "one"}),
        ("tolerations", [{"operator": "Exists"}]),
        ("env_vars", [["OTHER", "one"]]),
    ],
)
def test_a_field_of_one_replica_overrides_only_that_field_of_its_role(field: str, value: Any) -> None:
    replicas = {"n_workers": 2, "default_worker": DEFAULT, "worker": [{"index": 1, field: value}]}
    alone = {"n_workers": 2, "default_worker": {**DEFAULT, field: value}}
    workers = [
        job(framework="pytorch", environment={"replicas": given_name}).role("worker")
        for given_name in (replicas, alone)
    ]
    assert workers[0]
    assert workers[1]
    assert workers[0].overrides == {1: workers[1].template}


@pytest.mark.parametrize("empty", [None, {}])
def test_an_empty_field_falls_back_to_the_role(empty: Any) -> None:
    replicas = {
        "n_workers": 2,
        "default_worker": DEFAULT,
        "worker": [{"index": 1, "node_selector": empty, "resources": empty}],
    }
    worker = job(framework="pytorch", environment={"replicas": replicas}).role("worker")
    assert worker
    assert worker.overrides == {1: worker.template}


@pytest.mark.parametrize(
    ("framework", "backend", "expected", "names"),
    [
        ("tensorflow", "native", Framework.TENSORFLOW, ["master", "worker", "ps"]),
        ("tensorflow", "kubeflow", Framework.TENSORFLOW, ["chief", "worker", "ps"]),
        ("mxnet", "native", Framework.MXNET, ["scheduler", "worker", "server"]),
        ("pytorch", "native", Framework.PYTORCH, ["master", "worker"]),
        ("pytorch", "kubeflow", Framework.PYTORCH, ["master", "worker"]),
        ("horovod", "native", Framework.HOROVOD, ["launcher", "worker"]),
        ("horovod", "mpi", Framework.HOROVOD, ["launcher", "worker"]),
        ("tensorflow", "mpi", Framework.MPI, ["launcher", "worker"]),
    ],
)
def test_roles_are_named_as_in_their_framework(
    framework: str, backend: str, expected: Framework, names: list[str]
) -> None:
    counts = {"n_workers": 2, "n_ps": 1 if len(names) > 2 else 0}
    found = job(framework=framework, backend=backend, environment={"replicas": counts})
    assert found.framework is expected
    assert [role.name for role in found.roles] == names


def test_an_mpi_launcher_runs_the_command_and_its_workers_sleep() -> None:
    roles = job(framework="horovod", backend="mpi", environment={"replicas": {"n_workers": 2}}).roles
    assert [role.template.command for role in roles] == [("/bin/bash", "-c", "train"), ("sleep", "infinity")]


def test_only_tensorflow_on_the_native_backend_gets_a_model_dir() -> None:
    environment = {"replicas": {"n_workers": 1}}
    dirs = {
        backend: job(
            name="exp", framework="tensorflow", backend=backend, environment=environment
        ).options.model_dir
        for backend in ("native", "kubeflow")
    }
    assert dirs == {"native": "outputs/exp", "kubeflow": ""}


def test_a_framework_without_replicas_becomes_an_annotation() -> None:
    found = job(framework="scikit-learn")
    assert found.framework is Framework.PLAIN
    assert found.annotations == {"polyaxon.com/framework": "scikit-learn"}


@pytest.mark.parametrize(
    ("kind", "role", "category", "job_kind", "policy"),
    [
        ("experiment", "master", Category.EXPERIMENTS, JobKind.BATCH, RestartPolicy.NEVER),
        ("job", "job", Category.JOBS, JobKind.BATCH, RestartPolicy.NEVER),
        ("notebook", "notebook", Category.JOBS, JobKind.SERVICE, RestartPolicy.ALWAYS),
        ("tensorboard", "tensorboard", Category.JOBS, JobKind.SERVICE, RestartPolicy.ALWAYS),
    ],
)
def test_a_kind_determines_role_category_and_restart_policy(
    kind: str, role: str, category: Category, job_kind: JobKind, policy: RestartPolicy
) -> None:
    found = job(kind)
    assert (found.category, found.kind) == (category, job_kind)
    assert (only(found.roles).name, only(found.roles).restart_policy) == (role, policy)


@pytest.mark.parametrize(
    ("kind", "fields", "line", "port"),
    [
        (
            "notebook",
            {},
            "exec jupyter notebook --no-browser --allow-root --ip=0.0.0.0 --port=$MUSTER_PORT",
            8888,
        ),
        (
            "notebook",
            {"backend": "lab"},
            "exec jupyter lab --no-browser --allow-root --ip=0.0.0.0 --port=$MUSTER_PORT",
            8888,
        ),
        ("tensorboard", {}, "exec tensorboard --bind_all --logdir=outputs --port=$MUSTER_PORT", 6006),
        (
            "tensorboard",
            {"environment": {"artifact_refs": ["runs"]}},
            "exec tensorboard --bind_all --logdir=/outputs/runs --port=$MUSTER_PORT",
            6006,
        ),
        ("notebook", {"run": {"cmd": "my notebook"}}, "my notebook", 8888),
    ],
)
def test_a_service_has_a_command_and_a_port(kind: str, fields: dict[str, Any], line: str, port: int) -> None:
    given_name: dict[str, Any] = {"run": None, **fields}
    template = only(job(kind, "", **given_name).roles).template
    assert template.command == ("/bin/bash", "-c", line)
    assert template.ports == (Port(name="http", number=port),)


def test_the_back_off_limit_is_the_largest_of_the_roles() -> None:
    replicas = {"n_workers": 1, "default_worker": {"max_restarts": 5}}
    found = job(framework="pytorch", environment={"max_restarts": 2, "replicas": replicas})
    assert found.run.backoff_limit == 5
    assert [role.restart_policy for role in found.roles] == [RestartPolicy.ON_FAILURE] * 2


def test_a_service_with_restarts_is_always_restarted() -> None:
    found = job("notebook", environment={"max_restarts": 2})
    assert (found.run.backoff_limit, only(found.roles).restart_policy) == (2, RestartPolicy.ALWAYS)


def test_zero_restarts_never_restart() -> None:
    found = job(environment={"max_restarts": 0})
    assert (found.run.backoff_limit, only(found.roles).restart_policy) == (0, RestartPolicy.NEVER)


def test_the_later_termination_fields_are_read() -> None:
    found = job("job", environment={"max_retries": 4, "restart_policy": "Always", "ttl": 60, "timeout": 90})
    assert (found.run.backoff_limit, found.run.ttl_s, found.run.active_deadline_s) == (4, 60, 90)
    assert only(found.roles).restart_policy is RestartPolicy.ALWAYS


@pytest.mark.parametrize(
    ("cmd", "line"),
    [
        ("./a.sh || ./b.sh", "./a.sh || ./b.sh"),
        (["one", "two --x=1"], "one && two --x=1"),
        (["one", ""], "one"),
        ("train \\\n   --a=1 \\\n   --b=2", "train --a=1 --b=2"),
        ("train \\ --a=1 \\    --b=2", "train --a=1 --b=2"),
        ("train\n--a=1\n", "train --a=1"),
        ('python -c "print(1,  2)"', 'python -c "print(1,  2)"'),
    ],
)
def test_a_command_is_one_line_for_bash(cmd: Any, line: str) -> None:
    assert only(job("job", run={"cmd": cmd}).roles).template.command == ("/bin/bash", "-c", line)


@pytest.mark.parametrize(
    ("given_name", "given", "name"),
    [
        ("mnist", "file", "mnist"),
        ("My_Exp", "file", "my-exp"),
        ("3layers", "", "experiment-3layers"),
        ("___", "", "experiment"),
        (None, "My File (2)", "my-file-2"),
        (None, "ümlaut", "mlaut"),
        (None, "x" * 80, "x" * 40),
        (None, "", "experiment"),
    ],
)
def test_a_job_has_the_document_s_name_else_the_given_one_else_its_kind(
    given_name: str | None, given: str, name: str
) -> None:
    assert job(source=given, **({"name": given_name} if given_name else {})).name == name


def test_description_and_tags_become_annotations() -> None:
    found = job(description="digits", tags=["a", "b"])
    assert found.annotations == {"polyaxon.com/description": "digits", "polyaxon.com/tags": "a,b"}


def test_an_image_without_build_steps_is_used_unchanged() -> None:
    found = job(build={"image": "tf", "lang_env": "C.UTF-8", "env_vars": [["A", 1]]})
    template = only(found.roles).template
    assert (found.built_by, template.image) == ("", "tf")
    assert template.env == {"LC_ALL": "C.UTF-8", "LANG": "C.UTF-8", "LANGUAGE": "C.UTF-8", "A": "1"}


def test_an_image_with_steps_is_built_first_in_its_own_environment() -> None:
    build, found = jobs(
        name="exp",
        build={"image": "tf", "build_steps": ["a", "b"], "environment": {"node_selector": {"for": "builds"}}},
    )
    assert (build.name, build.kind, build.category) == ("exp-build", JobKind.BUILD, Category.BUILDS)
    assert build.build
    assert only(build.roles).template.command == ("sh", "-ec", "a\nb")
    assert only(build.roles).template.node_selector == {"for": "builds"}
    assert found.built_by == "exp-build"
    assert only(found.roles).template.image == build.build.image


def test_equal_steps_on_an_equal_image_have_an_equal_tag() -> None:
    def image(**build: Any) -> str:
        built, _ = jobs(name="exp", build={"image": "tf", "build_steps": ["a"], **build})
        assert built.build
        return built.build.image

    assert image() == image(nocache=True)
    assert len({image(), image(build_steps=["b"]), image(image="other"), image(env_vars=[["A", 1]])}) == 4


def test_a_flag_parameter_expands_to_its_option_or_to_nothing() -> None:
    inputs = [{"name": name, "type": "bool", "is_flag": True} for name in ("fast", "slow")]
    found = job(
        inputs=inputs, params={"fast": True, "slow": False}, run={"cmd": "train {{ fast }} {{ slow }}"}
    )
    assert only(found.roles).template.command[-1] == "train --fast"
    assert found.options.parameters == {"fast": True, "slow": False}


def test_parameters_in_the_environment_and_the_build_keep_their_types() -> None:
    build, found = jobs(
        params={"workers": 3, "cpu": 0.5, "version": "2.0"},
        framework="pytorch",
        environment={
            "resources": {"cpu": {"requests": "{{ cpu }}"}},
            "replicas": {"n_workers": "{{ workers }}"},
        },
        build={"image": "torch:{{ version }}", "build_steps": ["pip install torch=={{ version }}"]},
    )
    assert [role.replicas for role in found.roles] == [1, 3]
    assert found.roles[0].template.requests == Resources(cpu=500)
    assert build.build
    assert (build.build.base, build.build.steps) == ("torch:2.0", ("pip install torch==2.0",))


def test_secrets_and_config_maps_are_mounted_or_become_variables() -> None:
    environment: dict[str, Any] = {
        "env_vars": [["A", "1"]],
        "secret_refs": [{"name": "whole"}, {"name": "part", "items": ["KEY"]}],
        "config_map_refs": [{"name": "files.conf", "mount_path": "/etc/it", "items": ["x"]}],
        "service_account": "trainer",
        "image_pull_secrets": ["registry"],
        "security_context": {"runAsUser": 7},
    }
    template = only(job(build={"image": "tf"}, environment=environment).roles).template
    assert template.env == {"A": "1"}
    assert template.pod["spec"] == {
        "containers": [
            {
                "name": "main",
                "image": "tf",
                "command": ["/bin/bash", "-c", "train"],
                "env": [
                    {"name": "A", "value": "1"},
                    {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "part", "key": "KEY"}}},
                ],
                "envFrom": [{"secretRef": {"name": "whole"}}],
                "volumeMounts": [{"name": "config-files-conf", "mountPath": "/etc/it", "readOnly": True}],
            }
        ],
        "volumes": [
            {
                "name": "config-files-conf",
                "configMap": {"name": "files.conf", "items": [{"key": "x", "path": "x"}]},
            }
        ],
        "serviceAccountName": "trainer",
        "imagePullSecrets": [{"name": "registry"}],
        "securityContext": {"runAsUser": 7},
    }


def test_a_pod_has_its_framework_s_container_and_port() -> None:
    environment = {"replicas": {"n_workers": 1, "default_worker": {"secret_refs": ["key"]}}}
    worker = job(framework="tensorflow", build={"image": "tf"}, environment=environment).role("worker")
    assert worker
    assert worker.template.ports == (Port(name="tfjob-port", number=2222),)
    (container,) = worker.template.pod["spec"]["containers"]
    assert (container["name"], container["ports"]) == (
        "tensorflow",
        [{"name": "tfjob-port", "containerPort": 2222}],
    )


def test_without_an_image_there_is_no_pod() -> None:
    assert master(secret_refs=["key"]).pod == {}


def nested(table: type[Table], depth: int = 0) -> Iterator[list[str]]:
    """The paths of keys to every mapping with a table of its own; ``[]`` after a key stands for a list."""
    yield []
    for key, field in table.fields().items():
        kind: object = field.type
        inner = kind.element if isinstance(kind, ListOf) else kind  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if isinstance(inner, Nested) and field.effect is Effect.SUPPORTED and depth < 6:
            step = f"{key}[]" if isinstance(kind, ListOf) else key
            yield from ([step, *path] for path in nested(inner.table, depth + 1))


PLACES = [(kind, path) for kind, table in TABLES.items() for path in nested(table)]


@pytest.mark.parametrize(
    ("kind", "path"), PLACES, ids=lambda value: value if isinstance(value, str) else ".".join(value)
)
def test_an_unknown_field_of_any_section_is_reported(kind: str, path: list[str]) -> None:
    whole: dict[str, Any] = {"version": 1, "kind": kind}
    here = whole
    for step in path:
        below: dict[str, Any] = {}
        here[step.removesuffix("[]")] = [below] if step.endswith("[]") else below
        here = below
    here["unknown_key"] = 1
    found = {
        (problem.code, problem.path.rsplit(".", 1)[-1]) for problem in parse(yaml.safe_dump(whole)).problems
    }
    assert found & {
        ("UnknownField", "unknown_key"),
        *(("Conflict", step.removesuffix("[]")) for step in path[1:2]),
    }


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_field_has_a_description(table: type[Table]) -> None:
    assert [key for key, field in table.fields().items() if not field.doc] == []
