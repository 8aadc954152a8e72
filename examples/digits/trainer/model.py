"""A perceptron with one hidden layer, as functions of one flat vector.

The parameters are flat because workers send them over the network and the server adds gradients to them; only this module
knows the layers.
"""

import numpy as np
from numpy.typing import NDArray

from .data import Samples

INPUTS = 64
HIDDEN = 32
CLASSES = 10

_SPLITS = np.cumsum([INPUTS * HIDDEN, HIDDEN, HIDDEN * CLASSES])
SIZE = int(_SPLITS[-1]) + CLASSES
"""The number of parameters."""

Vector = NDArray[np.float32]


def initial_parameters(*, seed: int) -> Vector:
    """Return initial parameters: float32 of shape (SIZE,), weights scaled for rectified units, biases zero."""
    random = np.random.default_rng(seed)
    layers = (
        random.normal(0.0, np.sqrt(2.0 / INPUTS), INPUTS * HIDDEN),
        np.zeros(HIDDEN),
        random.normal(0.0, np.sqrt(2.0 / HIDDEN), HIDDEN * CLASSES),
        np.zeros(CLASSES),
    )
    return np.concatenate(layers).astype(np.float32)


def loss_and_gradient(parameters: Vector, batch: Samples) -> tuple[float, Vector]:
    """Return the mean cross-entropy of the batch in nats, and its gradient with the shape of ``parameters``."""
    _, _, weights_out, _ = _layers(parameters)
    hidden, logits = _forward(parameters, batch.images)
    count = len(batch.labels)
    rows = np.arange(count)
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_sums: Vector = np.log(np.exp(shifted).sum(axis=1))
    loss = float((log_sums - shifted[rows, batch.labels]).mean())

    at_logits = np.exp(shifted - log_sums[:, None])
    at_logits[rows, batch.labels] -= 1.0
    at_logits /= count
    at_hidden = (at_logits @ weights_out.T) * (hidden > 0)
    gradient = np.concatenate(
        (
            (batch.images.T @ at_hidden).ravel(),
            at_hidden.sum(axis=0),
            (hidden.T @ at_logits).ravel(),
            at_logits.sum(axis=0),
        )
    )
    return loss, gradient


def accuracy(parameters: Vector, samples: Samples) -> float:
    """Return the share of correctly classified samples, 0 to 1."""
    _, logits = _forward(parameters, samples.images)
    return float((logits.argmax(axis=1) == samples.labels).mean())


def _layers(parameters: Vector) -> tuple[Vector, Vector, Vector, Vector]:
    weights_in, bias_in, weights_out, bias_out = np.split(parameters, _SPLITS)
    return weights_in.reshape(INPUTS, HIDDEN), bias_in, weights_out.reshape(HIDDEN, CLASSES), bias_out


def _forward(parameters: Vector, images: Vector) -> tuple[Vector, Vector]:
    weights_in, bias_in, weights_out, bias_out = _layers(parameters)
    hidden: Vector = np.maximum(images @ weights_in + bias_in, np.float32(0))
    return hidden, hidden @ weights_out + bias_out
