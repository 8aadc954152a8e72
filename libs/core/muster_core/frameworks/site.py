"""What a runtime says of the place where replicas run: all that differs between a process and a pod is here."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

Addresses = Mapping[tuple[str, int], str]
"""``host:port`` by role and index."""


class ConfigFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that replicas read: its content, and its permissions as ``chmod`` counts them."""

    content: bytes
    mode: int = 0o644


class RemoteShell(msgspec.Struct, frozen=True, kw_only=True):
    """How one replica runs a command in another: ``script`` is called as ``rsh`` is (``script HOST WORD...``).

    ``env`` is what a launcher has to know of it. An empty ``script``: the runtime has none.
    """

    script: str = ""
    env: Mapping[str, str] = {}


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """Where replicas run.

    ``members_path`` is the membership file's, ``config_folder`` that of the files of ``files``, both as replicas see them.
    ``interface`` is the one network interface on which they meet; empty where any will do.
    """

    addresses: Addresses
    members_path: str
    config_folder: str
    interface: str = ""
    remote_shell: RemoteShell = RemoteShell()
