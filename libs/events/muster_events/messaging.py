"""Attributes of spans that publish or process an event, by OpenTelemetry's conventions for messaging.

The destination is the subject with placeholders, as in the catalogue: the subjects themselves have the id of the job, and
would be as many as there are jobs. The job is in attributes of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from muster_core import events
from muster_events.catalogue import EVENTS

SYSTEM = "nats"

_SUBJECTS: Mapping[type[events.Event], str] = {spec.type: spec.subject for spec in EVENTS}


def _attributes(event: type[events.Event], kind: str, name: str, message_id: str) -> dict[str, str]:
    return {
        "messaging.system": SYSTEM,
        "messaging.destination.name": _SUBJECTS[event],
        "messaging.operation.type": kind,
        "messaging.operation.name": name,
        "messaging.message.id": message_id,
    }


def published(event: type[events.Event], message_id: str = "") -> dict[str, str]:
    """Return the attributes of a producer span: it published an event with this message id."""
    return _attributes(event, "send", "publish", message_id)


def processed(event: type[events.Event], message_id: str = "") -> dict[str, str]:
    """Return the attributes of a consumer span: it processed an event with this message id."""
    return _attributes(event, "process", "process", message_id)
