"""Write the JSON Schemas of the native documents (job, queue, defaults) next to this file; run it when their tables have changed."""

from __future__ import annotations

import json
from pathlib import Path

from muster_formats.defaults import defaults_schema
from muster_formats.native import native_schema
from muster_formats.queues import queue_schema

SCHEMAS = {
    "job.schema.json": native_schema,
    "queue.schema.json": queue_schema,
    "defaults.schema.json": defaults_schema,
}
"""What makes the content of each file."""


def rendered(name: str = "job.schema.json") -> str:
    """A schema as its file holds it."""
    return json.dumps(SCHEMAS[name](), indent=2) + "\n"


if __name__ == "__main__":
    for name in SCHEMAS:
        Path(__file__).with_name(name).write_text(rendered(name))
