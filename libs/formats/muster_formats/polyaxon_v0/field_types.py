"""Types of values of Polyaxon 0.x: commands, pairs of variables, references to cluster objects, resources.

Resources are cores, MiB and whole devices, with requests and limits. The last versions also accept Kubernetes' layout (requests and limits
first, with Kubernetes units); the two cannot be combined."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from muster_core.models import GPU_MILLI, Resources
from muster_core.models.problem_codes import Code
from muster_core.quantities import QuantityError, parse_bytes, parse_cpu, parse_quantity
from muster_formats.cursor import Cursor
from muster_formats.field_types import ListOf, LooseString, Quantity, String
from muster_formats.names import EXTENDED_RESOURCE, VARIABLE, JsonObject, NameRule
from muster_formats.pods import GPU_NAMES, parse_count, resource_type, to_resources
from muster_formats.problems import shown
from muster_formats.schema import Field, Nested, Section, Table

_CONTINUED = re.compile(r" ?\\[ \t]+")

_OBJECT = NameRule(
    "a name",
    r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*",
    253,
    "lower-case letters, digits, hyphens and dots, a letter or digit first and last",
    lower_case=True,
)
_KEY = NameRule("a key", r"[-._A-Za-z0-9]+", 253, "letters, digits, '-', '_' and '.'")


@dataclass(frozen=True)
class Commands:
    """A shell command line, or a list of them that run in order while they succeed."""

    title = "string | []string"

    def read(self, cursor: Cursor) -> str | None:
        """Return one shell line, or None if the command is empty."""
        if isinstance(cursor.node.value, list):
            lines = ListOf(String()).read(cursor) or []
            locations = cursor.elements()
        else:
            line = String().read(cursor)
            lines, locations = [] if line is None else [line], [cursor]
        for place in locations:
            _warn_of_lines(place)
        given = [_one_line(line) for line in lines]
        return " && ".join(line for line in given if line) or None

    def schema(self) -> JsonObject:
        """Return the JSON Schema: a text or a list of texts."""
        return {"anyOf": [String().schema(), ListOf(String()).schema()]}


@dataclass(frozen=True)
class Pairs:
    """Variables as a list of name-value pairs."""

    title = "[][name, value]"

    def read(self, cursor: Cursor) -> dict[str, str] | None:
        """Return the variables by name; a repeated name is a problem."""
        if not isinstance(cursor.node.value, list):
            cursor.wrong_type("a list of pairs", "write [[NAME, value], [NAME, value]]")
            return None
        variables: dict[str, str] = {}
        for pair in cursor.elements():
            parts = pair.elements()
            if len(parts) != 2:
                pair.wrong_type("a name-value pair", "write [NAME, value]")
                continue
            name, value = String(VARIABLE).read(parts[0]), LooseString().read(parts[1])
            if name in variables:
                parts[0].error(Code.DUPLICATE, f"{shown(name)} is repeated", fix="remove one of the two")
            elif name is not None and value is not None:
                variables[name] = value
        return variables

    def schema(self) -> JsonObject:
        """Return the JSON Schema: a list of pairs."""
        pair: JsonObject = {
            "type": "array",
            "prefixItems": [String(VARIABLE).schema(), LooseString().schema()],
            "minItems": 2,
            "maxItems": 2,
        }
        return {"type": "array", "items": pair}


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A secret, config map or volume by name; a secret or config map with its mount path and keys."""

    name: str
    mount_path: str = ""
    items: tuple[str, ...] = ()


class V0ObjectFields(Table):
    """A full reference to a secret or a config map."""

    required = ("name",)
    name = Field("name", String(_OBJECT), "Which.")
    mount_path = Field("mount_path", String(), "The mount path; default: as variables.", kubernetes=True)
    items = Field("items", ListOf(String(_KEY)), "The keys; default all.", kubernetes=True)


class V0VolumeFields(Table):
    """A full reference to a volume."""

    required = ("name",)
    name = Field("name", String(_OBJECT), "Which claim.")
    init = Field("init", LooseString(), "Whether it is created.", ignored="the program creates its folders")
    manage = Field(
        "manage", LooseString(), "Whether runs share it.", ignored="the program creates its folders"
    )
    paths = Field("paths", ListOf(String()), "The parts to mount.", ignored="the whole volume is mounted")


@dataclass(frozen=True)
class References:
    """A list of names, or of full references by ``table``."""

    title = "[]string | []object"
    table: type[V0ObjectFields | V0VolumeFields]

    def read(self, cursor: Cursor) -> tuple[Reference, ...] | None:
        """Return the references."""
        if not isinstance(cursor.node.value, list):
            cursor.wrong_type("a list", "write - before each element, or use [ ]")
            return None
        found = [self._read(element) for element in cursor.elements()]
        return tuple(reference for reference in found if reference)

    def schema(self) -> JsonObject:
        """Return the JSON Schema: a list of names or references."""
        return {"type": "array", "items": {"anyOf": [String(_OBJECT).schema(), Nested(self.table).schema()]}}

    def _read(self, cursor: Cursor) -> Reference | None:
        if not isinstance(cursor.node.value, dict):
            name = String(_OBJECT).read(cursor)
            return None if name is None else Reference(name=name)
        section = Nested(self.table).read(cursor)
        name = section.get(self.table.name) if section else None
        if section is None or name is None:
            cursor.missing("name", "a reference needs a name")
            return None
        if self.table is not V0ObjectFields:
            return Reference(name=name)
        return Reference(
            name=name,
            mount_path=section.get(V0ObjectFields.mount_path) or "",
            items=tuple(section.get(V0ObjectFields.items) or ()),
        )


def _one_line(text: str) -> str:
    """Join the lines of a command and drop continuation backslashes, as Polyaxon does."""
    lines = (line.strip().removesuffix("\\").rstrip() for line in text.splitlines())
    return _CONTINUED.sub(" ", " ".join(line for line in lines if line)).strip()


def _warn_of_lines(cursor: Cursor) -> None:
    lines = [line.rstrip() for line in cursor.node.text.strip().splitlines()]
    if any(line and not line.endswith("\\") for line in lines[:-1]):
        why = "Polyaxon joins the lines of a command with spaces"
        fix = "if they are separate commands, write cmd as a list, which is joined with &&"
        cursor.warn_ignored("a line break", why, fix=fix)


TPU = "cloud-tpus.google.com/v2"
"""The extended resource for ``tpu``. Source: Polyaxon's default resource key."""

_MIB = 1024 * 1024
_PLAIN = re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+", re.ASCII)


def _number(scale: int, unit: str) -> Callable[[object], int]:
    def parse(value: object) -> int:
        if isinstance(value, str) and not _PLAIN.fullmatch(value):
            raise QuantityError(f"must be a number of {unit}, without a suffix")
        return parse_quantity(value, scale)

    return parse


def _whole_gpus(value: object) -> int:
    return parse_count(value) * GPU_MILLI


_CORES = Quantity(_number(1000, "cores"), "0.5 or 2")
_MEMORY = Quantity(_number(_MIB, "MiB"), "256, which is 256 MiB")
_GPUS = Quantity(_whole_gpus, "1 or 2")
_UNITS = Quantity(parse_count, "8")
_WRONG = "A spelling of {} in published documents."


class V0CpuFields(Table):
    """``resources.cpu``, in cores."""

    requests = Field("requests", _CORES, "Requested cores.")
    limits = Field("limits", _CORES, "The limit in cores.")
    request = Field("request", _CORES, _WRONG.format("requests"))
    limit = Field("limit", _CORES, _WRONG.format("limits"))


class V0MemoryFields(Table):
    """``resources.memory``, in MiB."""

    requests = Field("requests", _MEMORY, "Requested MiB.")
    limits = Field("limits", _MEMORY, "The limit in MiB.")
    request = Field("request", _MEMORY, _WRONG.format("requests"))
    limit = Field("limit", _MEMORY, _WRONG.format("limits"))


class V0GpuFields(Table):
    """``resources.gpu``, whole."""

    requests = Field("requests", _GPUS, "Whole GPUs.")
    limits = Field("limits", _GPUS, "The same as requests.")
    request = Field("request", _GPUS, _WRONG.format("requests"))
    limit = Field("limit", _GPUS, _WRONG.format("limits"))


class V0TpuFields(Table):
    """``resources.tpu``, whole."""

    requests = Field("requests", _UNITS, f"Whole TPUs, as the extended resource {TPU}.")
    limits = Field("limits", _UNITS, "The same as requests.")
    request = Field("request", _UNITS, _WRONG.format("requests"))
    limit = Field("limit", _UNITS, _WRONG.format("limits"))


class V0KubernetesAmountFields(Table):
    """``resources.requests`` or ``limits``: the later layout, in Kubernetes units."""

    others = (EXTENDED_RESOURCE, Quantity(parse_count, "1 or 2"))
    cpu = Field("cpu", Quantity(parse_cpu, "500m or 2"), "CPUs.")
    memory = Field("memory", Quantity(parse_bytes, "256Mi or 1G"), "Bytes of memory.")
    gpu = Field("gpu", _GPUS, "Whole GPUs.")
    tpu = Field("tpu", _UNITS, f"Whole TPUs, as the extended resource {TPU}.")


class V0ResourceFields(Table):
    """``resources``."""

    cpu = Field("cpu", Nested(V0CpuFields), "Cores.")
    memory = Field("memory", Nested(V0MemoryFields), "Memory in MiB.")
    gpu = Field("gpu", Nested(V0GpuFields), "Whole GPUs.")
    tpu = Field("tpu", Nested(V0TpuFields), "Whole TPUs.")
    requests = Field("requests", Nested(V0KubernetesAmountFields), "Requests, in the later layout.")
    limits = Field("limits", Nested(V0KubernetesAmountFields), "Limits, in the later layout.")


_SORTS = (
    (V0ResourceFields.cpu, V0CpuFields, "cpu"),
    (V0ResourceFields.memory, V0MemoryFields, "memory"),
    (V0ResourceFields.gpu, V0GpuFields, "gpu"),
    (V0ResourceFields.tpu, V0TpuFields, TPU),
)
_DEVICES = frozenset({"gpu", TPU})


def read_resources(section: Section) -> tuple[Resources, Resources]:
    """Return requests and limits; a limit without a request is also the request. A request above its limit is a problem."""
    given = _Amounts()
    for sort, table, name in _SORTS:
        if part := section.get(sort):
            asked, held = (
                part.get_misspelt(table.requests, table.request),
                part.get_misspelt(table.limits, table.limit),
            )
            given.note(name, asked, held, part.at("requests") or part.at("request") or part.cursor)
    asked_list, held_list = section.get(V0ResourceFields.requests), section.get(V0ResourceFields.limits)
    if asked_list or held_list:
        for sort, _, _ in _SORTS:
            if cursor := section.at(sort.key):
                message = f"{sort.key} cannot be combined with requests or limits, which are another layout"
                cursor.error(
                    Code.CONFLICT, message, found="", fix=f"move {sort.key} into requests and limits"
                )
        asked_all, held_all = _kubernetes(asked_list), _kubernetes(held_list)
        for name in {**asked_all, **held_all}:
            given.note(name, asked_all.get(name), held_all.get(name), (asked_list or section).cursor)
    return to_resources({**given.limits, **given.requests}), to_resources(given.limits)


@dataclass
class _Amounts:
    requests: dict[str, int] = field(default_factory=dict[str, int])
    limits: dict[str, int] = field(default_factory=dict[str, int])

    def note(self, name: str, asked: int | None, held: int | None, at: Cursor) -> None:
        if asked is not None and held is not None and name in _DEVICES and asked != held:
            message = "a device is not shared: its request and limit must be equal"
            at.error(Code.CONFLICT, message, found="", fix="write the same number for both")
        elif asked is not None and held is not None and asked > held:
            at.error(
                Code.CONFLICT, f"the request of {name} exceeds its limit", found="", fix="raise the limit"
            )
        if asked is not None:
            self.requests[name] = asked
        if held is not None:
            self.limits[name] = held
        elif asked is not None and name in _DEVICES:
            self.limits[name] = asked


def _kubernetes(section: Section | None) -> dict[str, int]:
    if section is None:
        return {}
    read = {
        "cpu": section.get(V0KubernetesAmountFields.cpu),
        "memory": section.get(V0KubernetesAmountFields.memory),
        "gpu": section.get(V0KubernetesAmountFields.gpu),
        TPU: section.get(V0KubernetesAmountFields.tpu),
    }
    for key, cursor in section.extras().items():
        if V0KubernetesAmountFields.allows(key):
            name, parse, examples = resource_type(key)
            read[name if key in GPU_NAMES else key] = Quantity(parse, examples).read(cursor)
    return {name: amount for name, amount in read.items() if amount is not None}
