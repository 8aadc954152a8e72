"""Merge an operation's fields over its component's, by ``patchStrategy``.

Source: the four strategies of the published documentation. Mappings are merged by key; lists of Polyaxon's own sections
are joined, lists within Kubernetes objects (a container's ``args``) are replaced, as in the published client.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from muster_formats.nodes import YamlEntry, YamlNode
from muster_formats.polyaxon_v1.keys import PatchStrategy
from muster_formats.problems import RelocatedProblems

_OBJECTS = frozenset(
    {
        "container", "labels", "annotations", "nodeSelector", "affinity", "securityContext", "dnsConfig", "runtimeEnv", "metadata",
        "rayStartParams", "podFailurePolicy", "probe",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Placed:
    """A node, and its path in the document."""

    node: YamlNode
    path: str


@dataclass(frozen=True)
class Patch:
    """Merges by one strategy and records which parts came from the patch."""

    strategy: PatchStrategy
    moved: RelocatedProblems

    def apply(self, base: Placed | None, patch: Placed | None) -> Placed | None:
        """Merge ``patch`` over ``base``; the result has the base's path if there is one."""
        if patch is None or patch.node.value is None:
            return base
        if base is None or base.node.value is None:
            return Placed(
                self._taken(patch, base.path) if base else patch.node, base.path if base else patch.path
            )
        return Placed(self._merged(base, patch, whole=False), base.path)

    def _merged(self, base: Placed, patch: Placed, *, whole: bool) -> YamlNode:
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
        base: Placed,
        old: dict[str, YamlEntry],
        patch: Placed,
        new: dict[str, YamlEntry],
        *,
        whole: bool,
    ) -> YamlNode:
        entries = dict(old)
        for key, entry in new.items():
            there = Placed(entry.node, f"{patch.path}.{key}" if patch.path else key)
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
                    known.line, known.column, self._merged(Placed(known.node, path), there, whole=below)
                )
            elif self.strategy is PatchStrategy.REPLACE:
                entries[key] = YamlEntry(entry.line, entry.column, self._taken(there, path))
        return YamlNode(entries, base.node.line, base.node.column)

    def _lists(self, base: Placed, old: list[YamlNode], patch: Placed, new: list[YamlNode]) -> YamlNode:
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

    def _taken(self, patch: Placed, path: str) -> YamlNode:
        self.moved.record(path, patch.path)
        return patch.node


def _image(node: YamlNode) -> bytes:
    return msgspec.json.encode(node.plain(), order="deterministic")
