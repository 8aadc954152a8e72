"""Merge an operation with its component: fields by ``patchStrategy``, ``runPatch`` over the run, expressions expanded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster_formats.cursor import Cursor
from muster_formats.field_types import FieldType
from muster_formats.nodes import YamlNode
from muster_formats.polyaxon_v1.expressions import Names
from muster_formats.polyaxon_v1.keys import ComponentKeys, OperationKeys, PatchStrategy
from muster_formats.polyaxon_v1.params import Given
from muster_formats.polyaxon_v1.patch import Patch, Placed
from muster_formats.polyaxon_v1.run_keys import RUN, PodKeys, ReplicaKeys, ServiceKeys
from muster_formats.problems import RelocatedProblems
from muster_formats.schema import Field, Section

_KIND = "kind"
_POD = frozenset(ReplicaKeys.fields())
_MANY = "workers"


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """The fields of an operation over those of its component; ``operation`` is ``None`` for a bare component."""

    operation: Section | None
    component: Section
    moved: RelocatedProblems
    names: Names = field(default_factory=lambda: Names(values={}, known={}))

    def with_names(self, given: Given, known: Mapping[str, str]) -> Compiled:
        """Return a copy with these names expanded."""
        return Compiled(
            operation=self.operation,
            component=self.component,
            moved=self.moved,
            names=Names(values=given.values, known=known),
        )

    def at(self, wanted: Field[object] | str) -> Cursor | None:
        """Return the location of a field that either may give."""
        key = wanted if isinstance(wanted, str) else wanted.key
        merged = self._patch().apply(_placed(self.component, key), _placed(self.operation, key))
        return self._filled(merged, key) if merged else None

    def text(self, wanted: Field[str], kind: FieldType[str] | None = None) -> str:
        """Return a text that either may give, or an empty text."""
        at = self.at(wanted.key)
        return ((kind or wanted.type).read(at) if at else None) or ""

    def run(self) -> Section | None:
        """Return the run by the table of its kind, or ``None`` after reporting the problem."""
        base = self.component.at(ComponentKeys.run.key)
        if base is None:
            self.component.cursor.missing(
                "run", "a component needs a run", "add run: {kind: job, container: ...}"
            )
            return None
        merged = self._patched(Placed(base.node, base.path))
        ports = _entry(merged.node, ServiceKeys.ports.key)
        if ports is not None:
            read = self.names.resolve(ports, f"{merged.path}.ports", self.moved)
            numbers = read.plain()
            self.names.ports = tuple(
                number for number in (numbers if isinstance(numbers, list) else []) if isinstance(number, int)
            )
        return RUN.read(self._filled(merged, ""))

    def _patched(self, run: Placed) -> Placed:
        at = self.operation.at(OperationKeys.run_patch.key) if self.operation else None
        if at is None:
            return run
        if not isinstance(at.node.value, dict):
            at.wrong_type("a mapping")
            return run
        patch = Placed(at.node, at.path)
        kind = _entry(run.node, _KIND)
        nested = RUN.tables.get(kind.text) if kind else None
        fields = frozenset(nested.table.fields()) if nested else frozenset[str]()
        given = set(at.node.value)
        if nested is None or PodKeys.container.key in fields or not given <= _POD or given & fields:
            return self._patch().apply(run, patch) or run
        return self._each_replica(run, patch, fields)

    def _each_replica(self, run: Placed, patch: Placed, fields: frozenset[str]) -> Placed:
        """Apply a patch of one replica to every replica type of a distributed run."""
        value = run.node.value
        if not isinstance(value, dict):
            return run
        entries = dict(value)
        for key, entry in value.items():
            below = f"{run.path}.{key}"
            if key == _MANY and isinstance(entry.node.value, dict):
                groups = Placed(entry.node, below)
                inner = self._each_replica(groups, patch, frozenset(entry.node.value)).node
            elif key in fields and key != _KIND and _is_replica(entry.node):
                over = self._patch().apply(Placed(entry.node, below), patch)
                inner = over.node if over else entry.node
            else:
                continue
            entries[key] = type(entry)(entry.line, entry.column, inner)
        return Placed(YamlNode(entries, run.node.line, run.node.column), run.path)

    def _patch(self) -> Patch:
        said = self.operation.get(OperationKeys.patch_strategy) if self.operation else None
        return Patch(said or PatchStrategy.POST_MERGE, self.moved)

    def _filled(self, placed: Placed, key: str) -> Cursor:
        node = self.names.resolve(placed.node, placed.path, self.moved, key=key)
        return Cursor(node, placed.path, self.moved)


def _is_replica(node: YamlNode) -> bool:
    return isinstance(node.value, dict) and PodKeys.container.key in node.value


def _placed(section: Section | None, key: str) -> Placed | None:
    at = section.at(key) if section else None
    return Placed(at.node, at.path) if at else None


def _entry(node: YamlNode, key: str) -> YamlNode | None:
    found = node.value.get(key) if isinstance(node.value, dict) else None
    return found.node if found and found.node.value is not None else None
