"""Hypothesis strategies for every valid job: templates of replicas, with or without a Kubernetes template, and whole jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from hypothesis import strategies as st
from msgspec.structs import replace

from muster_core.models import (
    ELASTIC_POLICIES,
    AppliedDefaults,
    Build,
    Category,
    CleanPodPolicy,
    Convention,
    ElasticPolicy,
    Framework,
    FrameworkOptions,
    Job,
    JobKind,
    PlacementPolicy,
    Port,
    Problem,
    Rendezvous,
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
from muster_formats.native import build_role
from muster_formats.nodes import JsonObject
from muster_formats.pods import main_container_of, template_of

_AWKWARD = [
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
]
_CHARACTERS = st.characters(codec="utf-8", exclude_characters="\0")

texts = st.text(_CHARACTERS, max_size=8) | st.sampled_from(_AWKWARD)
"""Strings, among them many that YAML would read as another type."""

names = st.from_regex(r"[a-z]([a-z0-9]{0,6}[a-z0-9])?", fullmatch=True)
"""Names of jobs, roles, ports, queues."""

keys = names | names.map(lambda name: f"example.com/{name}")
"""Keys of labels and annotations."""

labels = st.dictionaries(keys, names | st.sampled_from(["", "1", "true", "1.5"]), max_size=2)
"""Labels."""

env_variables = st.dictionaries(names | st.sampled_from(["true", "1", "~"]), texts, max_size=2)
"""Environment variables."""

counts = st.integers(0, 2**40)
"""Amounts of resources."""

_seconds = st.integers(0, 2**31 - 1)
_numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False, width=32)
_scalars = st.none() | st.booleans() | _numbers | texts

json_objects = st.dictionaries(
    texts,
    st.recursive(
        _scalars,
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
        max_leaves=4,
    ),
    max_size=2,
)
"""JSON objects with numbers that every JSON parser preserves."""

_AFFINITY: JsonObject = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["1", "x"]}]}]
    }
}
_TOLERATIONS = [
    Toleration(operator="Exists"),
    Toleration(key="gpu", operator="Exists", effect="NoSchedule"),
    Toleration(key="a", value="b", effect="NoExecute"),
]
_COMMON = ("cpu", "memory", "ephemeral_storage")


@st.composite
def resources(draw: st.DrawFn) -> tuple[Resources, Resources]:
    """Requests, and limits that are not below them."""
    gpu = draw(st.sampled_from([0, 250, 1000, 8000]))
    extended = names.map(lambda name: f"example.com/{name}") | st.just("hugepages-2Mi")
    requests = Resources(
        cpu=draw(counts),
        memory=draw(counts),
        gpu=gpu,
        gpu_memory=draw(counts) if gpu else 0,
        ephemeral_storage=draw(counts),
        extended=draw(st.dictionaries(extended, st.integers(1, 9), max_size=2)),
    )
    held = draw(st.sets(st.sampled_from(_COMMON)))
    more = draw(st.integers(1, 5))
    return requests, Resources(
        **{name: requests.amount(name) + more for name in held},
        gpu=draw(st.sampled_from([0, gpu])),
        gpu_memory=draw(st.sampled_from([0, requests.gpu_memory])),
        extended=draw(st.sampled_from([{}, requests.extended])),
    )


@st.composite
def short_templates(draw: st.DrawFn) -> Template:
    """Templates without a Kubernetes template."""
    requests, limits = draw(resources())
    numbers = st.integers(1, 65535)
    ports = draw(st.lists(st.tuples(names, numbers), max_size=2, unique_by=lambda port: port[0]))
    return Template(
        image=draw(texts.filter(bool)),
        command=tuple(draw(st.lists(texts, max_size=2))),
        args=tuple(draw(st.lists(texts, max_size=2))),
        env=draw(env_variables),
        working_dir=draw(texts),
        requests=requests,
        limits=limits,
        ports=tuple(Port(name=name, number=number) for name, number in ports),
        labels=draw(labels),
        annotations=draw(st.dictionaries(keys, texts, max_size=1)),
        node_selector=draw(labels),
        tolerations=tuple(draw(st.lists(st.sampled_from(_TOLERATIONS), max_size=2, unique=True))),
        node_affinity=draw(st.sampled_from([cast("JsonObject", {}), _AFFINITY])),
        grace_s=draw(_seconds),
    )


@st.composite
def templates(draw: st.DrawFn, framework: Framework) -> Template:
    """Templates of all forms: short, with a Kubernetes template, and with both, where the short fields override."""
    short = draw(short_templates())
    if draw(st.integers(0, 2)):
        return short
    container: JsonObject = {"name": "tensorflow", "image": draw(names), "args": [draw(texts)]}
    container["resources"] = {"limits": {"cpu": draw(st.integers(1, 9)), "nvidia.com/gpu": 1}}
    pod: JsonObject = {
        "metadata": {"labels": dict(draw(labels))},
        "spec": {"containers": [container], "volumes": []},
    }
    whole = template_of(cast("dict[str, object]", pod), main_container_of(framework, {}))
    replaced = draw(st.sets(st.sampled_from(["image", "env", "command", "labels", "requests", "grace_s"])))
    fields = {name: getattr(short, name) for name in replaced}
    return replace(whole, **fields, **({"limits": short.limits} if "requests" in replaced else {}))


_MAX_INT32 = 2**31 - 1
_seconds = st.integers(0, _MAX_INT32)
_maybe_seconds = st.none() | _seconds
_words = texts.filter(lambda text: "," not in text and "=" not in text)

_FRAMEWORK_ROLES: dict[Framework, tuple[tuple[str, ...], ...]] = {
    Framework.TENSORFLOW: (("chief", "ps", "worker"), ("master", "evaluator"), ("ps", "worker", "evaluator")),
    Framework.PYTORCH: (("master", "worker"), ("worker",), ("master",)),
    Framework.MPI: (("launcher", "worker"), ("launcher",)),
    Framework.HOROVOD: (("launcher", "worker"),),
    Framework.XGBOOST: (("master", "worker"), ("master",)),
    Framework.PADDLE: (("master", "worker"), ("worker",)),
    Framework.JAX: (("worker",),),
    Framework.MXNET: (("scheduler", "server", "worker"), ("worker",)),
}
_SINGLE_REPLICA = frozenset({"chief", "master", "evaluator", "launcher", "scheduler"})


@st.composite
def roles(draw: st.DrawFn, name: str, framework: Framework) -> Role:
    """A role with bounds and overrides; one replica if the framework allows only one."""
    low, replicas, high = 1, 1, 1
    if name not in _SINGLE_REPLICA:
        low = draw(st.integers(0, 2))
        replicas = draw(st.integers(max(low, 1), 3))
        high = draw(st.integers(replicas, 4))
    overridden = st.dictionaries(st.integers(0, high - 1), templates(framework), max_size=1)
    return Role(
        name=name,
        replicas=replicas,
        min=low,
        max=high,
        template=draw(templates(framework)),
        overrides=draw(overridden),
        restart_policy=draw(st.sampled_from(RestartPolicy)),
    )


_runs = st.builds(
    RunPolicy,
    restart_scope=st.none() | st.sampled_from(RestartScope),
    backoff_limit=st.integers(0, _MAX_INT32),
    active_deadline_s=_maybe_seconds,
    queue_deadline_s=_maybe_seconds,
    start_timeout_s=_maybe_seconds,
    ttl_s=_maybe_seconds,
    clean_pod_policy=st.sampled_from(CleanPodPolicy),
    success_policy=st.sampled_from(SuccessPolicy),
    suspend=st.booleans(),
)

_elastic = st.builds(
    ElasticPolicy,
    policy=st.sampled_from(("", *ELASTIC_POLICIES)),
    cool_down_s=_seconds,
    step=st.integers(0, 5_000),
)

_rendezvous = st.builds(
    Rendezvous,
    backend=st.sampled_from(["c10d", "etcd", "etcd-v2"]),
    host=texts,
    port=st.none() | st.integers(1, 65535),
    job_id=texts,
    conf=st.dictionaries(_words.filter(bool), _words, max_size=2),
    max_restarts=st.none() | st.integers(0, _MAX_INT32),
    standalone=st.booleans(),
)

_builds = st.builds(
    Build, base=names, image=texts, steps=st.lists(texts, max_size=2).map(tuple), env=env_variables
)


@st.composite
def _placements(draw: st.DrawFn) -> PlacementPolicy:
    topology = draw(st.just("") | keys)
    return PlacementPolicy(
        strategy=draw(st.sampled_from(Strategy)),
        topology=topology,
        topology_required=bool(topology) and draw(st.booleans()),
        gpu_topology=draw(st.booleans()),
    )


@st.composite
def _options(draw: st.DrawFn, framework: Framework) -> FrameworkOptions:
    words = ["auto", "cpu", "gpu"] if framework is Framework.PYTORCH else []
    return FrameworkOptions(
        processes=draw(st.sampled_from(["", "1", "8", "1024", *words])),
        rendezvous=draw(st.none() | _rendezvous),
        sparse_cluster=draw(st.booleans()),
        evaluator_in_cluster=draw(st.booleans()),
        model_dir=draw(texts),
        conventions=tuple(draw(st.lists(st.sampled_from(Convention), max_size=1))),
        parameters=draw(json_objects),
    )


_KINDS = (JobKind.BATCH, JobKind.BATCH, JobKind.SERVICE, JobKind.BUILD)


@st.composite
def jobs(
    draw: st.DrawFn, frameworks: Sequence[Framework] = tuple(Framework), kinds: Sequence[JobKind] = _KINDS
) -> Job:
    """A valid, independent job before its validation by Muster; builds are plain, whatever the ``frameworks``."""
    kind = draw(st.sampled_from(kinds))
    framework = draw(st.sampled_from(frameworks)) if kind is not JobKind.BUILD else Framework.PLAIN
    build = draw(_builds) if kind is JobKind.BUILD else None
    named = draw(
        st.sampled_from(_FRAMEWORK_ROLES[framework])
        if framework in _FRAMEWORK_ROLES
        else st.lists(names, min_size=1, max_size=2, unique=True)
    )
    drawn = tuple(draw(roles(name, framework)) for name in named)
    return Job(
        name=draw(names),
        namespace=draw(names),
        roles=(build_role(build),) if build and draw(st.booleans()) else drawn,
        queue=draw(st.just("") | names),
        priority=draw(st.integers(-(2**31), _MAX_INT32)),
        preemptible=draw(st.booleans()),
        kind=kind,
        category=draw(st.none() | st.sampled_from(Category)),
        framework=framework,
        options=draw(_options(framework)),
        build=build,
        min_available=draw(st.none() | st.just(1)),
        placement=draw(_placements()),
        elastic=draw(_elastic),
        run=draw(_runs),
        labels=draw(labels),
        annotations=draw(st.dictionaries(keys, texts, max_size=1)),
    )


_problems = st.builds(
    Problem,
    code=names,
    path=texts,
    message=texts,
    severity=st.sampled_from(Severity),
    line=st.integers(0, _MAX_INT32),
    column=st.integers(0, _MAX_INT32),
    found=texts,
    allowed=texts,
    fix=texts,
)

_defaults = st.builds(
    AppliedDefaults,
    category=st.sampled_from(Category),
    version=st.integers(0, 2**53),
    fields=st.lists(texts, max_size=2).map(tuple),
)


@st.composite
def stored_jobs(draw: st.DrawFn) -> Job:
    """A job as stored by Muster: with its format, warnings, applied defaults and the build that it waited for."""
    job = draw(jobs())
    return replace(
        job,
        format=draw(names),
        warnings=tuple(draw(st.lists(_problems, max_size=2))),
        defaults=draw(st.none() | _defaults),
        built_by="" if job.kind is JobKind.BUILD else draw(st.just("") | names),
    )
