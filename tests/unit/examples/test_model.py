"""The model and its data."""

import numpy as np
import pytest

from examples.digits.trainer.data import Digits, Samples, load_digits
from examples.digits.trainer.model import SIZE, accuracy, initial_parameters, loss_and_gradient


@pytest.fixture(scope="module")
def digits() -> Digits:
    return load_digits()


def first(samples: Samples, count: int) -> Samples:
    return Samples(images=samples.images[:count], labels=samples.labels[:count])


def test_every_digit_is_either_trained_on_or_held_out(digits: Digits) -> None:
    assert (len(digits.training.labels), len(digits.test.labels)) == (1437, 360)
    assert set(digits.test.labels.tolist()) == set(range(10))


def test_every_replica_splits_the_data_alike(digits: Digits) -> None:
    again = load_digits()
    assert np.array_equal(again.test.images, digits.test.images)
    assert np.array_equal(again.training.labels, digits.training.labels)


def test_pixels_are_scaled_to_one(digits: Digits) -> None:
    images = digits.training.images
    assert (images.shape[1], images.dtype, float(images.min()), float(images.max())) == (
        64,
        np.float32,
        0.0,
        1.0,
    )


def test_the_gradient_is_the_slope_of_the_loss(digits: Digits) -> None:
    batch = first(digits.training, 8)
    parameters = initial_parameters(seed=3)
    _, gradient = loss_and_gradient(parameters, batch)
    assert (gradient.shape, gradient.dtype) == ((SIZE,), np.float32)
    directions = np.random.default_rng(4).normal(size=(5, SIZE)).astype(np.float32)
    for direction in directions / np.linalg.norm(directions, axis=1, keepdims=True):
        nudge = np.float32(1e-2) * direction
        above, _ = loss_and_gradient(parameters + nudge, batch)
        below, _ = loss_and_gradient(parameters - nudge, batch)
        assert (above - below) / 2e-2 == pytest.approx(float(gradient @ direction), abs=5e-3)


def test_gradient_descent_reduces_the_loss(digits: Digits) -> None:
    parameters = initial_parameters(seed=3)
    before, _ = loss_and_gradient(parameters, digits.training)
    for _ in range(200):
        parameters -= np.float32(0.5) * loss_and_gradient(parameters, digits.training)[1]
    after, _ = loss_and_gradient(parameters, digits.training)
    assert after < before / 4
    assert accuracy(parameters, digits.test) > 0.85
