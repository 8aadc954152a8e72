"""Convert a Polyaxon replica (environment, container, sidecars, init, volumes) to a Kubernetes pod template and read it.

The template is assembled from the document's own nodes and read like any other, so that the same rules and source
locations apply.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace

from muster_core.models import Port, Template
from muster_core.models.problem_codes import Code
from muster_formats.cursor import Cursor
from muster_formats.nodes import YamlEntry, YamlNode
from muster_formats.pods import MainContainer, read_pod_template
from muster_formats.polyaxon_v1.expressions import text_of
from muster_formats.polyaxon_v1.run_fields import PodRestart, V1EnvironmentFields, V1InitFields, V1PodFields
from muster_formats.problems import RelocatedProblems, SourceLocation, shown
from muster_formats.schema import Effect, Section

DEFAULT_CONTAINER = "main"
"""The container's name if neither the document nor the framework names it."""

_METADATA = frozenset({V1EnvironmentFields.labels.key, V1EnvironmentFields.annotations.key})
_MUSTERS = frozenset({V1EnvironmentFields.restart_policy.key, V1EnvironmentFields.priority.key})


@dataclass(frozen=True, kw_only=True)
class V1Replica:
    """The result of reading a replica's pod; ``restart`` and ``priority`` are ``None`` if absent."""

    template: Template
    restart: PodRestart | None = None
    priority: int | None = None


@dataclass(frozen=True)
class PodReader:
    """Reads replicas whose main container is named ``main``."""

    main: MainContainer

    def read(
        self, section: Section, ports: tuple[Port, ...] = (), command: tuple[str, ...] = ()
    ) -> V1Replica:
        """Read one replica type; ``command`` replaces the container's own."""
        problems = RelocatedProblems(section.cursor.problems)
        environment = section.get(V1PodFields.environment)
        main = section.at(V1PodFields.container.key)
        section.get(V1PodFields.connections)
        if main is None:
            section.cursor.missing(
                V1PodFields.container.key,
                "a replica needs a container",
                "add container: {image: ..., command: [...]}",
            )
            return V1Replica(template=Template())
        pod = _Pod(section, problems)
        pod.environment(environment)
        unnamed = self.main.container or DEFAULT_CONTAINER
        container = pod.container("containers", main, unnamed)
        _add_ports(ports, container)
        if command:
            container.pop("args", None)
            container["command"] = YamlEntry(0, 0, YamlNode([_text(word) for word in command], 0, 0))
        pod.rest(unnamed)
        name = container.get("name")
        template = read_pod_template(
            pod.cursor(), replace(self.main, container=text_of(name.node) if name else unnamed)
        )
        return V1Replica(
            template=template,
            restart=environment.get(V1EnvironmentFields.restart_policy) if environment else None,
            priority=environment.get(V1EnvironmentFields.priority) if environment else None,
        )


class _Pod:
    """A template under construction, and where its parts came from."""

    def __init__(self, section: Section, problems: RelocatedProblems) -> None:
        self._section = section
        self._problems = problems
        self._origin = section.cursor.path
        self._root = section.cursor.below("template")
        self._spec: dict[str, YamlEntry] = {}
        self._metadata: dict[str, YamlEntry] = {}
        problems.record(self._root, self._origin)
        problems.record(f"{self._root}.spec", self._origin)

    def cursor(self) -> Cursor:
        """Return the complete template."""
        at = self._section.cursor.node
        spec = YamlNode(self._spec, at.line, at.column)
        whole = {"spec": YamlEntry(at.line, at.column, spec)}
        if self._metadata:
            whole["metadata"] = YamlEntry(at.line, at.column, YamlNode(self._metadata, at.line, at.column))
        return Cursor(YamlNode(whole, at.line, at.column), self._root, self._problems)

    def environment(self, section: Section | None) -> None:
        """Add the pod's fields."""
        if section is None:
            return
        fields = V1EnvironmentFields.fields()
        mapping = section.cursor.node.value
        for key, entry in mapping.items() if isinstance(mapping, dict) else ():
            field = fields.get(key)
            if field is None or entry.node.value is None or key in _MUSTERS or field.effect is Effect.IGNORED:
                continue
            if key == V1EnvironmentFields.pull_secrets.key:
                names = section.get(V1EnvironmentFields.pull_secrets) or []
                entry = YamlEntry(  # noqa: PLW2901
                    entry.line, entry.column, YamlNode([_mapping(name=_text(name)) for name in names], 0, 0)
                )
            into, parent = (self._metadata, "metadata") if key in _METADATA else (self._spec, "spec")
            into[key] = entry
            self._problems.record(f"{self._root}.{parent}.{key}", section.cursor.below(key))

    def container(self, key: str, at: Cursor, name: str) -> dict[str, YamlEntry]:
        """Add a container with its command as a list of words, and return it for further changes."""
        known = self._spec.setdefault(
            key, YamlEntry(at.node.line, at.node.column, YamlNode([], at.node.line, at.node.column))
        )
        nodes = known.node.value
        if not isinstance(nodes, list):
            return {}
        self._problems.record(f"{self._root}.spec.{key}[{len(nodes)}]", at.path)
        if not isinstance(at.node.value, dict):
            nodes.append(at.node)
            return {}
        entries = {inner: _worded(inner, entry, at) for inner, entry in at.node.value.items()}
        if (given := entries.get("name")) is None or given.node.value is None:
            entries["name"] = YamlEntry(0, 0, _text(name))
        nodes.append(YamlNode(entries, at.node.line, at.node.column))
        return entries

    def rest(self, name: str) -> None:
        """Add sidecars, init containers and volumes."""
        for index, at in enumerate(_elements(self._section, V1PodFields.sidecars.key)):
            self.container("containers", at, f"{name}-sidecar-{index}")
        for index, init in enumerate(self._section.get(V1PodFields.init) or ()):
            if at := init.at(V1InitFields.container.key):
                self.container("initContainers", at, f"{name}-init-{index}")
        if volumes := self._section.at(V1PodFields.volumes.key):
            self._spec["volumes"] = YamlEntry(volumes.node.line, volumes.node.column, volumes.node)
            self._problems.record(f"{self._root}.spec.volumes", volumes.path)


def command_of(container: Cursor) -> tuple[str, ...]:
    """Return the words of a container's command and arguments, as far as they are texts."""
    found: list[str] = []
    for key in ("command", "args"):
        at = container.items().get(key)
        node = _words(key, at.node, container) if at and not at.is_null else None
        values = node.plain() if node else None
        found += [word for word in values if isinstance(word, str)] if isinstance(values, list) else []
    return tuple(found)


def _elements(section: Section, key: str) -> list[Cursor]:
    at = section.at(key)
    if at and not isinstance(at.node.value, list):
        at.wrong_type("a list", "write - before each container")
    return at.elements() if at else []


def _worded(key: str, entry: YamlEntry, at: Cursor) -> YamlEntry:
    """Return ``command`` and ``args`` as lists of texts, and variables' values as texts, as Polyaxon accepts them."""
    node = entry.node
    if key in ("command", "args") and node.value is not None:
        return replace(entry, node=_words(key, node, at))
    if key == "env" and isinstance(node.value, list):
        return replace(entry, node=replace(node, value=[_variable(one) for one in node.value]))
    return entry


def _words(key: str, node: YamlNode, at: Cursor) -> YamlNode:
    match node.value:
        case list():
            return replace(node, value=[_as_text(one) for one in node.value])
        case dict():
            return node
        case str() as text if key == "command" and len(text.split()) > 1:
            return _split(text, node, at)
        case _:
            return replace(node, value=[_as_text(node)])


def _split(text: str, node: YamlNode, at: Cursor) -> YamlNode:
    """Split a whole line where words are required: published documents write it, and Kubernetes would look for a program of that name."""
    try:
        words = shlex.split(text)
    except ValueError:
        return node
    at.problems.warn(
        Code.MISSPELT,
        SourceLocation(path=at.below("command"), line=node.line, column=node.column),
        f"command must be a list of words; the line is split into {len(words)}",
        found=shown(text),
        fix=f"write [{', '.join(shown(word) for word in words)}]",
    )
    return replace(node, value=[YamlNode(word, node.line, node.column, word) for word in words])


def _variable(node: YamlNode) -> YamlNode:
    if not isinstance(node.value, dict) or (value := node.value.get("value")) is None:
        return node
    return replace(node, value={**node.value, "value": replace(value, node=_as_text(value.node))})


def _as_text(node: YamlNode) -> YamlNode:
    if isinstance(node.value, bool | int | float):
        text = text_of(node)
        return YamlNode(text, node.line, node.column, text)
    return node


def _add_ports(ports: tuple[Port, ...], container: dict[str, YamlEntry]) -> None:
    known, added = container.get("ports"), _port_nodes(ports, container)
    if added and (known is None or known.node.value is None):
        container["ports"] = YamlEntry(0, 0, YamlNode(added, 0, 0))
    elif added and known and isinstance(known.node.value, list):
        nodes = [*known.node.value, *added]
        container["ports"] = YamlEntry(known.line, known.column, replace(known.node, value=nodes))


def _port_nodes(ports: tuple[Port, ...], container: dict[str, YamlEntry]) -> list[YamlNode]:
    known = container.get("ports")
    given = known.node.plain() if known else None
    numbers: list[object] = []
    for one in given if isinstance(given, list) else []:
        numbers += [one.get("containerPort")] if isinstance(one, dict) else []
    return [
        _mapping(name=_text(port.name), containerPort=YamlNode(port.number, 0, 0, str(port.number)))
        for port in ports
        if port.number not in numbers
    ]


def _mapping(**nodes: YamlNode) -> YamlNode:
    return YamlNode({key: YamlEntry(0, 0, node) for key, node in nodes.items()}, 0, 0)


def _text(text: str) -> YamlNode:
    return YamlNode(text, 0, 0, text)
