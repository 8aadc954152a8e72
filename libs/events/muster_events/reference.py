"""The catalogue as a Markdown page and as an AsyncAPI document."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec

from muster_events.catalogue import BUCKETS, CONSUMERS, EVENTS, STREAMS, EventSpec
from muster_events.codec import CONTENT_TYPE

_INTRO = """# The events of Muster

Generated from `muster_events.catalogue` by `make docs`; do not edit.

Events are immutable and in the past tense. Each has one writer. They travel as JSON over NATS JetStream, with CloudEvents-named
headers (`ce-id`, `ce-type`, `ce-source`, `ce-subject`), `Nats-Msg-Id` and `traceparent`; `muster-instance` where it
matters which instance was first. An event changes only by gaining optional fields;
files of every published version (`tests/golden/events/`) stay readable for ever.
"""


def markdown() -> str:
    """Return the page ``docs/events.md``."""
    parts = [_INTRO, "## Events\n", "| event | writer | read by | meaning |", "|---|---|---|---|"]
    parts += [
        f"| `{spec.name}` | {spec.writer} | {', '.join(spec.readers)} | {_first_line(spec.type)} |"
        for spec in EVENTS
    ]
    parts += ["\n## Subjects\n", "| event | stream | subject |", "|---|---|---|"]
    parts += [f"| `{spec.name}` | {spec.stream} | `{spec.subject}` |" for spec in EVENTS]
    parts += ["\n`shard` is `crc32(job_id) % 16`; a dot in a node's name is written `~`.\n"]
    parts += ["## Fields\n", *(_fields(spec) for spec in EVENTS)]
    parts += ["## Streams\n", "| stream | subjects | content |", "|---|---|---|"]
    parts += [f"| {s.name} | {_code(s.subjects)} | {s.description} |" for s in STREAMS]
    parts += [
        "\n## Durable consumers\n",
        "| consumer | stream | filter | acknowledges |",
        "|---|---|---|---|",
    ]
    parts += [f"| {d.consumer} | {d.stream} | {_code(d.filters)} | {d.ack} |" for d in CONSUMERS]
    parts += ["\n## Buckets\n", "| bucket | content |", "|---|---|"]
    parts += [f"| {b.name} | {b.description} |" for b in BUCKETS]
    return "\n".join(parts) + "\n"


def asyncapi() -> bytes:
    """Return the AsyncAPI 3 document ``docs/asyncapi.json``."""
    _, components = msgspec.json.schema_components(
        [s.type for s in EVENTS], ref_template="#/components/schemas/{name}"
    )
    document: dict[str, Any] = {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Muster",
            "version": "1",
            "description": "The events that Muster's services exchange over NATS JetStream.",
        },
        "defaultContentType": CONTENT_TYPE,
        "channels": {spec.name: _channel(spec) for spec in EVENTS},
        "operations": _operations(),
        "components": {"messages": {spec.name: _message(spec) for spec in EVENTS}, "schemas": components},
    }
    return msgspec.json.format(msgspec.json.encode(document, order="sorted"), indent=2) + b"\n"


def _channel(spec: EventSpec) -> dict[str, Any]:
    names = [part[1:-1] for part in spec.subject.split(".") if part.startswith("{")]
    return {
        "address": spec.subject,
        "parameters": {name: {} for name in names},
        "messages": {spec.name: {"$ref": f"#/components/messages/{spec.name}"}},
    }


def _message(spec: EventSpec) -> dict[str, Any]:
    headers = ("Nats-Msg-Id", "traceparent", "ce-id", "ce-type", "ce-source", "ce-subject", "muster-instance")
    return {
        "name": spec.name,
        "summary": _first_line(spec.type),
        "headers": {"type": "object", "properties": {name: {"type": "string"} for name in headers}},
        "payload": {"$ref": f"#/components/schemas/{spec.name}"},
    }


def _operations() -> dict[str, Any]:
    operations: dict[str, Any] = {}
    for spec in EVENTS:
        channel = {"$ref": f"#/channels/{spec.name}"}
        operations[f"{spec.writer}.sends.{spec.name}"] = {"action": "send", "channel": channel}
        for reader in spec.readers:
            operations[f"{reader}.receives.{spec.name}"] = {"action": "receive", "channel": channel}
    return operations


def _fields(spec: EventSpec) -> str:
    rows = [
        f"| `{f.encode_name}` | {_type(f.type)} | {'yes' if f.required else 'no'} |"
        for f in msgspec.structs.fields(spec.type)
    ]
    doc = inspect.cleandoc(spec.type.__doc__ or "")
    return "\n".join([f"### {spec.name}\n", doc, "\n| field | type | required |\n|---|---|---|", *rows, ""])


def _type(kind: Any) -> str:
    text = kind.__name__ if isinstance(kind, type) and not hasattr(kind, "__args__") else str(kind)
    for prefix in ("muster_core.models.job.", "muster_core.models.node.", "muster_core.models.problem."):
        text = text.replace(prefix, "")
    text = text.replace("muster_core.models.record.", "").replace("muster_core.models.resources.", "")
    return "`" + text.replace("muster_core.events.", "").replace("|", "or") + "`"


def _first_line(kind: type) -> str:
    return inspect.cleandoc(kind.__doc__ or "").splitlines()[0]


def _code(texts: Any) -> str:
    return ", ".join(f"`{text}`" for text in texts)
