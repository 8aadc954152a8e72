"""Kubernetes quantities and durations as exact integers."""

import math

import pytest

from muster_core.quantities import (
    MAX_AMOUNT,
    QuantityError,
    format_bytes,
    format_cpu,
    format_duration,
    format_gpu,
    parse_bytes,
    parse_cpu,
    parse_duration,
    parse_gpu,
    parse_quantity,
)


@pytest.mark.parametrize(
    ("text", "milli"),
    [
        ("500m", 500),
        (0.5, 500),
        (2, 2000),
        ("2", 2000),
        ("0.1", 100),
        (0.1, 100),
        ("1e3", 1_000_000),
        ("1500u", 2),
        ("1n", 1),
    ],
)
def test_cpu_is_read_in_thousandths_rounded_up(text: object, milli: int) -> None:
    assert parse_cpu(text) == milli


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0), ("1", 1), ("+1", 1), ("1.", 1), (".5", 1), ("1k", 1000), ("1M", 10**6), ("1G", 10**9), ("1T", 10**12), ("1P", 10**15),
        ("1E", 10**18), ("1Ki", 1024), ("256Mi", 268_435_456), ("1Gi", 2**30), ("1Ti", 2**40), ("1Pi", 2**50), ("7Ei", 7 * 2**60),
        ("1.5Gi", 1_610_612_736), ("12e6", 12_000_000), ("12E6", 12_000_000), ("1e-3", 1), ("100m", 1), (1e3, 1000),
        (3_189_243_904, 3_189_243_904), ("9223372036854775807", MAX_AMOUNT),
    ],
)  # fmt: skip
def test_bytes_are_read_with_every_suffix(text: object, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize(
    "text",
    [
        "", " 1", "1 ", "256Mb", "1mi", "1K", "1ki", "1e", "1ee3", "0x10", "1_000", "--1", "-1", -1, -0.5, "1.2.3", "one", "٣", "1Mi ",
        math.nan, math.inf, -math.inf, "nan", "inf", True, False, None, [], {}, "9223372036854775808", 2**63, "8Ei", "1e19", "1e999999999",
        "1e-999999999", "9" * 65,
    ],
)  # fmt: skip
def test_an_invalid_amount_is_rejected(text: object) -> None:
    with pytest.raises(QuantityError):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "milli"), [(1, 1000), ("0.5", 500), ("500m", 500), ("8", 8000), (0, 0), ("0.3333", 334)]
)
def test_gpus_are_whole_or_a_share_of_one(text: object, milli: int) -> None:
    assert parse_gpu(text) == milli


def test_more_than_one_gpu_is_never_a_fraction() -> None:
    with pytest.raises(QuantityError, match="whole GPUs"):
        parse_gpu("1.5")


def test_a_float_is_read_as_its_decimal_digits() -> None:
    assert parse_quantity(0.3, 10) == 3
    assert parse_quantity(1.1, 1000) == 1100


@pytest.mark.parametrize("milli", [0, 1, 500, 1000, 1500, 2000, MAX_AMOUNT])
def test_a_written_amount_is_read_back(milli: int) -> None:
    assert parse_bytes(format_bytes(milli)) == milli
    assert parse_cpu(format_cpu(milli)) == milli
    assert parse_quantity(format_gpu(milli), 1000) == milli


def test_amounts_are_written_in_their_shortest_form() -> None:
    assert [format_cpu(500), format_cpu(2000), format_bytes(268_435_456), format_bytes(1000)] == [
        "500m",
        "2",
        "256Mi",
        "1000",
    ]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (0, 0),
        (90, 90),
        ("30s", 30),
        ("5m", 300),
        ("1h30m", 5400),
        ("2d", 172_800),
        ("1d2h3m4s", 93_784),
        ("0s", 0),
    ],
)
def test_durations_are_seconds(text: object, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "5", "1.5h", "500ms", "5 m", "1m1h", "-1s", -1, 1.0, True, None, 2**31, "99999999d", "9" * 70 + "s"],
)
def test_an_invalid_duration_is_rejected(text: object) -> None:
    with pytest.raises(QuantityError):
        parse_duration(text)


@pytest.mark.parametrize("seconds", [0, 1, 59, 60, 3600, 5400, 86_400, 93_784])
def test_a_written_duration_is_read_back(seconds: int) -> None:
    assert parse_duration(format_duration(seconds)) == seconds
