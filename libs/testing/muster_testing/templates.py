"""Any template of a replica that Muster takes, short or with a Kubernetes template, as Hypothesis strategies."""

from __future__ import annotations

from typing import cast

from hypothesis import strategies as st
from msgspec.structs import replace

from muster_core.models import Framework, Port, Resources, Template, Toleration
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
"""Texts that a program can be given, those among them that YAML reads as something else."""

names = st.from_regex(r"[a-z]([a-z0-9]{0,6}[a-z0-9])?", fullmatch=True)
"""Names of jobs, roles, ports, queues."""

keys = names | names.map(lambda name: f"example.com/{name}")
"""Keys of labels and annotations."""

labels = st.dictionaries(keys, names | st.sampled_from(["", "1", "true", "1.5"]), max_size=2)
"""Labels."""

tell = st.dictionaries(names | st.sampled_from(["true", "1", "~"]), texts, max_size=2)
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
"""JSON objects whose numbers every reader keeps."""

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
    """Requests, and limits that they keep within."""
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
        env=draw(tell),
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
    """Templates of all forms: short, whole, and whole with fields that replace what it says."""
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
