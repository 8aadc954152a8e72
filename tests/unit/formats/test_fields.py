"""Tables of fields: what a section reports of ignored and rejected fields, and the descriptions of every format's fields."""

import pytest

from muster_core.models import Severity
from muster_core.models.problem_codes import Code
from muster_formats.cursor import Cursor
from muster_formats.field_types import AnyValue, ListOf, MapOf, String
from muster_formats.fields import (
    FieldRow,
    UnknownFieldError,
    describe_field,
    described_formats,
    field_rows,
    table_rows,
)
from muster_formats.pods import PodTemplate
from muster_formats.problems import Problems
from muster_formats.registry import all_formats
from muster_formats.schema import Effect, Field, Nested, Section, Table
from muster_formats.source import read_source


class _Fields(Table):
    used = Field("used", String())
    ignored = Field("ignored", AnyValue(), ignored="nothing reads it")
    rejected = Field("rejected", AnyValue(), rejected="it belongs elsewhere", fix="write it there")
    without_fix = Field("withoutFix", AnyValue(), rejected="it does not exist")
    partly = Field("partly", String(), partly="only short values")
    kubernetes = Field("kubernetes", AnyValue(), kubernetes=True)


class _Leaf(Table):
    name = Field("name", String(), "A name.")
    gone = Field("gone", AnyValue(), "A past.", ignored="it is over")


class _Larger(_Leaf):
    more = Field("more", String(), "More.")


class _Root(Table):
    unread = frozenset({"kind"})
    one = Field("one", Nested(_Leaf), "One.")
    many = Field("many", ListOf(Nested(_Larger)), "Many.")
    named = Field("named", MapOf(None, Nested(_Leaf)), "By name.")
    never = Field("never", Nested(_Leaf), "Never.", rejected="it is unsupported")


def problems_of(text: str) -> Problems:
    problems = Problems()
    source = read_source(text, problems)
    Section(Cursor(source.parts[0], "", problems), _Fields)
    return problems


def test_supported_and_null_fields_are_not_reported() -> None:
    text = "{used: yes please, ignored: null, rejected: null, kubernetes: 1, partly: all of it}"
    assert problems_of(text).items == []


def test_an_ignored_field_is_a_warning_with_its_reason_and_location() -> None:
    (problem,) = problems_of("used: a\nignored: 3\n").items
    assert (problem.code, problem.severity) == (Code.IGNORED, Severity.WARNING)
    assert (problem.path, problem.line) == ("ignored", 2)
    assert problem.message == "ignored has no effect: nothing reads it"


def test_a_rejected_field_is_an_error_with_its_reason_and_fix() -> None:
    (problem,) = problems_of("rejected: {a: 1}").items
    assert (problem.code, problem.severity) == (Code.UNSUPPORTED, Severity.ERROR)
    assert (problem.message, problem.fix) == (
        "rejected is not supported: it belongs elsewhere",
        "write it there",
    )


def test_a_rejected_field_without_a_fix_has_none() -> None:
    (problem,) = problems_of("withoutFix: 1").items
    assert (problem.code, problem.fix) == (Code.UNSUPPORTED, "")


def test_a_rejected_field_is_not_suggested_for_a_misspelt_one() -> None:
    (problem,) = problems_of("rejectd: 1").items
    assert problem.code == Code.UNKNOWN_FIELD
    assert "rejected" not in problem.fix
    assert problem.allowed == "ignored, kubernetes, partly, used"


def test_each_field_has_its_effect() -> None:
    assert [field.effect for field in _Fields.fields().values()] == [
        Effect.SUPPORTED,
        Effect.IGNORED,
        Effect.REJECTED,
        Effect.REJECTED,
        Effect.PARTLY,
        Effect.KUBERNETES,
    ]


def test_a_table_has_a_row_for_every_field_within_it() -> None:
    rows = list(table_rows(_Root))
    assert [row.path for row in rows] == [
        "kind",
        "one",
        "one.name",
        "one.gone",
        "many",
        "many[].name",
        "many[].gone",
        "many[].more",
        "named",
        "named.<name>.name",
        "named.<name>.gone",
        "never",
    ]
    assert rows[3] == FieldRow("one.gone", Effect.IGNORED, "A past.", "it is over", "any")
    assert rows[-1] == FieldRow("never", Effect.REJECTED, "Never.", "it is unsupported", "object")


def test_the_rows_of_a_pod_template_are_below_its_field() -> None:
    class _Holder(Table):
        template = Field("template", PodTemplate(), "A template.")

    assert "template.spec.containers[].env[].valueFrom" in {row.path for row in table_rows(_Holder)}


def test_every_supported_format_describes_its_fields() -> None:
    supported = [one for one in all_formats() if one.supported]
    assert [one.title for one in supported if not list(field_rows(one))] == []


@pytest.mark.parametrize("name", described_formats())
def test_every_document_has_described_fields(name: str) -> None:
    described = describe_field(name)
    assert (described.field.path, described.field.type) == ("", "object")
    assert described.fields


def test_the_formats_are_named_by_kind_and_version() -> None:
    assert {
        "native",
        "tfjob",
        "mpijob",
        "mpijob/v2beta1",
        "polyaxon-0/experiment",
        "polyaxon-1/operation",
        "arena/tfjob",
        "queue",
        "defaults",
    } <= set(described_formats())


@pytest.mark.parametrize(
    ("name", "path", "expected"),
    [
        ("tfjob", "spec.max-instances", ("integer", "Most workers (DRAGON).")),
        ("TFJob", "spec.tfReplicaSpecs.Worker.replicas", ("integer", "Number of replicas; 1 by default.")),
        ("queue", "spec.guaranteed.example.com/fpga", ("quantity", "Any key that is a resource name.")),
        ("arena/tfjob", "--gpus", ("integer", "GPUs of each worker, chief and evaluator; default 0.")),
    ],
)
def test_a_path_leads_to_its_field(name: str, path: str, expected: tuple[str, str]) -> None:
    described = describe_field(name, path)
    assert (described.field.path, described.field.effect) == (path, Effect.SUPPORTED)
    assert (described.field.type, described.field.doc) == expected
    assert described.fields == ()


def test_a_path_may_have_indices_and_template_fields() -> None:
    path = "spec.tfReplicaSpecs.PS.template.spec.containers[0].resources"
    described = describe_field("tfjob", path)
    assert [row.path.rsplit(".", 1)[-1] for row in described.fields] == ["requests", "limits", "claims"]
    assert described.fields[-1].effect is Effect.REJECTED


def test_a_partly_supported_field_lists_its_unsupported_values() -> None:
    field = describe_field("mpijob/v2beta1", "spec.runLauncherAsWorker").field
    assert field.effect is Effect.PARTLY
    assert field.why == "true is an error"


def test_only_one_level_is_described_unless_recursive() -> None:
    flat = {row.path for row in describe_field("native", "spec.placement").fields}
    assert flat == {f"spec.placement.{key}" for key in ("strategy", "topology", "required", "gpuTopology")}
    assert "spec.elastic.step" in {
        row.path for row in describe_field("native", "spec", recursive=True).fields
    }
    assert "spec.elastic.step" not in {row.path for row in describe_field("native", "spec").fields}


def test_the_fields_of_a_run_are_those_of_all_its_kinds_or_of_one() -> None:
    described = describe_field("polyaxon-1/component", "run(tfjob).worker")
    assert (described.field.path, described.field.type) == ("run.worker", "object")
    assert describe_field("polyaxon-1/component", "run.container").field.type == "object"


@pytest.mark.parametrize(
    ("name", "path", "nearest", "message"),
    [
        ("tfjop", "", "tfjob", "there is no format tfjop"),
        ("tfjob", "spec.tfReplicaSpec", "tfReplicaSpecs", "spec has no field tfReplicaSpec"),
        ("tfjob", "spec.tfReplicaSpecs.Worker.replica", "replicas", "spec.tfReplicaSpecs.Worker has no field replica"),
        ("tfjob", "metadta", "metadata", "the document has no field metadta"),
        ("tfjob", "spec.max-instances.low", "", "spec.max-instances has no field low"),
        ("polyaxon-1/component", "run(tfjobb)", "tfjob", "run has no kind tfjobb"),
    ],
)  # fmt: skip
def test_a_misspelt_name_is_an_error_with_the_nearest_one(
    name: str, path: str, nearest: str, message: str
) -> None:
    with pytest.raises(UnknownFieldError) as raised:
        describe_field(name, path)
    assert raised.value.nearest == nearest
    assert str(raised.value).startswith(message)
