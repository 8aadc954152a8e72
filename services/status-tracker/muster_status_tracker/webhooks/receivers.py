"""Configuration of webhook receivers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from muster_core.models import Phase

_SHORTEST_SECRET = 16
_LONGEST_S = 3600
_Name = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$")]


class BadReceivers(ValueError):
    """The file is invalid; the message has the reason."""


class Receiver(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """One receiver. Empty ``phases``, ``namespaces`` or ``queues`` mean all of them.

    ``secret_file`` holds the signing secrets, one per line; ``ca_file`` the certificates to trust instead of the
    system's. A notification is attempted ``attempts`` times; the first pause is doubled up to the longest.
    """

    name: _Name
    url: str
    secret_file: str
    ca_file: str | None = None
    phases: frozenset[Phase] = frozenset()
    namespaces: frozenset[str] = frozenset()
    queues: frozenset[str] = frozenset()
    timeout_seconds: Annotated[float, Meta(gt=0, le=25)] = 10.0
    attempts: Annotated[int, Meta(ge=1, le=100)] = 10
    first_pause_seconds: Annotated[float, Meta(gt=0, le=_LONGEST_S)] = 1.0
    longest_pause_seconds: Annotated[float, Meta(gt=0, le=_LONGEST_S)] = 300.0

    def secrets(self) -> tuple[bytes, ...]:
        """Return the current signing secrets. The file is read each time, so that replacing it rotates the secret.

        Raises ``OSError`` if it cannot be read, ``BadReceivers`` if it has no secret or one that is too short.
        """
        found = tuple(
            line.strip() for line in Path(self.secret_file).read_bytes().splitlines() if line.strip()
        )
        if not found:
            raise BadReceivers(f"receiver {self.name}: {self.secret_file} has no secret; write one per line")
        if any(len(secret) < _SHORTEST_SECRET for secret in found):
            raise BadReceivers(
                f"receiver {self.name}: a secret in {self.secret_file} is shorter than {_SHORTEST_SECRET} characters"
            )
        return found


class Receivers(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file. ``source`` is the source of CloudEvents, to tell several installations apart."""

    receivers: tuple[Receiver, ...]
    source: Annotated[str, Meta(min_length=1)] = "muster"


def read_receivers(path: Path) -> Receivers:
    """Read the file, YAML or JSON; raises ``BadReceivers``."""
    try:
        found = msgspec.yaml.decode(path.read_bytes(), type=Receivers)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadReceivers(f"{path}: {error}") from error
    names = [receiver.name for receiver in found.receivers]
    for receiver in found.receivers:
        if names.count(receiver.name) > 1:
            raise BadReceivers(f"{path}: two receivers are named {receiver.name}")
        _check(receiver)
    return found


def _check(receiver: Receiver) -> None:
    try:
        address = urlsplit(receiver.url)
        port_is_valid = address.port is None or address.port > 0
    except ValueError as error:
        raise BadReceivers(f"receiver {receiver.name}: url: {error}") from error
    if address.scheme not in {"http", "https"} or not address.hostname or not port_is_valid:
        raise BadReceivers(
            f"receiver {receiver.name}: url must start with http:// or https:// and have a host"
        )
    if not receiver.url.isascii() or not receiver.url.isprintable() or " " in receiver.url:
        raise BadReceivers(f"receiver {receiver.name}: url must be printable ASCII without spaces")
    if address.username is not None:
        raise BadReceivers(
            f"receiver {receiver.name}: url must not contain a password; requests are authenticated by their signature"
        )
    if receiver.ca_file is not None and not Path(receiver.ca_file).is_file():
        raise BadReceivers(f"receiver {receiver.name}: file {receiver.ca_file} does not exist")
    try:
        receiver.secrets()
    except OSError as error:
        raise BadReceivers(f"receiver {receiver.name}: {error}") from error
