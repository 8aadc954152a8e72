"""A receiver of Muster's webhooks: it verifies signatures, ignores repetitions, and prints a line for each change of a
job.

Usage: ``python receiver.py SECRET_FILE [PORT]``. It needs nothing but Python.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

TOLERANCE_S = 300


def verify(secret: bytes, timestamp: str, signatures: str, body: bytes) -> bool:
    """Return whether the request was signed with the secret, recently."""
    if not timestamp.isdigit() or abs(time.time() - int(timestamp)) > TOLERANCE_S:
        return False
    expected = hmac.new(secret, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return any(
        hmac.compare_digest(given.strip().encode(), f"v1={expected}".encode())
        for given in signatures.split(",")
    )


class Receiver(BaseHTTPRequestHandler):
    """Answers 204 to accepted requests, 401 to requests without a valid signature."""

    secret = b""
    newest: ClassVar[dict[str, str]] = {}

    def do_POST(self) -> None:
        """Handle one payload."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        timestamp, signatures = (
            self.headers.get("Muster-Timestamp", ""),
            self.headers.get("Muster-Signature", ""),
        )
        if not verify(self.secret, timestamp, signatures, body):
            self.send_error(401)
            return
        event = json.loads(body)
        # A payload may come twice, and a replayed one late: only a sequence greater than the job's last one is new.
        if event["sequence"] > self.newest.get(event["subject"], ""):
            self.newest[event["subject"]] = event["sequence"]
            job = event["data"]
            print(event["time"], job["name"], job["phase"], job["reason"]["message"], flush=True)
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's own word)
        """Do not log requests: their payload is printed."""


if __name__ == "__main__":
    Receiver.secret = Path(sys.argv[1]).read_bytes().strip()
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 9000
    print(f"listening on http://127.0.0.1:{port}/", flush=True)
    ThreadingHTTPServer(("127.0.0.1", port), Receiver).serve_forever()
