"""Which replicas of a job share its training work, so that more of them make it faster."""

from __future__ import annotations

_OTHERS = frozenset({"ps", "server", "launcher", "scheduler", "evaluator"})
"""Roles that serve, start or watch the workers."""


def computes(role: str) -> bool:
    """Return whether replicas of this role share the training work."""
    return role.lower() not in _OTHERS
