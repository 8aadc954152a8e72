"""What a runtime declares about where replicas run: everything that differs between a process and a pod."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

Addresses = Mapping[tuple[str, int], str]
"""``host:port`` by role and index."""


class ConfigFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file for replicas: content and ``chmod`` permissions."""

    content: bytes
    mode: int = 0o644


class RemoteShell(msgspec.Struct, frozen=True, kw_only=True):
    """How one replica runs a command in another: ``script`` is called like ``rsh`` (``script HOST WORD...``).

    ``env`` are variables for the launcher. An empty ``script``: the runtime has none.
    """

    script: str = ""
    env: Mapping[str, str] = {}


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """Where replicas run.

    ``members_path`` is the membership file, ``config_folder`` the folder of framework files, both as replicas see them.
    ``interface`` is the network interface to use; empty for any.
    """

    addresses: Addresses
    members_path: str
    config_folder: str
    interface: str = ""
    remote_shell: RemoteShell = RemoteShell()
