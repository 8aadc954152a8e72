"""The signature of an event: who has the secret can tell that Muster sent it, and when."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

TIMESTAMP = "Muster-Timestamp"
SIGNATURE = "Muster-Signature"
_VERSION = "v1"


def signature_headers(body: bytes, *, secrets: Iterable[bytes], at_s: int) -> dict[str, str]:
    """The two headers: the instant of sending (seconds since the epoch), and ``v1=<hex>`` for each secret, joined by commas.

    Each is the HMAC-SHA256 of ``<timestamp>.<body>``: the instant is signed too, so that an old request cannot be sent again.
    """
    signed = str(at_s).encode() + b"." + body
    signatures = [f"{_VERSION}={hmac.new(secret, signed, hashlib.sha256).hexdigest()}" for secret in secrets]
    return {TIMESTAMP: str(at_s), SIGNATURE: ",".join(signatures)}
