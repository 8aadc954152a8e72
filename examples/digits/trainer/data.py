"""The handwritten digits that scikit-learn ships, read without importing scikit-learn.

Importing ``sklearn.datasets`` costs more than a second of CPU in every replica; reading the file inside the package takes
milliseconds.
"""

import gzip
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

TEST_SHARE = 5
"""One in this many samples is held out for the test."""

_BRIGHTEST = 16.0
_SPLIT_SEED = 20210


class DataError(RuntimeError):
    """The data set is not installed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Samples:
    """``images``: float32 of shape (n, 64), pixels from 0 to 1; ``labels``: int64 of shape (n,), 0 to 9."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Digits:
    """The data set, with the same split in every replica."""

    training: Samples
    test: Samples


def load_digits() -> Digits:
    """Read all 1,797 digits and hold one in ``TEST_SHARE`` out for the test.

    Raises:
        DataError: if scikit-learn, which ships the file, is not installed.
    """
    with gzip.open(_find_file(), "rt", encoding="ascii") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    table = np.random.default_rng(_SPLIT_SEED).permutation(table)
    held_out = np.arange(len(table)) % TEST_SHARE == 0
    return Digits(training=_samples(table[~held_out]), test=_samples(table[held_out]))


def _samples(table: NDArray[np.float32]) -> Samples:
    return Samples(
        images=np.ascontiguousarray(table[:, :-1] / _BRIGHTEST), labels=table[:, -1].astype(np.int64)
    )


def _find_file() -> Path:
    package = importlib.util.find_spec("sklearn")
    for folder in (package.submodule_search_locations or ()) if package else ():
        path = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if path.is_file():
            return path
    raise DataError("the digits data set was not found: install scikit-learn, which ships it")
