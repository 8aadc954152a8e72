"""What the collector of cycles passes by is made of data alone: nothing in it can refer back to it."""

import inspect
from collections.abc import Sequence
from types import ModuleType
from typing import cast

import msgspec
import pytest
from msgspec.inspect import CustomType, Type, type_info

import muster_core.events
import muster_core.models
import muster_core.scheduling.placement.demand
import muster_runtimes.kubernetes.objects
import muster_runtimes.protocols

_MODULES = (
    muster_core.events,
    muster_core.models,
    muster_core.scheduling.placement.demand,
    muster_runtimes.kubernetes.objects,
    muster_runtimes.protocols,
)


def _structs(module: ModuleType) -> list[type[msgspec.Struct]]:
    return [
        member
        for _, member in inspect.getmembers(module, inspect.isclass)
        if issubclass(member, msgspec.Struct) and not member.__struct_config__.gc
    ]


_VALUES = sorted({struct for module in _MODULES for struct in _structs(module)}, key=lambda s: s.__qualname__)


def _parts(kind: object, seen: set[type]) -> list[Type]:
    """Every type that a value of this one may hold, however deep."""
    if isinstance(kind, list | tuple):
        several = cast("Sequence[object]", kind)
        return [part for each in several for part in _parts(each, seen)]
    if not isinstance(kind, msgspec.Struct):
        return []
    found = [kind] if isinstance(kind, Type) else []
    cls = getattr(kind, "cls", None)
    if isinstance(cls, type):
        if cls in seen:
            return found
        seen.add(cls)
    return found + [
        part
        for name in kind.__struct_fields__
        if name not in {"default", "default_factory"}
        for part in _parts(getattr(kind, name), seen)
    ]


@pytest.mark.parametrize("value", _VALUES, ids=lambda value: value.__qualname__)
def test_a_value_that_is_not_looked_at_for_cycles_holds_data_alone(value: type[msgspec.Struct]) -> None:
    assert value.__struct_config__.frozen
    assert not [part for part in _parts(type_info(value), set()) if isinstance(part, CustomType)]


def test_what_services_remember_most_of_is_not_looked_at() -> None:
    names = {value.__name__ for value in _VALUES}
    assert {"Job", "JobRecord", "ReplicaRecord", "Template", "Resources", "Pod", "Observation"} <= names


def test_a_callback_would_be_found() -> None:
    class Refers(msgspec.Struct, frozen=True, gc=False):
        back: list[ModuleType]

    assert [part for part in _parts(type_info(Refers), set()) if isinstance(part, CustomType)]
