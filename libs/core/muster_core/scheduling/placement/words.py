"""Amounts and counts as text for reasons."""

from __future__ import annotations

from collections.abc import Iterable

_BYTES = frozenset({"memory", "ephemeral_storage", "gpu_memory"})
_MILLI = frozenset({"cpu", "gpu"})
_NAMES = {"cpu": "CPU", "gpu": "GPU", "ephemeral_storage": "ephemeral storage", "gpu_memory": "GPU memory"}
_UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


def amount_in_words(resource: str, amount: int) -> str:
    """Return an amount without the resource's name: ``1.5`` for 1500 milli-CPU, ``512 MiB`` for bytes."""
    if resource in _BYTES:
        return _bytes(amount)
    return _thousandths(amount) if resource in _MILLI else str(amount)


def demand_in_words(resource: str, amount: int) -> str:
    """Return an amount with the resource's name: ``4 CPU``, ``512 MiB of memory``, ``2 pods``."""
    if resource == "pods":
        return counted(amount, "pod")
    joint = " of " if resource in _BYTES else " "
    return f"{amount_in_words(resource, amount)}{joint}{_NAMES.get(resource, resource)}"


def name_in_words(resource: str) -> str:
    """Return ``CPU``, ``GPU memory``; extended resources unchanged."""
    return _NAMES.get(resource, resource)


def counted(number: int, noun: str) -> str:
    """Return ``1 node``, ``2 nodes``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(parts: Iterable[str], most: int = 3) -> str:
    """Return ``a``, ``a and b``, ``a, b and c``; of more than ``most`` the first ones and the number of others."""
    every = list(parts)
    named = every if len(every) <= most else [*every[:most], f"{len(every) - most} more"]
    return f"{', '.join(named[:-1])} and {named[-1]}" if len(named) > 1 else "".join(named)


def _thousandths(amount: int) -> str:
    sign, whole, rest = "-" if amount < 0 else "", abs(amount) // 1000, abs(amount) % 1000
    return f"{sign}{whole}.{rest:03d}".rstrip("0") if rest else f"{sign}{whole}"


def _bytes(amount: int) -> str:
    for unit, size in _UNITS:
        if abs(amount) >= size:
            return f"{_thousandths(amount * 1000 // size)} {unit}"
    return counted(amount, "byte")
