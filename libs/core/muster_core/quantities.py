"""Kubernetes quantities and durations as exact integers, and amounts as text.

Amounts are integers from the moment they are read: milli-CPU, bytes, milli-GPU, seconds. Fractions are rounded up, as in
Kubernetes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from fractions import Fraction

MAX_AMOUNT = 2**63 - 1
"""The largest amount: the maximum of a signed 64-bit integer."""

MAX_SECONDS = 2**31 - 1
"""The longest duration, 68 years."""

_MAX_TEXT = 64
_MAX_EXPONENT = 64
_SUFFIXES: dict[str, Fraction] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "": Fraction(1),
    **{suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", 1)},
}
_QUANTITY = re.compile(
    r"([+-]?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE]([+-]?[0-9]{1,9})|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII
)
_DURATION = re.compile(r"(?:([0-9]+)d)?(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?", re.ASCII)
_DURATION_SCALES = (86_400, 3_600, 60, 1)


class QuantityError(ValueError):
    """A text or number that is not a valid amount; the message tells the author why."""


def parse_quantity(value: object, scale: int = 1) -> int:
    """Parse a Kubernetes quantity as a whole number of ``1/scale`` units, rounded up.

    ``value`` is an int, a finite float or a text such as ``500m``, ``1.5``, ``256Mi``, ``1e3``. Raises ``QuantityError``
    for everything else: negative amounts, NaN, booleans, unknown suffixes, amounts above 2^63-1.
    """
    exact = _exact(value) * scale
    if exact < 0:
        raise QuantityError("an amount must not be negative")
    amount = math.ceil(exact)
    if amount > MAX_AMOUNT:
        raise QuantityError("the amount is above 2^63-1")
    return amount


def parse_cpu(value: object) -> int:
    """Parse CPU in milli-CPU."""
    return parse_quantity(value, 1000)


def parse_bytes(value: object) -> int:
    """Parse memory or storage in bytes."""
    return parse_quantity(value)


def parse_gpu(value: object) -> int:
    """Parse GPUs in milli-GPU: whole GPUs, or a share of one.

    Also raises ``QuantityError`` for more than one GPU that is not whole, since a share is of one GPU.
    """
    amount = parse_quantity(value, 1000)
    if amount > 1000 and amount % 1000:
        raise QuantityError("above one GPU only whole GPUs are allowed")
    return amount


def format_cpu(milli: int) -> str:
    """Format milli-CPU: ``500m``, ``2``."""
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


def format_bytes(amount: int) -> str:
    """Format bytes with the largest exact binary suffix: ``256Mi``, ``1000``."""
    for power, suffix in ((6, "Ei"), (5, "Pi"), (4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
        if amount and amount % 1024**power == 0:
            return f"{amount // 1024**power}{suffix}"
    return str(amount)


def format_gpu(milli: int) -> str:
    """Format milli-GPU: ``2``, ``500m``."""
    return format_cpu(milli)


def parse_duration(value: object) -> int:
    """Parse a duration in seconds: an int of seconds or a text such as ``30s``, ``5m``, ``1h30m``, ``2d``.

    Raises ``QuantityError`` for everything else, and above 2^31-1 seconds.
    """
    seconds = _seconds(value)
    if seconds > MAX_SECONDS:
        raise QuantityError("the duration is above 2^31-1 seconds")
    return seconds


def format_duration(seconds: int) -> str:
    """Format seconds: ``30s``, ``5m``, ``1h30m``."""
    parts = ""
    for scale, unit in zip((3_600, 60, 1), "hms", strict=True):
        count, seconds = divmod(seconds, scale)
        parts += f"{count}{unit}" if count else ""
    return parts or "0s"


def _exact(value: object) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise QuantityError("a quantity must be a number or a text such as 500m or 256Mi")
    if isinstance(value, int):
        return Fraction(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise QuantityError("a quantity must be finite")
    text = value if isinstance(value, str) else repr(value)
    if len(text) > _MAX_TEXT:
        raise QuantityError("the quantity is too long")
    found = _QUANTITY.fullmatch(text)
    if found is None:
        raise QuantityError(
            "a quantity must be a number with at most one suffix: n u m k M G T P E, Ki Mi Gi Ti Pi Ei"
        )
    sign, digits, exponent, suffix = found.groups()
    number = Fraction(digits if digits[0] != "." else f"0{digits}")
    if exponent is not None:
        if abs(int(exponent)) > _MAX_EXPONENT:
            raise QuantityError("the exponent is too large")
        number *= Fraction(10) ** int(exponent)
    else:
        number *= _SUFFIXES[suffix or ""]
    return -number if sign == "-" else number


def _seconds(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise QuantityError("a duration must be a whole number of seconds or a text such as 30s, 5m or 1h30m")
    if isinstance(value, int):
        if value < 0:
            raise QuantityError("a duration must not be negative")
        return value
    found = _DURATION.fullmatch(value) if len(value) <= _MAX_TEXT else None
    if found is None or not value:
        raise QuantityError(
            "a duration must be whole numbers with the units d, h, m, s in this order: 30s, 5m, 1h30m"
        )
    return sum(
        int(count) * scale for count, scale in zip(found.groups(), _DURATION_SCALES, strict=True) if count
    )


_BYTES = frozenset({"memory", "ephemeral_storage", "gpu_memory"})
_MILLI = frozenset({"cpu", "gpu"})
_NAMES = {"cpu": "CPU", "gpu": "GPU", "ephemeral_storage": "ephemeral storage", "gpu_memory": "GPU memory"}
_UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


def format_amount(resource: str, amount: int) -> str:
    """Return an amount without the resource's name: ``1.5`` for 1500 milli-CPU, ``512 MiB`` for bytes."""
    if resource in _BYTES:
        return _bytes(amount)
    return _thousandths(amount) if resource in _MILLI else str(amount)


def format_demand(resource: str, amount: int) -> str:
    """Return an amount with the resource's name: ``4 CPU``, ``512 MiB of memory``, ``2 pods``."""
    if resource == "pods":
        return counted(amount, "pod")
    joint = " of " if resource in _BYTES else " "
    return f"{format_amount(resource, amount)}{joint}{_NAMES.get(resource, resource)}"


def resource_label(resource: str) -> str:
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
