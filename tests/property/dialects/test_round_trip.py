"""A job that is written natively is read back as the same job."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from muster_core.dialects import check, native_text, parse, to_native
from muster_core.models import (
    CleanPodPolicy,
    ElasticPolicy,
    Framework,
    Job,
    JobKind,
    PlacementPolicy,
    Port,
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

EXAMPLES = Path(__file__).parents[3] / "examples"
CHARACTERS = st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="\u2028\u2029")
AWKWARD = [
    "true",
    "no",
    "12",
    "1e3",
    "~",
    "",
    " x ",
    "- a",
    "2024-01-01",
    "a: b",
    "0x1f",
    ".nan",
    "*a",
    "a\nb\n",
    "\ttab",
    "#",
]
TEXTS = st.text(CHARACTERS, max_size=12) | st.sampled_from(AWKWARD)
NAMES = st.from_regex(r"[a-z]([a-z0-9]{0,6}[a-z0-9])?", fullmatch=True)
KEYS = NAMES | NAMES.map(lambda name: f"example.com/{name}")
LABELS = st.dictionaries(KEYS, NAMES | st.sampled_from(["", "1", "true", "1.5"]), max_size=2)
COUNTS = st.integers(0, 2**40)
SECONDS = st.integers(0, 2**31 - 1)


@st.composite
def resources(draw: st.DrawFn) -> tuple[Resources, Resources]:
    gpu = draw(st.sampled_from([0, 250, 1000, 8000]))
    requests = Resources(
        cpu=draw(COUNTS),
        memory=draw(COUNTS),
        gpu=gpu,
        gpu_memory=draw(COUNTS) if gpu else 0,
        ephemeral_storage=draw(COUNTS),
        extended=draw(
            st.dictionaries(NAMES.map(lambda name: f"example.com/{name}"), st.integers(1, 9), max_size=2)
        ),
    )
    named = {
        name: amount
        for name, amount in requests.amounts().items()
        if amount and name in ("cpu", "memory", "ephemeral_storage")
    }
    held = draw(st.sets(st.sampled_from(sorted(named)))) if named else set[str]()
    limits = {name: named[name] + draw(st.integers(0, 5)) for name in held}
    return requests, msgspec.convert(limits, Resources)


@st.composite
def templates(draw: st.DrawFn) -> Template:
    requests, limits = draw(resources())
    ports = draw(
        st.lists(st.tuples(NAMES, st.integers(1, 65535)), max_size=2, unique_by=lambda port: port[0])
    )
    affinity = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "x"]}]}
            ]
        }
    }
    return Template(
        image=draw(TEXTS.filter(bool)),
        command=tuple(draw(st.lists(TEXTS, max_size=3))),
        args=tuple(draw(st.lists(TEXTS, max_size=3))),
        env=draw(st.dictionaries(NAMES | st.sampled_from(["true", "1", "~"]), TEXTS, max_size=3)),
        working_dir=draw(TEXTS),
        requests=requests,
        limits=limits,
        ports=tuple(Port(name=name, number=number) for name, number in ports),
        labels=draw(LABELS),
        annotations=draw(st.dictionaries(KEYS, TEXTS, max_size=2)),
        node_selector=draw(LABELS),
        tolerations=tuple(
            draw(
                st.lists(
                    st.sampled_from(
                        [Toleration(operator="Exists"), Toleration(key="a", value="b", effect="NoExecute")]
                    ),
                    max_size=2,
                )
            )
        ),
        node_affinity=draw(st.sampled_from([{}, affinity])),
        grace_s=draw(SECONDS),
    )


@st.composite
def roles(draw: st.DrawFn, name: str) -> Role:
    low = draw(st.integers(0, 3))
    replicas = draw(st.integers(max(low, 1), 5))
    high = draw(st.integers(replicas, 8))
    return Role(
        name=name,
        replicas=replicas,
        min=low,
        max=high,
        template=draw(templates()),
        overrides=draw(st.dictionaries(st.integers(0, high - 1), templates(), max_size=2)),
        restart_policy=draw(st.sampled_from(RestartPolicy)),
    )


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    names = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    optional = st.none() | SECONDS
    topology = draw(st.just("") | KEYS)
    return Job(
        name=draw(NAMES),
        namespace=draw(NAMES),
        roles=tuple(draw(roles(name)) for name in names),
        queue=draw(st.just("") | NAMES),
        priority=draw(st.integers(-(2**31), 2**31 - 1)),
        preemptible=draw(st.booleans()),
        kind=draw(st.sampled_from(JobKind)),
        framework=draw(
            st.sampled_from([framework for framework in Framework if framework is not Framework.TENSORFLOW])
        ),
        min_available=draw(st.none() | st.just(1)),
        placement=PlacementPolicy(
            strategy=draw(st.sampled_from(Strategy)),
            topology=topology,
            topology_required=bool(topology) and draw(st.booleans()),
            gpu_topology=draw(st.booleans()),
        ),
        elastic=ElasticPolicy(
            policy=draw(st.just("") | NAMES), cool_down_s=draw(SECONDS), step=draw(st.integers(0, 9))
        ),
        run=RunPolicy(
            restart_scope=draw(st.none() | st.sampled_from(RestartScope)),
            backoff_limit=draw(st.integers(0, 9)),
            active_deadline_s=draw(optional),
            queue_deadline_s=draw(optional),
            start_timeout_s=draw(optional),
            ttl_s=draw(optional),
            clean_pod_policy=draw(st.sampled_from(CleanPodPolicy)),
            success_policy=draw(st.sampled_from(SuccessPolicy)),
            suspend=draw(st.booleans()),
        ),
        labels=draw(LABELS),
        annotations=draw(st.dictionaries(KEYS, TEXTS, max_size=2)),
    )


@settings(max_examples=30, deadline=None)
@given(jobs())
def test_a_good_job_is_read_back_from_json_and_from_yaml(job: Job) -> None:
    assert check(job) == ()
    for text in (json.dumps(to_native(job), ensure_ascii=False), native_text(job)):
        parsed = parse(text)
        assert parsed.problems == ()
        assert parsed.jobs == (job,)


DOCUMENTS = sorted((*EXAMPLES.glob("digits/*.yaml"), *EXAMPLES.glob("hello/*.yaml")))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_a_document_of_any_dialect_can_be_written_natively(path: Path) -> None:
    (job,) = parse(path.read_text()).jobs
    assert parse(native_text(job)).jobs == (replace(job, dialect="native"),)


def test_a_template_of_a_single_replica_survives_the_native_form() -> None:
    templates = [{"spec": {"containers": [{"name": "main", "image": image}]}} for image in ("x", "y")]
    role = {"replicas": 2, "template": templates[0], "overrides": [{"index": 1, "template": templates[1]}]}
    document = {
        "apiVersion": "muster.dev/v1",
        "kind": "Job",
        "metadata": {"name": "a"},
        "spec": {"roles": {"worker": role}},
    }
    (job,) = parse(json.dumps(document)).jobs
    assert parse(native_text(job)).jobs == (job,)


def test_a_share_of_a_gpu_survives_the_native_form() -> None:
    document = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "share", "annotations": {"DRAGON_KUBESHARE": "true"}},
        "spec": {
            "tfReplicaSpecs": {
                "Worker": {
                    "template": {
                        "metadata": {
                            "annotations": {"kubeshare/gpu_request": "0.5", "kubeshare/gpu_limit": "1"}
                        },
                        "spec": {
                            "containers": [{"name": "tensorflow", "image": "x"}],
                            "schedulerName": "volcano",
                        },
                    }
                }
            }
        },
    }
    parsed = parse(json.dumps(document))
    assert [problem.severity for problem in parsed.problems] == [Severity.WARNING]
    (job,) = parsed.jobs
    assert parse(native_text(job)).jobs == (replace(job, dialect="native", warnings=()),)
