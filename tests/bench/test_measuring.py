import sys
from pathlib import Path

import msgspec
import pytest

# Tests are imported by path, so sibling modules need this path.
sys.path.insert(0, str(Path(__file__).parent))

from measuring import Measurement, percentile, table


def test_a_rate_keeps_its_budget_from_below_and_a_time_from_above() -> None:
    rate = Measurement(name="rate", value=1000, unit="1/s", budget=1000, better="more")
    time = Measurement(name="time", value=5.1, unit="s", budget=5)
    assert rate.ok is True
    assert time.ok is False


def test_without_a_budget_nothing_is_marked() -> None:
    measurement = Measurement(name="a", value=1.23456, unit="s", note="for people")
    line = msgspec.json.decode(measurement.as_json())
    assert line == {"name": "a", "value": 1.235, "unit": "s", "budget": None, "ok": None}


@pytest.mark.parametrize(("share", "value"), [(0.5, 50), (0.99, 99), (0.991, 100), (1, 100), (0, 1)])
def test_a_percentile_is_a_value_that_so_many_do_not_exceed(share: float, value: float) -> None:
    assert percentile(range(1, 101), share) == value


def test_nothing_has_no_percentile() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_the_table_marks_missed_budgets_and_the_load_of_the_machine() -> None:
    reported = table([Measurement(name="time", value=5.1, unit="s", budget=5, note="the worst of 3")])
    assert reported.splitlines()[1].split() == [
        "time",
        "5.10",
        "s",
        "<=",
        "5",
        "MISSED",
        "the",
        "worst",
        "of",
        "3",
    ]
