"""What a bug of the zoo is: a program that breaks its promise, and the same program mended."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from taut.accounting import PrivacyLoss
from taut.audit import recorded

DRAW = np.random.default_rng()


@dataclass(frozen=True)
class Bug:
    """A program that leaks, what a replay says about it, and the program that does not leak.

    The title and the source are those of the table in docs/audit.md.
    """

    title: str
    source: str
    broken: Callable[[Any], Any]
    mended: Callable[[Any], Any]
    data: Any
    neighbour: Any
    finding: str
    claim: PrivacyLoss | None = None

    def __repr__(self):
        return self.title.replace(" ", "-")


def _laplace(value, sensitivity, epsilon):
    scale = sensitivity / epsilon
    return value + (DRAW.laplace(0.0, scale, np.shape(value)) if scale > 0 else 0.0)


def _gaussian(value, sensitivity, multiplier):
    return value + DRAW.normal(0.0, sensitivity * multiplier, np.shape(value))


laplace = recorded(
    _laplace,
    kind="laplace",
    sensitivity=lambda _, sensitivity, __: sensitivity,
    scale=lambda _, sensitivity, epsilon: sensitivity / epsilon,
)
"""Laplace noise as libraries have it: value, sensitivity in l1, epsilon."""

gaussian = recorded(
    _gaussian,
    kind="gaussian",
    sensitivity=lambda _, sensitivity, __: sensitivity,
    scale=lambda _, sensitivity, multiplier: sensitivity * multiplier,
)
"""Gaussian noise as libraries have it: value, sensitivity in l2, noise multiplier."""


def clipped(rows, norm):
    """Return rows of at most a length."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows * np.minimum(1.0, norm / np.maximum(lengths, 1e-12))


def with_last(rows, last):
    """Return rows with another one at the end, and the same without: neighbours."""
    rows = np.asarray(rows, dtype=float)
    return np.concatenate([rows, np.asarray(last, dtype=float)[None]]), rows
