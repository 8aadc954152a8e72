"""Spans of a trace: fetched from a Jaeger query API (v3), and read from OTLP JSON."""

from __future__ import annotations

import base64
import binascii
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from typing import cast

import msgspec

from muster.errors import MusterError, NotFound, Unavailable

_ID_DIGITS = (16, 32)

JsonObject = dict[str, object]


class TraceEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event within a span, at nanoseconds since the epoch."""

    name: str
    at_ns: int
    attributes: dict[str, str] = {}


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A link to a span, mostly of another trace."""

    trace_id: str
    span_id: str
    attributes: dict[str, str] = {}


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A span. Times are nanoseconds since the epoch; ids are lower-case hexadecimal, ``parent_id`` is empty for a root."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    service: str
    start_ns: int
    end_ns: int
    attributes: dict[str, str] = {}
    error: str = ""
    failed: bool = False
    events: tuple[TraceEvent, ...] = ()
    links: tuple[Link, ...] = ()


def read_spans(content: bytes | str) -> list[Span]:
    """Return every span of an OTLP JSON answer once, by start. Raises ``ValueError`` for anything else."""
    spans: dict[tuple[str, str], Span] = {}
    for document in read_documents(content):
        for span in _spans_of(document):
            known = spans.get((span.trace_id, span.span_id))
            if known is None or span.end_ns > known.end_ns:
                spans[span.trace_id, span.span_id] = span
    return sorted(spans.values(), key=lambda span: (span.start_ns, span.name))


def read_documents(content: bytes | str) -> Iterator[JsonObject]:
    """Return the JSON objects of an answer. Raises ``ValueError`` for anything else."""
    text = content if isinstance(content, str) else content.decode()
    decoder, position = json.JSONDecoder(), 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        document, position = decoder.raw_decode(text, position)
        yield _object(document)


def _spans_of(document: JsonObject) -> Iterator[Span]:
    inner = _object(document.get("result", document))
    for resource_spans in _objects(inner.get("resourceSpans")):
        resource = _object(resource_spans.get("resource", {}))
        service = _attributes(resource.get("attributes")).get("service.name", "?")
        for scope_spans in _objects(resource_spans.get("scopeSpans")):
            for span in _objects(scope_spans.get("spans")):
                yield _span(span, service)


def _span(raw: JsonObject, service: str) -> Span:
    status = _object(raw.get("status", {}))
    return Span(
        trace_id=_id(raw.get("traceId")),
        span_id=_id(raw.get("spanId")),
        parent_id=_id(raw.get("parentSpanId")),
        name=str(raw.get("name", "")),
        service=service,
        start_ns=_nanoseconds(raw.get("startTimeUnixNano")),
        end_ns=_nanoseconds(raw.get("endTimeUnixNano")),
        attributes=_attributes(raw.get("attributes")),
        error=str(status.get("message", "")),
        failed=status.get("code") in {2, "STATUS_CODE_ERROR"},
        events=tuple(_event(event) for event in _objects(raw.get("events"))),
        links=tuple(_link(link) for link in _objects(raw.get("links"))),
    )


def _event(raw: JsonObject) -> TraceEvent:
    return TraceEvent(
        name=str(raw.get("name", "")),
        at_ns=_nanoseconds(raw.get("timeUnixNano")),
        attributes=_attributes(raw.get("attributes")),
    )


def _link(raw: JsonObject) -> Link:
    return Link(
        trace_id=_id(raw.get("traceId")),
        span_id=_id(raw.get("spanId")),
        attributes=_attributes(raw.get("attributes")),
    )


def _attributes(raw: object) -> dict[str, str]:
    return {str(item.get("key", "")): _text(item.get("value")) for item in _objects(raw)}


def _text(value: object) -> str:
    """Return the value of an OTLP AnyValue as text."""
    for kind, inner in _object(value or {}).items():
        if kind == "arrayValue":
            return ",".join(_text(item) for item in _objects(_object(inner).get("values")))
        if kind == "kvlistValue":
            return ",".join(f"{k}={v}" for k, v in _attributes(_object(inner).get("values")).items())
        return str(inner).lower() if isinstance(inner, bool) else str(inner)
    return ""


def _id(raw: object) -> str:
    text = str(raw or "")
    if len(text) in _ID_DIGITS and all(digit in "0123456789abcdefABCDEF" for digit in text):
        found = text.lower()
    else:
        try:
            found = base64.b64decode(text, validate=True).hex()
        except binascii.Error:
            raise ValueError(f"{text!r} is not a trace or span id") from None
    return found if found.strip("0") else ""


def _nanoseconds(raw: object) -> int:
    return int(str(raw or 0))


def _object(value: object) -> JsonObject:
    if not isinstance(value, dict):
        raise ValueError("not an OTLP JSON document")
    return cast("JsonObject", value)


def _objects(value: object) -> list[JsonObject]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError("not an OTLP JSON document")
    return [_object(item) for item in cast("list[object]", value)]


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
