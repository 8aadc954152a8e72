"""Write ``job.schema.json``, the JSON Schema of the native form, beside this file: run it when the form has changed."""

from __future__ import annotations

import json
from pathlib import Path

from muster_core.dialects import native_schema

SCHEMA = Path(__file__).with_name("job.schema.json")


def rendered() -> str:
    """The schema as the file holds it."""
    return json.dumps(native_schema(), indent=2) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(rendered())
