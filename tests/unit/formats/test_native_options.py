"""Framework options and builds of the native format."""

import pytest

from muster_core.models import (
    Build,
    Category,
    Convention,
    Framework,
    FrameworkOptions,
    JobKind,
    Problem,
    Rendezvous,
    Role,
    Severity,
    Template,
)
from muster_formats import parse
from muster_formats.native import native_text

HEAD = "apiVersion: muster.dev/v1\nkind: Job\nmetadata: {name: %s}\nspec:\n"
TRAINING = HEAD % "training"
ROLES = "  roles: {worker: {image: x}}\n"
BUILD = HEAD % "image" + "  kind: build\n  build: {base: python, steps: [make]}\n"


def problems_of(text: str) -> tuple[Problem, ...]:
    return parse(text).problems


def test_every_option_is_read() -> None:
    text = (
        TRAINING
        + ROLES
        + """
  framework: pytorch
  category: jobs
  options:
    processes: 4
    rendezvous:
      backend: etcd
      host: etcd.example.com
      port: 2379
      id: run-7
      conf: {timeout: 60, protocol: http}
      maxRestarts: 3
      standalone: true
    conventions: [polyaxon]
    parameters: {rate: 0.1, layers: [64, 10], resume: false}
"""
    )
    (job,) = parse(text).jobs
    assert job.warnings == ()
    assert job.category is Category.JOBS
    assert job.options == FrameworkOptions(
        processes="4",
        rendezvous=Rendezvous(
            backend="etcd",
            host="etcd.example.com",
            port=2379,
            job_id="run-7",
            conf={"timeout": "60", "protocol": "http"},
            max_restarts=3,
            standalone=True,
        ),
        conventions=(Convention.POLYAXON,),
        parameters={"rate": 0.1, "layers": [64, 10], "resume": False},
    )


def test_the_options_of_tensorflow_are_read() -> None:
    options = "  options: {sparseCluster: true, evaluatorInCluster: true, modelDir: /models}\n"
    (job,) = parse(f"{TRAINING}  framework: tensorflow\n{options}{ROLES}").jobs
    assert job.warnings == ()
    assert job.options == FrameworkOptions(
        sparse_cluster=True, evaluator_in_cluster=True, model_dir="/models"
    )


@pytest.mark.parametrize(
    ("option", "key"),
    [
        ("processes: 2", "processes"),
        ("rendezvous: {}", "rendezvous"),
        ("sparseCluster: true", "sparseCluster"),
        ("evaluatorInCluster: true", "evaluatorInCluster"),
        ("modelDir: /m", "modelDir"),
        ("parameters: {a: 1}", "parameters"),
    ],
)
def test_an_option_of_another_framework_is_a_warning(option: str, key: str) -> None:
    (problem,) = problems_of(f"{TRAINING}  framework: jax\n  options: {{{option}}}\n{ROLES}")
    assert (problem.code, problem.severity) == ("Ignored", Severity.WARNING)
    assert problem.path == f"spec.options.{key}"
    assert problem.message.startswith(f"{key} has no effect")


BAD_OPTIONS = {
    "processes: many": ("NotAllowed", "spec.options.processes"),
    "processes: 1025": ("NotAllowed", "spec.options.processes"),
    "processes: 1.5": ("WrongType", "spec.options.processes"),
    "rendezvous: {backend: zookeeper}": ("NotAllowed", "spec.options.rendezvous.backend"),
    "rendezvous: {port: 0}": ("OutOfRange", "spec.options.rendezvous.port"),
    "rendezvous: {conf: {'a,b': c}}": ("BadName", "spec.options.rendezvous.conf"),
    "rendezvous: {rounds: 2}": ("UnknownField", "spec.options.rendezvous.rounds"),
    "conventions: [kubeflow]": ("NotAllowed", "spec.options.conventions[0]"),
    "parameters: {seed: 9007199254740993}": ("BadNumber", "spec.options.parameters"),
    "process: 2": ("UnknownField", "spec.options.process"),
}


@pytest.mark.parametrize(("option", "expected"), BAD_OPTIONS.items(), ids=BAD_OPTIONS)
def test_a_bad_option_is_rejected_at_its_path(option: str, expected: tuple[str, str]) -> None:
    text = f"{TRAINING}  framework: pytorch\n  options: {{conventions: [polyaxon], {option}}}\n{ROLES}"
    problems = problems_of(text.replace("conventions: [polyaxon], conventions", "conventions"))
    assert [(problem.code, problem.path) for problem in problems] == [expected]
    assert problems[0].line == 6


def test_a_build_without_roles_runs_its_steps_in_a_shell() -> None:
    build = "  build: {base: python, image: registry/training, steps: [pip install x, make], env: {A: 1}}\n"
    (job,) = parse(f"{HEAD % 'image'}  kind: build\n{build}").jobs
    template = Template(image="python", command=("sh", "-ec", "pip install x\nmake"), env={"A": "1"})
    assert job.kind is JobKind.BUILD
    assert job.build == Build(
        base="python", image="registry/training", steps=("pip install x", "make"), env={"A": "1"}
    )
    assert job.roles == (Role(name="build", replicas=1, min=1, max=1, template=template),)
    assert "roles" not in native_text(job)


def test_a_build_may_have_roles_of_its_own() -> None:
    (job,) = parse(BUILD + "  roles: {kaniko: {image: kaniko}}\n").jobs
    assert [role.name for role in job.roles] == ["kaniko"]


def test_a_job_waits_for_a_build_before_or_after_it_in_the_document() -> None:
    training = f"{TRAINING}  builtBy: image\n{ROLES}"
    for text in (f"{BUILD}---\n{training}", f"{training}---\n{BUILD}"):
        parsed = parse(text)
        assert parsed.problems == ()
        assert {job.name: job.built_by for job in parsed.jobs} == {"image": "", "training": "image"}


BAD_BUILDS = {
    "a build without steps": (HEAD % "a" + "  kind: build\n  build: {image: x}\n", "Required", "spec.build"),
    "a build without a build": (HEAD % "a" + "  kind: build\n" + ROLES, "Required", "spec.build"),
    "a build by a job that trains": (TRAINING + "  build: {steps: [a]}\n" + ROLES, "Conflict", "spec.build"),
    "a build of a build": (f"{BUILD}  builtBy: image\n", "Conflict", "spec.builtBy"),
    "a build that is not there": (f"{TRAINING}  builtBy: image\n{ROLES}", "Conflict", "spec.builtBy"),
    "a build in another namespace": (
        f"{BUILD.replace('{name: image}', '{name: image, namespace: other}')}---\n{TRAINING}  builtBy: image\n{ROLES}",
        "Conflict",
        "spec.builtBy",
    ),
    "a job that is no build": (
        f"{HEAD % 'image'}{ROLES}---\n{TRAINING}  builtBy: image\n{ROLES}",
        "Conflict",
        "spec.builtBy",
    ),
    "a name that is none": (f"{BUILD}---\n{TRAINING}  builtBy: Image\n{ROLES}", "BadName", "spec.builtBy"),
}


@pytest.mark.parametrize(("text", "code", "path"), BAD_BUILDS.values(), ids=BAD_BUILDS)
def test_a_bad_build_is_rejected_at_its_path(text: str, code: str, path: str) -> None:
    (problem,) = problems_of(text)
    assert (problem.code, problem.path) == (code, path)
    assert problem.line > 0
    assert problem.fix


def test_the_fix_for_an_unknown_build_is_the_known_one() -> None:
    (problem,) = problems_of(f"{BUILD}---\n{TRAINING}  builtBy: imge\n{ROLES}")
    assert problem.fix == "write builtBy: image"


def test_a_build_with_errors_is_not_also_missing() -> None:
    broken = BUILD.replace("kind: Job", "kind: Jobb")
    assert [p.code for p in problems_of(f"{broken}---\n{TRAINING}  builtBy: image\n{ROLES}")] == [
        "UnsupportedKind"
    ]


def test_hugepages_are_amounts_of_bytes() -> None:
    (job,) = parse(TRAINING + "  roles: {worker: {image: x, resources: {hugepages-2Mi: 64Mi}}}\n").jobs
    assert job.roles[0].template.requests.extended == {"hugepages-2Mi": 64 * 2**20}
    assert job.framework is Framework.PLAIN
