"""An operation of Polyaxon 1.x merged with its component: fields by ``patchStrategy``, ``runPatch`` over the run, expressions expanded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from muster_formats.cursor import Cursor
from muster_formats.field_types import FieldType
from muster_formats.nodes import YamlEntry, YamlNode
from muster_formats.polyaxon_v1.expressions import ExpressionNames
from muster_formats.polyaxon_v1.fields import PatchStrategy, V1ComponentFields, V1OperationFields
from muster_formats.polyaxon_v1.parameters import ReceivedParams
from muster_formats.polyaxon_v1.run_fields import RUN, V1PodFields, V1ReplicaFields, V1ServiceFields
from muster_formats.problems import RelocatedProblems
from muster_formats.schema import Field, Section

_OBJECTS = frozenset(
    {
        "container", "labels", "annotations", "nodeSelector", "affinity", "securityContext", "dnsConfig", "runtimeEnv", "metadata",
        "rayStartParams", "podFailurePolicy", "probe",
    }
)  # fmt: skip


@dataclass(frozen=True)
class MergedRun:
    """A node, and its path in the document."""

    node: YamlNode
    path: str


@dataclass(frozen=True)
class Patch:
    """Merges by one strategy and records which parts came from the patch."""

    strategy: PatchStrategy
    moved: RelocatedProblems

    def apply(self, base: MergedRun | None, patch: MergedRun | None) -> MergedRun | None:
        """Merge ``patch`` over ``base``; the result has the base's path if there is one."""
        if patch is None or patch.node.value is None:
            return base
        if base is None or base.node.value is None:
            return MergedRun(
                self._taken(patch, base.path) if base else patch.node, base.path if base else patch.path
            )
        return MergedRun(self._merged(base, patch, whole=False), base.path)

    def _merged(self, base: MergedRun, patch: MergedRun, *, whole: bool) -> YamlNode:
        """Merge both; ``whole`` replaces lists."""
        old, new = base.node.value, patch.node.value
        if isinstance(old, dict) and isinstance(new, dict):
            return self._mappings(base, old, patch, new, whole=whole)
        joined = self.strategy in (PatchStrategy.POST_MERGE, PatchStrategy.PRE_MERGE) and not whole
        if isinstance(old, list) and isinstance(new, list) and joined:
            return self._lists(base, old, patch, new)
        if self.strategy in (PatchStrategy.IS_NULL, PatchStrategy.PRE_MERGE):
            return base.node
        return self._taken(patch, base.path)

    def _mappings(
        self,
        base: MergedRun,
        old: dict[str, YamlEntry],
        patch: MergedRun,
        new: dict[str, YamlEntry],
        *,
        whole: bool,
    ) -> YamlNode:
        entries = dict(old)
        for key, entry in new.items():
            there = MergedRun(entry.node, f"{patch.path}.{key}" if patch.path else key)
            path = f"{base.path}.{key}" if base.path else key
            known = old.get(key)
            if entry.node.value is None and known is not None:
                continue
            if known is None or known.node.value is None:
                entries[key] = YamlEntry(entry.line, entry.column, self._taken(there, path))
                continue
            merging = self.strategy in (PatchStrategy.POST_MERGE, PatchStrategy.PRE_MERGE)
            if merging:
                below = whole or key in _OBJECTS
                entries[key] = YamlEntry(
                    known.line, known.column, self._merged(MergedRun(known.node, path), there, whole=below)
                )
            elif self.strategy is PatchStrategy.REPLACE:
                entries[key] = YamlEntry(entry.line, entry.column, self._taken(there, path))
        return YamlNode(entries, base.node.line, base.node.column)

    def _lists(self, base: MergedRun, old: list[YamlNode], patch: MergedRun, new: list[YamlNode]) -> YamlNode:
        last = self.strategy is PatchStrategy.POST_MERGE
        first, second = (base, patch) if last else (patch, base)
        nodes = list(old if last else new)
        kept = {_image(node) for node in nodes}
        origins = [f"{first.path}[{index}]" for index in range(len(nodes))]
        for index, node in enumerate(new if last else old):
            if _image(node) not in kept:
                nodes.append(node)
                origins.append(f"{second.path}[{index}]")
        for index, origin in enumerate(origins):
            self.moved.record(f"{base.path}[{index}]", origin)
        return YamlNode(nodes, base.node.line, base.node.column)

    def _taken(self, patch: MergedRun, path: str) -> YamlNode:
        self.moved.record(path, patch.path)
        return patch.node


def _image(node: YamlNode) -> bytes:
    return msgspec.json.encode(node.plain(), order="deterministic")


_KIND = "kind"
_POD = frozenset(V1ReplicaFields.fields())
_MANY = "workers"


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """The fields of an operation over those of its component; ``operation`` is ``None`` for a bare component."""

    operation: Section | None
    component: Section
    moved: RelocatedProblems
    names: ExpressionNames = field(default_factory=lambda: ExpressionNames(values={}, known={}))

    def with_names(self, given: ReceivedParams, known: Mapping[str, str]) -> Compiled:
        """Return a copy with these names expanded."""
        return Compiled(
            operation=self.operation,
            component=self.component,
            moved=self.moved,
            names=ExpressionNames(values=given.values, known=known),
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
        base = self.component.at(V1ComponentFields.run.key)
        if base is None:
            self.component.cursor.missing(
                "run", "a component needs a run", "add run: {kind: job, container: ...}"
            )
            return None
        merged = self._patched(MergedRun(base.node, base.path))
        ports = _entry(merged.node, V1ServiceFields.ports.key)
        if ports is not None:
            read = self.names.resolve(ports, f"{merged.path}.ports", self.moved)
            numbers = read.plain()
            self.names.ports = tuple(
                number for number in (numbers if isinstance(numbers, list) else []) if isinstance(number, int)
            )
        return RUN.read(self._filled(merged, ""))

    def _patched(self, run: MergedRun) -> MergedRun:
        at = self.operation.at(V1OperationFields.run_patch.key) if self.operation else None
        if at is None:
            return run
        if not isinstance(at.node.value, dict):
            at.wrong_type("a mapping")
            return run
        patch = MergedRun(at.node, at.path)
        kind = _entry(run.node, _KIND)
        nested = RUN.tables.get(kind.text) if kind else None
        fields = frozenset(nested.table.fields()) if nested else frozenset[str]()
        given = set(at.node.value)
        if nested is None or V1PodFields.container.key in fields or not given <= _POD or given & fields:
            return self._patch().apply(run, patch) or run
        return self._each_replica(run, patch, fields)

    def _each_replica(self, run: MergedRun, patch: MergedRun, fields: frozenset[str]) -> MergedRun:
        """Apply a patch of one replica to every replica type of a distributed run."""
        value = run.node.value
        if not isinstance(value, dict):
            return run
        entries = dict(value)
        for key, entry in value.items():
            below = f"{run.path}.{key}"
            if key == _MANY and isinstance(entry.node.value, dict):
                groups = MergedRun(entry.node, below)
                inner = self._each_replica(groups, patch, frozenset(entry.node.value)).node
            elif key in fields and key != _KIND and _is_replica(entry.node):
                over = self._patch().apply(MergedRun(entry.node, below), patch)
                inner = over.node if over else entry.node
            else:
                continue
            entries[key] = type(entry)(entry.line, entry.column, inner)
        return MergedRun(YamlNode(entries, run.node.line, run.node.column), run.path)

    def _patch(self) -> Patch:
        given = self.operation.get(V1OperationFields.patch_strategy) if self.operation else None
        return Patch(given or PatchStrategy.POST_MERGE, self.moved)

    def _filled(self, placed: MergedRun, key: str) -> Cursor:
        node = self.names.resolve(placed.node, placed.path, self.moved, key=key)
        return Cursor(node, placed.path, self.moved)


def _is_replica(node: YamlNode) -> bool:
    return isinstance(node.value, dict) and V1PodFields.container.key in node.value


def _placed(section: Section | None, key: str) -> MergedRun | None:
    at = section.at(key) if section else None
    return MergedRun(at.node, at.path) if at else None


def _entry(node: YamlNode, key: str) -> YamlNode | None:
    found = node.value.get(key) if isinstance(node.value, dict) else None
    return found.node if found and found.node.value is not None else None
