"""Fetch a trace from a Jaeger query API (v3), waiting for late spans."""

from __future__ import annotations

import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable

from muster._trace.spans import Span, read_spans
from muster.errors import MusterError, NotFound, Unavailable

_CALL_TIMEOUT_S = 10.0
_PAUSE_S = 0.3


def fetch_trace(
    url: str,
    trace_id: str,
    *,
    retry_timeout_s: float,
    complete: Callable[[list[Span]], bool],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[list[Span], bytes]:
    """Return the spans of a trace and the raw answer.

    Spans arrive a second after they end: asks again until ``complete`` holds, for at most ``retry_timeout_s`` seconds, then
    returns what is there. Raises ``NotFound`` if there is nothing, ``Unavailable`` if the store cannot be reached.
    """
    deadline = clock() + retry_timeout_s
    while True:
        content = _get(f"{url.rstrip('/')}/api/v3/traces/{urllib.parse.quote(trace_id)}", url)
        spans = _parsed(content, url) if content else []
        late = clock() + _PAUSE_S >= deadline
        if spans and (late or complete(spans)):
            return spans, content
        if late:
            raise NotFound(f"no spans of trace {trace_id} at {url}")
        sleep(_PAUSE_S)


def _get(address: str, url: str) -> bytes:
    if not address.startswith(("http://", "https://")):
        raise MusterError(f"{url!r} is not the http address of a trace store")
    request = urllib.request.Request(address, headers={"Accept": "application/json"})  # noqa: S310 (checked above)
    try:
        with urllib.request.urlopen(request, timeout=_CALL_TIMEOUT_S) as answer:  # noqa: S310
            return answer.read()
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return b""
        raise Unavailable(f"the trace store at {url} answered {error.code} {error.reason}") from None
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise Unavailable(f"cannot reach the trace store at {url}: {reason}") from None


def _parsed(content: bytes, url: str) -> list[Span]:
    try:
        return read_spans(content)
    except ValueError as error:
        raise MusterError(f"{url} does not answer like a trace store: {error}") from None
