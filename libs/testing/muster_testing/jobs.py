"""Any job that Muster takes, as Hypothesis strategies over the whole model.

A field that the model gains must be drawn here too: a test looks whether every field of every struct is ever anything but its default.
"""

from __future__ import annotations

from collections.abc import Sequence

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
    Problem,
    Rendezvous,
    RestartPolicy,
    RestartScope,
    Role,
    RunPolicy,
    Severity,
    Strategy,
    SuccessPolicy,
)
from muster_formats.native import build_role
from muster_testing.templates import json_objects, keys, labels, names, tell, templates, texts

_MAX_INT32 = 2**31 - 1
_seconds = st.integers(0, _MAX_INT32)
_maybe_seconds = st.none() | _seconds
_words = texts.filter(lambda text: "," not in text and "=" not in text)

_CASTS: dict[Framework, tuple[tuple[str, ...], ...]] = {
    Framework.TENSORFLOW: (("chief", "ps", "worker"), ("master", "evaluator"), ("ps", "worker", "evaluator")),
    Framework.PYTORCH: (("master", "worker"), ("worker",), ("master",)),
    Framework.MPI: (("launcher", "worker"), ("launcher",)),
    Framework.HOROVOD: (("launcher", "worker"),),
    Framework.XGBOOST: (("master", "worker"), ("master",)),
    Framework.PADDLE: (("master", "worker"), ("worker",)),
    Framework.JAX: (("worker",),),
    Framework.MXNET: (("scheduler", "server", "worker"), ("worker",)),
}
_LONE = frozenset({"chief", "master", "evaluator", "launcher", "scheduler"})


@st.composite
def roles(draw: st.DrawFn, name: str, framework: Framework) -> Role:
    """A role with bounds and overrides; one replica where a framework has one."""
    low, replicas, high = 1, 1, 1
    if name not in _LONE:
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

_builds = st.builds(Build, base=names, image=texts, steps=st.lists(texts, max_size=2).map(tuple), env=tell)


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
    """A good job that comes alone, as it is before Muster has validated it; builds are plain whatever the ``frameworks``."""
    kind = draw(st.sampled_from(kinds))
    framework = draw(st.sampled_from(frameworks)) if kind is not JobKind.BUILD else Framework.PLAIN
    build = draw(_builds) if kind is JobKind.BUILD else None
    named = draw(
        st.sampled_from(_CASTS[framework])
        if framework in _CASTS
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
    """A job as Muster keeps it: with where it came from, what was odd, the defaults that it got and the build that it waited for."""
    job = draw(jobs())
    return replace(
        job,
        format=draw(names),
        warnings=tuple(draw(st.lists(_problems, max_size=2))),
        defaults=draw(st.none() | _defaults),
        built_by="" if job.kind is JobKind.BUILD else draw(st.just("") | names),
    )
