"""Instants and durations: microseconds since the epoch and whole seconds here, protobuf's well-known types there."""

from __future__ import annotations

from google.protobuf import duration_pb2, timestamp_pb2


def timestamp_to_proto(micros: int) -> timestamp_pb2.Timestamp | None:
    """The timestamp of an instant in microseconds; None for 0, which means *not yet*."""
    if not micros:
        return None
    timestamp = timestamp_pb2.Timestamp()
    timestamp.FromMicroseconds(micros)
    return timestamp


def micros_from_proto(timestamp: timestamp_pb2.Timestamp) -> int:
    """Microseconds since the epoch; 0 for an absent timestamp."""
    return timestamp.seconds * 1_000_000 + timestamp.nanos // 1_000


def duration_to_proto(seconds: int | None) -> duration_pb2.Duration | None:
    """The duration of whole seconds; None stays absent."""
    return None if seconds is None else duration_pb2.Duration(seconds=seconds)


def seconds_from_proto(duration: duration_pb2.Duration) -> int:
    """Whole seconds, a fraction rounded up: nobody is given less time than they asked for."""
    return duration.seconds + (1 if duration.nanos > 0 else 0)
