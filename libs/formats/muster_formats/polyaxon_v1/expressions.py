"""``{{ name }}`` expressions of Polyaxon 1.x: names are looked up, nothing is executed.

Polyaxon renders documents with Jinja. Here an expression is a path of names (``lr``, ``params.lr.as_arg``, ``layers[0]``,
``globals.name``); filters, conditions and loops are rejected. A value that is known only at run time becomes a reference
to the replica's environment, ``$(NAME)``, where Kubernetes expands those: in commands and arguments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from muster_core.models.problem_codes import Code
from muster_formats.cursor import nearest
from muster_formats.nodes import MAX_CHARACTERS, MAX_NODES, YamlEntry, YamlNode
from muster_formats.problems import Problems, SourceLocation, shown

_EXPRESSION = re.compile(r"\{\{([^{}]*)\}\}")
_STATEMENT = re.compile(r"\{[%#][^{}]*\}?")
_PATH = re.compile(r"[A-Za-z_][\w-]*(?:\.[\w-]+|\[[0-9]+\]|\[(?:'[^']*'|\"[^\"]*\")\])*", re.ASCII)
_STEP = re.compile(r"\.?([\w-]+)|\[([0-9]+)\]|\[(?:'([^']*)'|\"([^\"]*)\")\]", re.ASCII)
_SCOPES = frozenset({"params", "inputs", "outputs", "io"})
_COMMAND_KEYS = frozenset({"command", "args"})
_STRING_KEYS = _COMMAND_KEYS | {
    "value",
    "image",
    "workingDir",
    "labels",
    "annotations",
    "nodeSelector",
    "rayStartParams",
}

_ARTIFACTS = "Muster has no artifact store; write the path of a volume, or of a folder that all nodes share"
_PROJECTS = "Muster has no projects or owners"
_UNSUPPORTED_GLOBALS = {
    "artifacts_path": _ARTIFACTS,
    "run_artifacts_path": _ARTIFACTS,
    "run_outputs_path": _ARTIFACTS,
    "context_path": _ARTIFACTS,
    "store_path": _ARTIFACTS,
    "run_info": _PROJECTS,
    "owner_name": _PROJECTS,
    "project_name": _PROJECTS,
    "project_uuid": _PROJECTS,
    "project_unique_name": _PROJECTS,
    "username": "the submitter is not passed to programs",
    "user_email": "the submitter is not passed to programs",
    "iteration": "iterations belong to an experiment manager",
    "status": "it is unknown before the run",
    "condition": "it is unknown before the run",
    "created_at": "it is unknown before the run",
    "compiled_at": "it is unknown before the run",
    "schedule_at": "it is unknown before the run",
    "started_at": "it is unknown before the run",
    "finished_at": "it is unknown before the run",
    "duration": "it is unknown before the run",
    "cloning_kind": "runs are not cloned",
    "original_uuid": "runs are not cloned",
    "is_independent": "dependencies between runs belong to an experiment manager",
    "base": _ARTIFACTS,
}
_RUNTIME_GLOBALS = {"uuid": "MUSTER_JOB_ID"}


@dataclass(frozen=True, kw_only=True)
class Value:
    """The value of a name, and its form as an argument."""

    node: YamlNode
    argument: str

    @property
    def text(self) -> str:
        """Return the value as text."""
        return text_of(self.node)


def text_of(node: YamlNode) -> str:
    """Return a value as text: as written, empty for null, JSON for lists and mappings."""
    match node.value:
        case None:
            return ""
        case bool():
            return "true" if node.value else "false"
        case list() | dict():
            return msgspec.json.encode(node.plain()).decode()
        case _:
            return node.text or str(node.value)


def has_expression(text: str) -> bool:
    """Return whether a text contains an expression or a statement."""
    return "{{" in text or "{%" in text or "{#" in text


@dataclass
class ExpressionResolver:
    """The known names: ``values`` of parameters, ``known`` globals, and the ports of a service."""

    values: Mapping[str, Value]
    known: Mapping[str, str]
    ports: tuple[int, ...] = ()
    _characters_written: int = 0
    nodes: int = 0
    _size_reported: bool = field(default=False)

    def resolve(
        self, node: YamlNode, path: str, problems: Problems, *, key: str = "", inside: str = ""
    ) -> YamlNode:
        """Return a copy of ``node`` with its expressions expanded. ``key`` is its own key, ``inside`` the key of an
        enclosing section of texts.
        """
        place = inside or (key if key in _STRING_KEYS else "")
        match node.value:
            case dict():
                entries = {
                    name: YamlEntry(
                        entry.line,
                        entry.column,
                        self.resolve(
                            entry.node, f"{path}.{name}" if path else name, problems, key=name, inside=place
                        ),
                    )
                    for name, entry in node.value.items()
                }
                return YamlNode(entries, node.line, node.column)
            case list():
                read = [
                    self.resolve(inner, f"{path}[{index}]", problems, inside=place)
                    for index, inner in enumerate(node.value)
                ]
                if place in _COMMAND_KEYS:
                    # An argument that expands to nothing, such as an unset flag, is dropped.
                    read = [
                        new
                        for new, old in zip(read, node.value, strict=True)
                        if new.value != "" or old.value == ""
                    ]
                return YamlNode(read, node.line, node.column)
            case str() if has_expression(node.value):
                location = SourceLocation(path=path, line=node.line, column=node.column)
                return self._replace(
                    node,
                    _ExpressionContext(location, problems, words=place in _COMMAND_KEYS),
                    texts=bool(place),
                )
            case _:
                return node

    def _replace(self, node: YamlNode, place: _ExpressionContext, *, texts: bool) -> YamlNode:
        text = str(node.value)
        if statement := _STATEMENT.search(text):
            place.refuse(
                statement[0], "conditions, loops and comments are not supported", "write their result"
            )
            return node
        sole = _EXPRESSION.fullmatch(text.strip())
        if sole and not texts:
            found = self._value(sole[1].strip(), place)
            filled = YamlNode(found.value, node.line, node.column, found.text) if found else node
            return self._counted(filled, node, place)
        parts: list[str] = []
        end = 0
        for expression in _EXPRESSION.finditer(text):
            found = self._text(expression[1].strip(), place)
            if found is None:
                return node
            parts += [text[end : expression.start()], found]
            end = expression.end()
        parts.append(text[end:])
        if (opened := next((part for part in parts[::2] if "{{" in part), None)) is not None:
            place.refuse(opened[opened.index("{{") :], "{{ is not closed, or there is no name in it", "")
            return node
        replaced = "".join(parts)
        return self._counted(YamlNode(replaced, node.line, node.column, replaced), node, place)

    def _counted(self, node: YamlNode, old: YamlNode, place: _ExpressionContext) -> YamlNode:
        """Return the expanded node, or ``old`` if the expansion is too large."""
        nodes, characters = _measure(node)
        self.nodes += nodes
        self._characters_written += characters
        if self._characters_written <= MAX_CHARACTERS and self.nodes <= MAX_NODES:
            return node
        if not self._size_reported:
            self._size_reported = True
            place.problems.add(
                Code.TOO_LARGE, place.location, "the document is too large after its parameters are expanded"
            )
        return old

    def _text(self, expression: str, place: _ExpressionContext) -> str | None:
        """Return the text of an expression, or ``None`` after reporting why it is unknown."""
        steps = _steps(expression)
        if steps is None:
            place.refuse(
                expression, "an expression must be a name; filters and operators are not supported", ""
            )
            return None
        head, *rest = steps
        if head == "globals" or (
            head not in self.values and head in (*_UNSUPPORTED_GLOBALS, *_RUNTIME_GLOBALS, *self.known)
        ):
            return self._global(rest if head == "globals" else steps, expression, place)
        if head == "params" and len(rest) == 2 and rest[1] in ("as_arg", "as_str") and rest[0] in self.values:
            value = self.values[rest[0]]
            return value.argument if rest[1] == "as_arg" else value.text
        found = self._look_up(steps, expression, place)
        return None if found is None else text_of(found)

    def _value(self, expression: str, place: _ExpressionContext) -> YamlNode | None:
        steps = _steps(expression)
        known = steps and steps[0] != "globals" and (steps[0] in self.values or steps[0] in _SCOPES)
        if known and not (steps and steps[-1] in ("as_arg", "as_str")):
            return self._look_up(steps or [], expression, place)
        if steps and steps[:2] == ["globals", "ports"] and len(steps) == 3 and (port := self._port(steps[2])):
            return YamlNode(port, 0, 0, str(port))
        text = self._text(expression, place)
        return None if text is None else YamlNode(text, 0, 0, text)

    def _look_up(self, steps: list[str], expression: str, place: _ExpressionContext) -> YamlNode | None:
        names = steps[1:] if steps[0] in _SCOPES and steps[0] not in self.values else steps
        if not names or names[0] not in self.values:
            missing = names[0] if names else steps[0]
            near = nearest(missing, self.values)
            place.problems.add(
                Code.NOT_ALLOWED,
                place.location,
                f"there is no parameter {shown(missing)}",
                found=shown(expression),
                allowed=", ".join(sorted(self.values)) or "none: there are no inputs and no parameters",
                fix=f"did you mean {near}?" if near else f"add {shown(missing)} to the inputs or the params",
            )
            return None
        node: YamlNode | None = self.values[names[0]].node
        rest = names[1:]
        if steps[0] == "params" and rest == ["value"] and not _has(node, "value"):
            rest = []
        for step in rest:
            node = _below(node, step)
        if node is None:
            place.refuse(expression, f"{names[0]} has no such element", "")
        return node

    def _global(self, steps: list[str], expression: str, place: _ExpressionContext) -> str | None:
        name = steps[0] if steps else ""
        if name in self.known and len(steps) == 1:
            return self.known[name]
        if name == "ports" and len(steps) == 2 and (port := self._port(steps[1])):
            # On one machine each service gets its own port; on Kubernetes it is the declared one.
            return "$(MUSTER_PORT)" if place.words and steps[1] == "0" else str(port)
        if variable := _RUNTIME_GLOBALS.get(name):
            if place.words:
                return f"$({variable})"
            place.refuse(expression, "it is unknown before the run", f"read {variable} in the program")
            return None
        known = ", ".join(f"globals.{one}" for one in (*self.known, "ports[0]", *_RUNTIME_GLOBALS))
        why = _UNSUPPORTED_GLOBALS.get(name) or f"known are {known}"
        place.refuse(expression, why, "" if name in _UNSUPPORTED_GLOBALS else f"write one of {known}")
        return None

    def _port(self, index: str) -> int | None:
        return self.ports[int(index)] if index.isdecimal() and int(index) < len(self.ports) else None


@dataclass(frozen=True)
class _ExpressionContext:
    """Where an expression is; ``words`` where Kubernetes expands references to the environment."""

    location: SourceLocation
    problems: Problems
    words: bool

    def refuse(self, expression: str, why: str, fix: str) -> None:
        """Report that an expression cannot be expanded."""
        words = f"{shown(expression)} cannot be expanded: {why}"
        self.problems.add(
            Code.UNSUPPORTED, self.location, words, found=shown(expression), fix=fix or "write the value"
        )


def _steps(expression: str) -> list[str] | None:
    if not _PATH.fullmatch(expression):
        return None
    return [next(part for part in found if part) if any(found) else "" for found in _STEP.findall(expression)]


def _below(node: YamlNode | None, step: str) -> YamlNode | None:
    match node.value if node else None:
        case dict() as entries:
            return entries[step].node if step in entries else None
        case list() as nodes:
            return nodes[int(step)] if step.isdecimal() and int(step) < len(nodes) else None
        case _:
            return None


def _has(node: YamlNode | None, key: str) -> bool:
    return node is not None and isinstance(node.value, dict) and key in node.value


def _measure(node: YamlNode) -> tuple[int, int]:
    """Return the numbers of values and of characters in a node."""
    match node.value:
        case dict() as entries:
            inner = [_measure(entry.node) for entry in entries.values()]
            own = sum(len(key) for key in entries)
        case list() as nodes:
            inner, own = [_measure(one) for one in nodes], 0
        case _:
            return 1, len(text_of(node))
    return 1 + sum(count for count, _ in inner), own + sum(size for _, size in inner)
