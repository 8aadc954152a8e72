"""A position in a trace, as a value that can be stored in a record or sent in a header.

The ids of a long span must be known before it ends, since its children are recorded first, and must be the same when the
effect is repeated after a crash. So they are derived: a span id is a digest of its trace and of a key that names the
effect. The wire form is W3C Trace Context.
"""

import hashlib
import re
from collections.abc import Mapping

import msgspec
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

HEADER = "traceparent"
_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?"
)


class SpanRef(msgspec.Struct, frozen=True):
    """A span by its ids: `trace_id` is 32 and `span_id` 16 lower-case hexadecimal digits."""

    trace_id: str
    span_id: str
    sampled: bool = True

    @property
    def traceparent(self) -> str:
        """The W3C form, as stored and sent."""
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"

    @classmethod
    def parse(cls, traceparent: str) -> "SpanRef":
        """Parse the W3C form.

        Raises:
            ValueError: the text is not a valid traceparent.
        """
        matched = _TRACEPARENT.fullmatch(traceparent.strip())
        if matched is None or (matched[4] and traceparent.startswith("00")):
            raise ValueError(f"{traceparent!r} is not a traceparent")
        return cls(trace_id=matched[1], span_id=matched[2], sampled=bool(int(matched[3], 16) & 1))


def span_ref(parent: SpanRef, key: str) -> SpanRef:
    """Return the span that `key` names in the trace of `parent`; the same for the same trace and key.

    The parent's own id has no part in it, so the key must distinguish things that share a trace.
    """
    return SpanRef(trace_id=parent.trace_id, span_id=_span_id(parent.trace_id, key), sampled=parent.sampled)


def trace_ref(key: str) -> SpanRef:
    """Return the root span of the trace that `key` names; the same for the same key, everywhere."""
    trace_id = _digest(f"trace/{key}", 16)
    return SpanRef(trace_id=trace_id, span_id=_span_id(trace_id, key))


def current_ref() -> SpanRef | None:
    """Return the current span of this task, or None."""
    return from_span_context(trace.get_current_span().get_span_context())


def inject(ref: SpanRef | None = None) -> dict[str, str]:
    """Return the headers that carry `ref`, or the current span; empty without either."""
    carried = ref or current_ref()
    return {HEADER: carried.traceparent} if carried else {}


def extract(headers: Mapping[str, str]) -> SpanRef | None:
    """Return the span in the headers; None if there is none or it is invalid.

    Header names are case-insensitive.
    """
    value = headers.get(HEADER) or next(
        (text for name, text in headers.items() if name.lower() == HEADER), None
    )
    if value is None:
        return None
    try:
        return SpanRef.parse(value)
    except ValueError:
        return None


def from_span_context(context: SpanContext) -> SpanRef | None:
    """Return the value form of an OpenTelemetry span context; None if it is invalid."""
    if not context.is_valid:
        return None
    return SpanRef(
        trace_id=f"{context.trace_id:032x}",
        span_id=f"{context.span_id:016x}",
        sampled=context.trace_flags.sampled,
    )


def as_remote_parent(ref: SpanRef) -> Context:
    """Return an OpenTelemetry context with `ref` as the current span, for starting its children."""
    return trace.set_span_in_context(NonRecordingSpan(to_span_context(ref)), Context())


def to_span_context(ref: SpanRef) -> SpanContext:
    """Return the OpenTelemetry span context of a span of another process."""
    flags = TraceFlags(TraceFlags.SAMPLED if ref.sampled else TraceFlags.DEFAULT)
    return SpanContext(int(ref.trace_id, 16), int(ref.span_id, 16), is_remote=True, trace_flags=flags)


def _span_id(trace_id: str, key: str) -> str:
    return _digest(f"{trace_id}/{key}", 8)


def _digest(text: str, size: int) -> str:
    digest = hashlib.sha256(text.encode()).digest()[:size]
    # An id of zeros means "none" in W3C Trace Context.
    return digest.hex() if any(digest) else "1".zfill(2 * size)
