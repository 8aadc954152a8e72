"""Which roles the rest of a gang gathers around, and which are never taken away.

Kept in one place because placement, growth and shrinking must agree on it.
"""

from __future__ import annotations

ANCHOR_ROLES = frozenset({"ps", "server"})
"""Parameter servers: workers stand near them."""

PINNED_ROLES = ANCHOR_ROLES | {"chief", "master", "launcher", "scheduler"}
"""Roles without which the job is not the same job: never grown by a policy, never shrunk."""


def is_anchor(role: str) -> bool:
    """Whether workers of the gang are placed near this role."""
    return role.lower() in ANCHOR_ROLES


def is_pinned(role: str) -> bool:
    """Whether this role keeps its size for the job's whole life."""
    return role.lower() in PINNED_ROLES
