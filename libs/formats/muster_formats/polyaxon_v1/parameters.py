"""Inputs, outputs and parameters of Polyaxon 1.x: the values of names, checked as declared."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from muster_core.models.problem_codes import Code
from muster_formats.cursor import Cursor
from muster_formats.names import VARIABLE
from muster_formats.nodes import Json, YamlNode
from muster_formats.polyaxon_v1.expressions import ExpressionResolver, Value, has_expression, text_of
from muster_formats.polyaxon_v1.fields import (
    V1ComponentFields,
    V1InputFields,
    V1OperationFields,
    V1ParamFields,
    V1ValidationFields,
)
from muster_formats.problems import shown
from muster_formats.schema import Section

_RESERVED = frozenset({"globals", "params", "connections", "inputs", "outputs", "io"})
_ELSEWHERE = (V1OperationFields.matrix, V1OperationFields.parallel, V1OperationFields.joins)
_LISTS = ("List[", "list[")
_TRUTHS = {"true": True, "false": False}


@dataclass(frozen=True)
class ReceivedParams:
    """The values of a document's names.

    ``values`` are in the order of declaration, then of the parameters; ``variables`` also become environment variables.
    """

    values: Mapping[str, Value] = field(default_factory=dict[str, Value])
    variables: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def plain(self) -> dict[str, Json]:
        """Return the values without source locations."""
        return {name: value.node.plain() for name, value in self.values.items()}


@dataclass(frozen=True, kw_only=True)
class _Param:
    at: Cursor
    value: Cursor | None
    variable: str
    context_only: bool | None


@dataclass(frozen=True, kw_only=True)
class _Input:
    section: Section
    name: str
    type: str
    output: bool


class ParamsReader:
    """Reads the names of one operation; values may refer to ``known`` globals."""

    def __init__(self, operation: Section | None, component: Section, known: Mapping[str, str]) -> None:
        self._operation = operation
        self._component = component
        self._known = known
        # Report that, not the missing value of an input.
        self._valued_elsewhere = operation is not None and any(operation.given(one) for one in _ELSEWHERE)

    def read(self) -> ReceivedParams:
        """Return every name and its value."""
        params = self._params()
        inputs = self._inputs()
        values: dict[str, Value] = {}
        variables: dict[str, str] = {}
        for one in inputs.values():
            param = params.get(one.name)
            node = self._node(one, param, values)
            if node is None:
                continue
            values[one.name] = Value(node=node, argument=self._argument(one, node))
            variable = (param.variable if param else "") or self._variable(
                one.section, V1InputFields.to_env.key
            )
            if variable:
                variables[variable] = text_of(node)
        for name, param in params.items():
            if name in inputs:
                continue
            self._undeclared(name, param, inputs)
            node = self._resolved(param.value, values)
            values[name] = Value(node=node, argument=f"--{name}={text_of(node)}")
            if param.variable:
                variables[param.variable] = text_of(node)
        return ReceivedParams(values, variables)

    def _params(self) -> dict[str, _Param]:
        params: dict[str, _Param] = {}
        operation = self._operation
        read = operation.get(V1OperationFields.params) if operation else None
        at = operation.at(V1OperationFields.params.key) if operation else None
        locations = at.items() if at else {}
        for name, value in (read or {}).items():
            if isinstance(value, Cursor):
                params[name] = _Param(at=value, value=value, variable="", context_only=None)
                continue
            params[name] = _Param(
                at=locations[name],
                value=value.at(V1ParamFields.value.key),
                variable=self._variable(value, V1ParamFields.to_env.key),
                context_only=value.get(V1ParamFields.context_only),
            )
        return params

    def _inputs(self) -> dict[str, _Input]:
        found: dict[str, _Input] = {}
        for declared, output in ((V1ComponentFields.inputs, False), (V1ComponentFields.outputs, True)):
            for section in self._component.get(declared) or ():
                name = section.get(V1InputFields.name)
                if name is None:
                    section.cursor.missing("name", "an input needs a name")
                    continue
                at = section.at(V1InputFields.name.key) or section.cursor
                if name in _RESERVED:
                    at.error(Code.BAD_NAME, f"no input can be named {name}: expressions begin with it")
                elif name in found and not output:
                    at.error(Code.DUPLICATE, f"two inputs are named {shown(name)}", fix="rename one of them")
                else:
                    read = section.get(V1InputFields.type) or ""
                    listed = section.get(V1InputFields.is_list) and not read.startswith(_LISTS)
                    found.setdefault(
                        name,
                        _Input(
                            section=section,
                            name=name,
                            type=f"List[{read}]" if listed else read,
                            output=output,
                        ),
                    )
        return found

    def _node(self, one: _Input, param: _Param | None, values: Mapping[str, Value]) -> YamlNode | None:
        """Return the value of an input: the parameter's, else its default, else ``None``."""
        default = one.section.at(V1InputFields.value.key)
        at = param.value if param and param.value else default
        if at is None:
            optional = one.section.get(V1InputFields.is_optional) or one.section.cursor.items().get("value")
            if one.output and param is None:
                return None
            if not optional and not one.output and not self._valued_elsewhere:
                one.section.cursor.missing(
                    V1InputFields.value.key,
                    f"the input {shown(one.name)} has no value and no parameter",
                    f"add params: {{{shown(one.name)}: ...}} to an operation, or a value here",
                )
            return YamlNode(None, one.section.cursor.node.line, one.section.cursor.node.column)
        node = self._resolved(at, values)
        typed = _typed(node, one.type)
        if typed is None:
            words = f"{shown(one.name)} is {shown(node.plain())}, but its type is {shown(one.type)}"
            at.error(Code.WRONG_TYPE, words, allowed=shown(one.type))
            return node
        self._validate(one, typed, at)
        return typed

    def _resolved(self, at: Cursor | None, values: Mapping[str, Value]) -> YamlNode:
        if at is None:
            return YamlNode(None, 0, 0)
        names = ExpressionResolver(values=values, known=self._known)
        return names.resolve(at.node, at.path, at.problems)

    def _undeclared(self, name: str, param: _Param, inputs: Mapping[str, _Input]) -> None:
        operation = self._operation
        strict = self._component.get(V1ComponentFields.strict_params) or (
            operation.get(V1OperationFields.strict_params) if operation else None
        )
        if name in _RESERVED:
            param.at.error(Code.BAD_NAME, f"no parameter can be named {name}: expressions begin with it")
        elif param.context_only is False or (strict and not param.context_only):
            param.at.error(
                Code.NOT_ALLOWED,
                f"there is no input {shown(name)}, and strictParams requires one",
                found=shown(name),
                allowed=", ".join(inputs),
                fix=f"declare the input {shown(name)}, or write contextOnly: true",
            )

    def _argument(self, one: _Input, node: YamlNode) -> str:
        flag = one.section.get(V1InputFields.is_flag) or one.type == "bool"
        written = one.section.at(V1InputFields.arg_format.key)
        if node.value is None:
            return ""
        if written and one.section.get(V1InputFields.arg_format) is not None:
            names = ExpressionResolver(values={one.name: Value(node=node, argument="")}, known={})
            return text_of(names.resolve(written.node, written.path, written.problems, inside="value"))
        if flag:
            return f"--{one.name}" if node.value not in (False, 0, "") else ""
        return f"--{one.name}={text_of(node)}"

    def _variable(self, section: Section, key: str) -> str:
        at = section.at(key)
        name = section.get(V1InputFields.to_env) or ""
        if at and name and not VARIABLE.allows(name):
            at.error(Code.BAD_NAME, VARIABLE.message(name), allowed=VARIABLE.description)
            return ""
        return name

    def _validate(self, one: _Input, node: YamlNode, at: Cursor) -> None:
        section = one.section.get(V1InputFields.validation)
        options = one.section.at(V1InputFields.options.key) or (
            section.at(V1ValidationFields.options.key) if section else None
        )
        if options and node.value is not None:
            _among(options, one.name, node, at)
        if section is None:
            return
        for bound in (
            V1ValidationFields.gt,
            V1ValidationFields.ge,
            V1ValidationFields.lt,
            V1ValidationFields.le,
        ):
            limit = section.at(bound.key)
            for value in _numbers(node):
                if limit and not _HOLDS[bound.key](value, limit.node.value):
                    words = f"{shown(one.name)} is {shown(value)}; it must be {bound.key} {shown(limit.node.value)}"
                    at.error(Code.OUT_OF_RANGE, words, allowed=f"{bound.key} {shown(limit.node.value)}")
        lengths = (
            (section.get(V1ValidationFields.min_length), section.get(V1ValidationFields.max_length), (str,)),
            (
                section.get(V1ValidationFields.min_items),
                section.get(V1ValidationFields.max_items),
                (list, dict),
            ),
        )
        for least, most, kinds in lengths:
            value = node.value
            if isinstance(value, str | list | dict) and type(value) in kinds:
                size = len(value)
                if size < (least or 0) or (most is not None and size > most):
                    words = f"{shown(one.name)} has length {size}"
                    at.error(
                        Code.OUT_OF_RANGE, words, allowed=f"{least or 0} to {'any' if most is None else most}"
                    )


_HOLDS: Mapping[str, Callable[[float, object], bool]] = {
    "gt": lambda value, limit: not isinstance(limit, int | float) or value > limit,
    "ge": lambda value, limit: not isinstance(limit, int | float) or value >= limit,
    "lt": lambda value, limit: not isinstance(limit, int | float) or value < limit,
    "le": lambda value, limit: not isinstance(limit, int | float) or value <= limit,
}


def _among(options: Cursor, name: str, node: YamlNode, at: Cursor) -> None:
    allowed = options.node.plain()
    if not isinstance(allowed, list):
        options.wrong_type("a list")
        return
    values = node.plain()
    for value in values if isinstance(values, list) else [values]:
        if value not in allowed:
            words = ", ".join(shown(option) for option in allowed)
            at.error(
                Code.NOT_ALLOWED, f"{shown(name)} is {shown(value)}; it must be one of {words}", allowed=words
            )


def _numbers(node: YamlNode) -> list[int | float]:
    values = node.plain()
    found = values if isinstance(values, list) else [values]
    return [value for value in found if isinstance(value, int | float) and not isinstance(value, bool)]


def _typed(node: YamlNode, kind: str) -> YamlNode | None:
    """Return the value converted to its type, or ``None`` if it does not match. Null matches every type."""
    if node.value is None:
        return node
    if kind.startswith(_LISTS) and kind.endswith("]"):
        if not isinstance(node.value, list):
            return None
        inner = [_typed(one, kind[5:-1].strip()) for one in node.value]
        known = [one for one in inner if one is not None]
        return YamlNode(known, node.line, node.column) if len(known) == len(inner) else None
    match kind:
        case "int":
            return _as_number(node, int)
        case "float":
            return _as_number(node, float)
        case "bool":
            if isinstance(node.value, str) and node.value.lower() in _TRUTHS:
                truth = _TRUTHS[node.value.lower()]
                return YamlNode(truth, node.line, node.column, node.value.lower())
            return node if isinstance(node.value, bool) else None
        case "str":
            return (
                None
                if isinstance(node.value, list | dict)
                else YamlNode(text_of(node), node.line, node.column, text_of(node))
            )
        case "dict":
            return node if isinstance(node.value, dict) else None
        case "list":
            return node if isinstance(node.value, list) else None
        case _:
            return node


def _as_number(node: YamlNode, kind: type[int] | type[float]) -> YamlNode | None:
    value = node.value
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str):
        if has_expression(value) or len(value) > 64 or not value.isascii() or "_" in value:
            return None
        try:
            number = kind(value)
        except ValueError:
            return None
        return YamlNode(number, node.line, node.column, value) if math.isfinite(number) else None
    return node if kind is float or isinstance(value, int) else None
