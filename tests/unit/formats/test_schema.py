"""The JSON Schema of the native format."""

import importlib.util
import json
from pathlib import Path

from muster_formats.native import native_schema

FOLDER = Path(__file__).parents[3] / "docs" / "schema"


def test_the_schema_file_of_a_job_is_current() -> None:
    spec = importlib.util.spec_from_file_location("generate", FOLDER / "generate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (FOLDER / "job.schema.json").read_text() == module.rendered(), (
        "run: python docs/schema/generate.py"
    )


def test_the_schema_agrees_with_the_parser() -> None:
    schema = json.loads(json.dumps(native_schema()))
    role = schema["properties"]["spec"]["properties"]["roles"]["additionalProperties"]
    assert schema["required"] == ["apiVersion", "kind", "metadata", "spec"]
    assert role["additionalProperties"] is False
    assert {"replicas", "min", "max", "image", "command", "resources", "template", "overrides"} <= role[
        "properties"
    ].keys()
    assert role["properties"]["replicas"] == {
        "type": "integer",
        "minimum": 0,
        "maximum": 5_000,
        "description": "Number of replicas at the start; by default min, else 1. 0 switches the role off.",
    }
    assert role["properties"]["restartPolicy"]["enum"] == ["Always", "OnFailure", "Never", "ExitCode"]
