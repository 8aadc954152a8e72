"""The speed-up model (Amdahl's law): its default, and its fit to measured sizes."""

from __future__ import annotations

from fractions import Fraction

import pytest

from muster_core.lifecycle import SpeedUp, speed_up_of
from muster_core.models import Throughput

SECOND = 1_000_000


def _measured(**rates: int) -> list[Throughput]:
    """Rates in steps a minute, by size: ``n2=100``."""
    return [
        Throughput(workers=int(name.removeprefix("n")), steps=rate, micros=60 * SECOND)
        for name, rate in rates.items()
    ]


def test_without_measurements_the_serial_fraction_is_0_14() -> None:
    speed_up = speed_up_of([])
    assert speed_up.serial == Fraction(14, 100)
    assert [round(float(speed_up.at(n)), 3) for n in (0, 1, 2, 4, 8)] == [0, 1, 1.754, 2.817, 4.04]


def test_two_sizes_identify_the_serial_fraction() -> None:
    n, s = 4, Fraction(5, 2)
    speed_up = speed_up_of(_measured(n1=100, n4=250))
    assert speed_up.serial == (n / s - 1) / (n - 1) == Fraction(1, 5)
    assert speed_up.at(4) == s
    assert speed_up.milli_rate == round(1000 * Fraction(100, 60))


def test_any_two_sizes_identify_the_serial_fraction() -> None:
    truth = SpeedUp(serial=Fraction(1, 4))
    rates = {n: int(truth.at(n) * 70_000) for n in (3, 7)}
    assert speed_up_of(_measured(n3=rates[3], n7=rates[7])).serial == Fraction(1, 4)


def test_more_sizes_average_the_noise() -> None:
    truth = SpeedUp(serial=Fraction(1, 10))
    noise = {1: 1010, 2: 990, 4: 1005, 8: 995}
    rates = {f"n{n}": int(truth.at(n) * 100 * milli) for n, milli in noise.items()}
    fitted = speed_up_of(_measured(**rates))
    assert abs(fitted.serial - truth.serial) < Fraction(1, 100)
    assert fitted.sizes == 4


def test_one_size_identifies_the_rate_only() -> None:
    speed_up = speed_up_of(_measured(n2=1754))
    assert (speed_up.serial, speed_up.sizes) == (Fraction(14, 100), 1)
    assert speed_up.milli_rate == round(Fraction(1754 * 1000, 60) / SpeedUp().at(2))


@pytest.mark.parametrize(
    ("rates", "serial"),
    [({"n1": 100, "n4": 800}, 0), ({"n1": 100, "n4": 100}, 1), ({"n1": 100, "n4": 10}, 1)],
    ids=["better than linear", "no faster", "slower"],
)
def test_the_serial_fraction_is_between_0_and_1(rates: dict[str, int], serial: int) -> None:
    assert speed_up_of(_measured(**rates)).serial == serial


def test_a_measurement_without_steps_is_ignored() -> None:
    assert speed_up_of([Throughput(workers=1, steps=0, micros=SECOND)]) == SpeedUp()


def test_gains_fall_with_the_size() -> None:
    gains = [SpeedUp().gain(n) for n in range(1, 9)]
    assert gains == sorted(gains, reverse=True)
    assert [n for n, gain in enumerate(gains, 1) if gain >= Fraction(1, 4)] == [1, 2, 3, 4, 5, 6]
