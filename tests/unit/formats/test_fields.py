"""The description of the fields is read off the tables, and the page that shows it is current."""

from pathlib import Path

from muster_formats.fields import FieldRow, Link, field_rows, table_rows
from muster_formats.kinds import Ignored, ListOf, MapOf, Text
from muster_formats.native.kinds import PodTemplate
from muster_formats.pods.keys import TemplateKeys
from muster_formats.registry import all_formats
from muster_formats.table import Effect, Field, Nested, Table

DOCS = Path(__file__).parents[3] / "docs"


class _Leaf(Table):
    name = Field("name", Text(), "A name.")
    gone = Field("gone", Ignored(), "A past.", idle="it is over")


class _Larger(_Leaf):
    more = Field("more", Text(), "More.")


class _Root(Table):
    kept = frozenset({"kind"})
    one = Field("one", Nested(_Leaf), "One.")
    many = Field("many", ListOf(Nested(_Larger)), "Many.")
    named = Field("named", MapOf(None, Nested(_Leaf)), "By name.")
    never = Field("never", Nested(_Leaf), "Never.", refused="it is not for us")


def test_every_field_has_a_row_with_its_path_and_its_effect() -> None:
    rows = [row for row in table_rows(_Root) if isinstance(row, FieldRow)]
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
    assert rows[3] == FieldRow("one.gone", Effect.WARNED, "A past.", "it is over")
    assert rows[-1] == FieldRow("never", Effect.REFUSED, "Never.", "it is not for us")


def test_a_table_that_is_described_apart_is_a_link_and_what_differs() -> None:
    rows = list(table_rows(_Root, apart=[_Leaf]))
    assert [row for row in rows if isinstance(row, Link)] == [
        Link("one", _Leaf),
        Link("many[]", _Leaf),
        Link("named.<name>", _Leaf),
    ]
    within = {row.path for row in rows if isinstance(row, FieldRow) and set(row.path) & set(".[")}
    assert within == {"many[].more"}


def test_a_template_is_described_where_it_stands() -> None:
    class _Holder(Table):
        template = Field("template", PodTemplate(), "A template.")

    paths = {row.path for row in table_rows(_Holder)}
    assert "template.spec.containers[].env[].valueFrom" in paths
    assert Link("template", TemplateKeys) in list(table_rows(_Holder, apart=[TemplateKeys]))


def test_every_format_that_is_taken_describes_its_fields() -> None:
    assert [known.words for known in all_formats() if known.taken and not list(field_rows(known))] == []
