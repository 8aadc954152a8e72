"""The identity of this replica, read from ``TF_CONFIG`` alone.

The list of workers is used only to find the replica's own address: an elastic job lists every worker up to the maximum,
and absent ones do not answer, so only the parameter server is ever called.
"""

import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

CHIEFS = ("chief", "master")
ROLES = ("ps", "worker", *CHIEFS)


class ConfigError(ValueError):
    """``TF_CONFIG`` cannot be used; the message is one line with the path and the reason."""


@dataclass(frozen=True, slots=True)
class Address:
    """A TCP endpoint."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def bind_host(self) -> str | None:
        """The address to listen on: a loopback address as it is, else every interface, since a replica's name may not resolve yet."""
        try:
            return self.host if ipaddress.ip_address(self.host).is_loopback else None
        except ValueError:
            return self.host if self.host == "localhost" else None


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterConfig:
    """This replica's identity: ``chief`` names the replica that reports and evaluates, ``server`` is the parameter server."""

    role: str
    index: int
    server: Address
    chief: str

    @property
    def name(self) -> str:
        """The replica's name within the job, such as ``worker-0``."""
        return f"{self.role}-{self.index}"

    @property
    def is_chief(self) -> bool:
        """Whether this replica reports progress and evaluates the result."""
        return self.name == self.chief


def read_tf_config(environ: Mapping[str, str]) -> ClusterConfig:
    """Read ``TF_CONFIG``.

    Raises:
        ConfigError: if it is absent or malformed, or names a role or an address that this program does not support.
    """
    text = environ.get("TF_CONFIG", "")
    if not text.strip():
        raise ConfigError(
            "TF_CONFIG is not set: this program runs as a replica of a TensorFlow job (one ps, some workers)"
        )
    try:
        document = cast("object", json.loads(text))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"TF_CONFIG is not JSON: {error}") from None
    root = _mapping(document, "TF_CONFIG")
    cluster = _mapping(root.get("cluster"), "TF_CONFIG.cluster")
    members = {role: _members(value, f"TF_CONFIG.cluster.{role}") for role, value in cluster.items()}
    task = _mapping(root.get("task"), "TF_CONFIG.task")
    role, index = _task(task, members)
    chief_role = next((name for name in CHIEFS if name in members), "worker")
    return ClusterConfig(role=role, index=index, server=_server(members), chief=f"{chief_role}-0")


def _task(task: Mapping[str, object], members: Mapping[str, Mapping[int, Address]]) -> tuple[str, int]:
    role, index = task.get("type"), task.get("index")
    if not isinstance(role, str) or role not in ROLES:
        raise ConfigError(f"TF_CONFIG.task.type is {role!r}: expected one of {', '.join(ROLES)}")
    if not isinstance(index, int) or isinstance(index, bool) or index < 0:
        raise ConfigError(f"TF_CONFIG.task.index is {index!r}: expected a whole number of at least 0")
    known = members.get(role, {})
    if index not in known:
        raise ConfigError(
            f"TF_CONFIG.task is {role} {index}, but TF_CONFIG.cluster lists {len(known)} of {role}"
        )
    return role, index


def _server(members: Mapping[str, Mapping[int, Address]]) -> Address:
    servers = list(members.get("ps", {}).values())
    if len(servers) != 1:
        raise ConfigError(
            f"TF_CONFIG.cluster.ps lists {len(servers)} addresses: this program keeps its parameters on exactly 1"
        )
    return servers[0]


def _members(value: object, path: str) -> dict[int, Address]:
    """Return addresses by index: from a list, or from the sparse map of a dynamic worker."""
    if isinstance(value, list):
        listed = cast("list[object]", value)
        return {index: _address(item, f"{path}[{index}]") for index, item in enumerate(listed)}
    sparse = _mapping(value, path)
    for key in sparse:
        if not (key.isascii() and key.isdecimal()):
            raise ConfigError(f"{path} has the key {key!r}: expected an index")
    return {int(key): _address(item, f"{path}.{key}") for key, item in sparse.items()}


def _address(value: object, path: str) -> Address:
    if not isinstance(value, str):
        raise ConfigError(f"{path} is {value!r}: expected host:port")
    host, _, port = value.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    valid = host and port.isascii() and port.isdecimal() and len(port) <= 5 and 0 < int(port) < 65536
    if not valid:
        raise ConfigError(f"{path} is {value!r}: expected host:port")
    return Address(host, int(port))


def _mapping(value: object, path: str) -> dict[str, object]:
    if not isinstance(value, dict):
        found = "missing" if value is None else f"{value!r}"
        raise ConfigError(f"{path} is {found}: expected an object")
    return cast("dict[str, object]", value)
