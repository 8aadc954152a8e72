"""Classify handwritten digits with softmax regression; the arguments are the parameters."""

# scikit-learn ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import argparse

import numpy as np
from sklearn.datasets import load_digits

TARGET = 0.9

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--rate", type=float, required=True, help="learning rate")
parser.add_argument("--epochs", type=int, required=True, help="passes over the data")
options = parser.parse_args()

images, labels = load_digits(return_X_y=True)
images = images / 16
held_out = slice(360)
weights = np.zeros((images.shape[1], 10))
for _ in range(options.epochs):
    for start in range(360, len(labels), 32):
        batch = slice(start, start + 32)
        scores = np.exp(images[batch] @ weights)
        errors = scores / scores.sum(axis=1, keepdims=True) - np.eye(10)[labels[batch]]
        weights -= options.rate * images[batch].T @ errors

accuracy = float(np.mean((images[held_out] @ weights).argmax(axis=1) == labels[held_out]))
print(f"accuracy {accuracy:.4f} with a rate of {options.rate} after {options.epochs} epochs", flush=True)
raise SystemExit(0 if accuracy >= TARGET else 1)
