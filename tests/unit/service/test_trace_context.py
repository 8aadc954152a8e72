import pytest

from muster_service.trace_context import SpanRef, extract, inject, span_ref, trace_ref

REF = SpanRef(trace_id="0af7651916cd43dd8448eb211c80319c", span_id="b7ad6b7169203331")


def test_a_reference_survives_its_written_form():
    assert REF.traceparent == "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert SpanRef.parse(REF.traceparent) == REF


def test_not_being_sampled_is_part_of_it():
    assert not SpanRef.parse(REF.traceparent[:-2] + "00").sampled


def test_unknown_fields_of_a_later_version_are_ignored():
    assert SpanRef.parse("01" + REF.traceparent[2:] + "-more") == REF


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
    ],
)
def test_what_is_not_a_traceparent_is_refused(text: str):
    with pytest.raises(ValueError):
        SpanRef.parse(text)
    assert extract({"traceparent": text}) is None


def test_headers_carry_it_whatever_their_case():
    assert extract(inject(REF)) == REF
    assert extract({"Traceparent": REF.traceparent}) == REF
    assert extract({"other": "x"}) is None


def test_derived_ids_are_the_same_everywhere_and_for_ever():
    root = trace_ref("job/7")

    assert root.traceparent == trace_ref("job/7").traceparent
    assert root.traceparent == "00-247982308750aff842c4cf9334e1debe-6dae73b8d815653c-01"
    assert span_ref(root, "running/0").span_id == "1f44d0824ce709ce"


def test_different_keys_and_traces_give_different_ids():
    one, two = trace_ref("job/1"), trace_ref("job/2")

    assert one.trace_id != two.trace_id
    assert len({span_ref(trace, key).span_id for trace in (one, two) for key in ("a", "b")}) == 4
    assert span_ref(one, "a").trace_id == one.trace_id
