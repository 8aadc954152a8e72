"""Which roles the rest of a gang gathers around, and which never leave.

In one place because placement, growth and shrinking must agree.
"""

from __future__ import annotations

ANCHOR_ROLES = frozenset({"ps", "server"})
"""Parameter servers: workers go near them."""

PINNED_ROLES = ANCHOR_ROLES | {"chief", "master", "launcher", "scheduler"}
"""Roles without which the job cannot continue: never resized by a policy."""


def is_anchor(role: str) -> bool:
    """Return whether workers of the gang are placed near this role."""
    return role.lower() in ANCHOR_ROLES


def is_pinned(role: str) -> bool:
    """Return whether this role keeps its size."""
    return role.lower() in PINNED_ROLES
