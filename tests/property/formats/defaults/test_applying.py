"""Applying platform defaults is idempotent and changes only empty fields."""

from hypothesis import given, strategies as st

from muster_core.models import Category, Job, JobKind, Role, Template, Toleration
from muster_formats.defaults import (
    CategoryDefaults,
    PlatformDefaults,
    apply_defaults,
    category_of,
    defaults_text,
    parse_defaults,
)

FIELDS = ("node_selector", "tolerations", "node_affinity")
NAMES = st.sampled_from(["a", "b", "zone", "gpu"])
SELECTORS = st.dictionaries(NAMES, NAMES, max_size=2)
TOLERATIONS = st.lists(
    st.builds(Toleration, key=NAMES, operator=st.just("Exists")), max_size=2, unique_by=lambda one: one.key
).map(tuple)
AFFINITIES = st.sampled_from(
    [
        {},
        {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]
            }
        },
    ]
)
PODS = st.sampled_from([{}, {"spec": {}}, {"spec": {"containers": [{"name": "main"}]}, "metadata": {}}])
CATEGORIES = st.builds(
    CategoryDefaults, node_selector=SELECTORS, tolerations=TOLERATIONS, node_affinity=AFFINITIES
)
DEFAULTS = st.builds(PlatformDefaults, experiments=CATEGORIES, jobs=CATEGORIES, builds=CATEGORIES)
TEMPLATES = st.builds(
    Template, node_selector=SELECTORS, tolerations=TOLERATIONS, node_affinity=AFFINITIES, pod=PODS
)
ROLES = st.builds(
    Role,
    name=st.sampled_from(["master", "worker", "ps"]),
    replicas=st.just(3),
    min=st.just(3),
    max=st.just(3),
    template=TEMPLATES,
    overrides=st.dictionaries(st.integers(0, 2), TEMPLATES, max_size=2),
)
JOBS = st.builds(
    Job,
    name=st.just("job"),
    roles=st.lists(ROLES, max_size=3, unique_by=lambda role: role.name).map(tuple),
    kind=st.sampled_from(JobKind),
    category=st.one_of(st.none(), st.sampled_from(Category)),
)


def templates(job: Job) -> list[Template]:
    return [one for role in job.roles for one in (role.template, *role.overrides.values())]


@given(JOBS, DEFAULTS)
def test_applying_defaults_again_changes_nothing(job: Job, defaults: PlatformDefaults) -> None:
    once = apply_defaults(job, defaults, 5)
    assert apply_defaults(once, defaults, 5) == once


@given(JOBS, DEFAULTS)
def test_a_field_is_the_job_s_own_or_else_the_default(job: Job, defaults: PlatformDefaults) -> None:
    own = defaults.of(category_of(job))
    after = apply_defaults(job, defaults, 5)
    for before, now in zip(templates(job), templates(after), strict=True):
        for field in FIELDS:
            assert getattr(now, field) == (getattr(before, field) or getattr(own, field))


@given(JOBS, DEFAULTS)
def test_replaced_fields_are_recorded_and_nothing_else_changes(job: Job, defaults: PlatformDefaults) -> None:
    after = apply_defaults(job, defaults, 5)
    changed = sum(
        getattr(before, field) != getattr(now, field)
        for before, now in zip(templates(job), templates(after), strict=True)
        for field in FIELDS
    )
    assert after.defaults
    assert len(after.defaults.fields) == len(set(after.defaults.fields)) == changed
    if not changed:
        assert after.roles == job.roles


@given(DEFAULTS)
def test_defaults_written_natively_are_read_back(defaults: PlatformDefaults) -> None:
    parsed = parse_defaults(defaults_text(defaults))
    assert (parsed.defaults, parsed.problems) == (defaults, ())
