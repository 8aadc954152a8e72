"""Resources as exact integers."""

from __future__ import annotations

import msgspec

GPU_MILLI = 1000
"""Milli-GPUs in one whole GPU."""


class Resources(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """An amount of every resource.

    ``cpu`` is in milli-CPU, ``memory`` and ``ephemeral_storage`` in bytes, ``gpu`` in milli-GPU (1000 is one whole GPU),
    ``gpu_memory`` in bytes on each shared GPU. ``extended`` holds every other resource by its Kubernetes name, in units.
    """

    cpu: int = 0
    memory: int = 0
    gpu: int = 0
    gpu_memory: int = 0
    ephemeral_storage: int = 0
    extended: dict[str, int] = {}

    def __add__(self, other: Resources) -> Resources:
        """Sum of each resource."""
        return self._combine(other, 1)

    def __sub__(self, other: Resources) -> Resources:
        """Difference of each resource; may be negative, which ``fits_in`` never accepts."""
        return self._combine(other, -1)

    def fits_in(self, free: Resources) -> bool:
        """Return whether ``free`` has at least this much of every requested resource (> 0)."""
        return all(amount <= free.amount(name) for name, amount in self.amounts().items() if amount > 0)

    def amount(self, name: str) -> int:
        """Return the amount of one resource by the name that ``amounts`` uses."""
        return self.amounts().get(name, 0)

    def amounts(self) -> dict[str, int]:
        """Return every resource by name: the fields above, then the extended ones."""
        return {
            "cpu": self.cpu,
            "memory": self.memory,
            "gpu": self.gpu,
            "gpu_memory": self.gpu_memory,
            "ephemeral_storage": self.ephemeral_storage,
            **self.extended,
        }

    def _combine(self, other: Resources, sign: int) -> Resources:
        extended = dict(self.extended)
        for name, amount in other.extended.items():
            extended[name] = extended.get(name, 0) + sign * amount
        return Resources(
            cpu=self.cpu + sign * other.cpu,
            memory=self.memory + sign * other.memory,
            gpu=self.gpu + sign * other.gpu,
            gpu_memory=self.gpu_memory + sign * other.gpu_memory,
            ephemeral_storage=self.ephemeral_storage + sign * other.ephemeral_storage,
            extended=extended,
        )


class ResourceLimits(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Limits by resource, in the units of ``Resources``. None is unlimited, 0 allows none of the resource."""

    cpu: int | None = None
    memory: int | None = None
    gpu: int | None = None
    gpu_memory: int | None = None
    ephemeral_storage: int | None = None
    extended: dict[str, int] = {}

    def amounts(self) -> dict[str, int]:
        """The limited resources by the names that ``Resources.amounts`` uses."""
        named = {
            "cpu": self.cpu,
            "memory": self.memory,
            "gpu": self.gpu,
            "gpu_memory": self.gpu_memory,
            "ephemeral_storage": self.ephemeral_storage,
        }
        return {name: amount for name, amount in named.items() if amount is not None} | self.extended
