"""The public API keeps the API improvement proposals (AIPs) of Google, apart from these deviations:

- AIP-122, 131 to 135: there are no resource names and no HTTP mapping. A job is addressed by its id or its name in a namespace
  (``JobRef``), as in Kubernetes, and answers are wrapped in a response message (buf's STANDARD rules), so that they can carry a revision.
- AIP-142: timestamps end with ``_at``, as in the events; ``AT`` has the other names.
- AIP-148: ``name`` is the short name of an object.
- AIP-151: nothing is a long-running operation; the state of a job is watched.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from google.api import field_behavior_pb2
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, MethodDescriptor

from muster_rpc.v1 import (
    cluster_service_pb2,
    defaults_service_pb2,
    explanation_pb2,
    job_pb2,
    job_service_pb2,
    orphan_service_pb2,
    queue_service_pb2,
)

PROTO = Path(__file__).resolve().parents[3] / "proto"
FILES = [
    module.DESCRIPTOR
    for module in (
        cluster_service_pb2,
        defaults_service_pb2,
        explanation_pb2,
        job_pb2,
        job_service_pb2,
        orphan_service_pb2,
        queue_service_pb2,
    )
]
METHODS: list[MethodDescriptor] = [
    method for file in FILES for service in file.services_by_name.values() for method in service.methods
]
MESSAGES: list[Descriptor] = [message for file in FILES for message in file.message_types_by_name.values()]
ENUMS: list[EnumDescriptor] = [enum for file in FILES for enum in file.enum_types_by_name.values()]
FIELDS: list[FieldDescriptor] = [field for message in MESSAGES for field in message.fields]

AT = {"at", "expected_start", "not_before"}
"""Fields of type Timestamp whose names do not end with ``_at``."""

WRITES = ("Submit", "Cancel", "Delete", "Scale", "Suspend", "Resume", "Restart", "Apply", "Adopt", "Remove")
WITHOUT_REQUEST_ID = {"ApplyDefaults", "AdoptOrphan", "RemoveOrphan"}
"""Writes that are idempotent by their content."""


def names(items: Sequence[MethodDescriptor | Descriptor | EnumDescriptor]) -> list[str]:
    return [item.name for item in items]


def sent(message: Descriptor, seen: set[str] | None = None) -> Iterator[Descriptor]:
    """A request and every message of this package that it contains."""
    seen = set() if seen is None else seen
    if message.full_name in seen or not message.full_name.startswith("muster.v1."):
        return
    seen.add(message.full_name)
    yield message
    for field in message.fields:
        if field.message_type is not None:
            yield from sent(field.message_type, seen)


@pytest.mark.parametrize("enum", ENUMS, ids=names(ENUMS))
def test_aip_126_an_enum_begins_with_unspecified(enum: EnumDescriptor) -> None:
    prefix = re.sub(r"(?<!^)([A-Z])", r"_\1", enum.name).upper()

    assert (enum.values[0].number, enum.values[0].name) == (0, f"{prefix}_UNSPECIFIED")
    assert [value.name for value in enum.values if not value.name.startswith(f"{prefix}_")] == []


@pytest.mark.parametrize("method", METHODS, ids=names(METHODS))
def test_aip_130_a_method_is_a_verb_with_messages_of_its_own(method: MethodDescriptor) -> None:
    assert re.fullmatch(r"[A-Z][a-z]+[A-Z][A-Za-z]+", method.name)
    assert method.input_type.name == f"{method.name}Request"
    assert method.output_type.name == f"{method.name}Response"


@pytest.mark.parametrize("method", METHODS, ids=names(METHODS))
def test_aip_155_a_write_has_a_request_id(method: MethodDescriptor) -> None:
    is_write = method.name.startswith(WRITES) and method.name not in WITHOUT_REQUEST_ID

    assert ("request_id" in method.input_type.fields_by_name) is is_write


@pytest.mark.parametrize(
    "method", [one for one in METHODS if one.name.startswith("List")], ids=lambda one: one.name
)
def test_aip_158_a_list_has_pages(method: MethodDescriptor) -> None:
    request, response = method.input_type.fields_by_name, method.output_type.fields_by_name

    assert request["page_size"].type == FieldDescriptor.TYPE_INT32
    assert request["page_token"].type == FieldDescriptor.TYPE_STRING
    assert response["next_page_token"].type == FieldDescriptor.TYPE_STRING
    assert method.output_type.fields_by_number[1].is_repeated


def test_aip_140_fields_are_in_snake_case_without_fillers() -> None:
    assert [
        field.full_name for field in FIELDS if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", field.name)
    ] == []
    assert [field.full_name for field in FIELDS if field.name.startswith(("is_", "has_"))] == []


def test_aip_142_timestamps_are_named_for_what_happened_then() -> None:
    wrong = [
        field.full_name
        for field in FIELDS
        if field.message_type is not None
        and field.message_type.full_name == "google.protobuf.Timestamp"
        and not field.name.endswith("_at")
        and field.name not in AT
    ]
    assert wrong == []


def test_aip_203_every_request_field_has_a_field_behavior() -> None:
    unmarked: list[str] = []
    for message in {one.full_name: one for method in METHODS for one in sent(method.input_type)}.values():
        # A problem is only received: JobSpec.warnings is OUTPUT_ONLY.
        if message.full_name == "muster.v1.Problem" or message.GetOptions().map_entry:
            continue
        unmarked += [
            field.full_name
            for field in message.fields
            if not _is_choice(field) and not field.GetOptions().Extensions[field_behavior_pb2.field_behavior]  # pyright: ignore[reportArgumentType] (two names of a class)
        ]
    assert unmarked == []


@pytest.mark.parametrize("path", sorted((PROTO / "muster").rglob("*.proto")), ids=lambda path: path.name)
def test_aip_191_and_215_files_are_in_the_folder_of_their_versioned_package(path: Path) -> None:
    text = path.read_text()
    package = re.findall(r"^package (\S+);$", text, re.MULTILINE)
    imports = re.findall(r'^import "(.*)";$', text, re.MULTILINE)

    assert package == [str(path.parent.relative_to(PROTO)).replace("/", ".")]
    assert package[0].endswith(".v1")
    if package == ["muster.v1"]:
        assert [one for one in imports if not one.startswith(("google/", "muster/v1/"))] == []


@pytest.mark.parametrize("path", sorted((PROTO / "muster").rglob("*.proto")), ids=lambda path: path.name)
def test_aip_192_services_methods_and_messages_are_described(path: Path) -> None:
    lines = path.read_text().splitlines()
    bare = [
        line.strip()
        for before, line in itertools.pairwise(lines)
        if re.match(r"(service|  rpc) ", line) and not before.strip().startswith("//")
    ]
    assert bare == []


def _is_choice(field: FieldDescriptor) -> bool:
    """Whether a field is one of a oneof; an optional field is in a oneof of its own, whose name begins with an underscore."""
    return field.containing_oneof is not None and not field.containing_oneof.name.startswith("_")
