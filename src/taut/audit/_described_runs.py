"""Statements written by hand: a run described by its noise, its batches and its steps."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import log_ndtr

from taut import _validate
from taut.accounting import Adjacency, PrivacyLoss, gaussian
from taut.audit._stated import Stated, claimed_delta, claimed_number
from taut.audit._statement_words import disagreements, epsilons_in_words

__all__ = ["read_described", "shuffled_floor"]

_KEYS = (
    "epsilon",
    "delta",
    "mechanism",
    "noise_multiplier",
    "rate",
    "batch_size",
    "examples",
    "steps",
    "epochs",
    "sampler",
    "adjacency",
    "statement",
)
_USUAL = {
    "poisson": Adjacency.ADD_REMOVE,
    "fixed_size": Adjacency.REPLACE,
    "shuffle": Adjacency.ZERO_OUT,
    "none": Adjacency.ADD_REMOVE,
}
_LEAST_RATE = 1e-18  # an epoch then has as many steps as can be counted
_SLACK = 1e-9  # relative: far above what rounding does to probabilities of the normal distribution


@dataclass(frozen=True)
class _Run:
    """A run of clipped sums with Gaussian noise."""

    sigma: float
    rate: float
    steps: int
    epochs: int
    sizes: tuple[int, int] | None  # batch and examples

    def poisson(self, adjacency: Adjacency) -> PrivacyLoss:
        """Return the loss if every record joins every batch independently."""
        if adjacency is Adjacency.REPLACE:
            return self.steps * self._exchange().poisson(self.rate, removal=gaussian(self.sigma))
        return self.steps * gaussian(self.sigma, adjacency=adjacency).poisson(self.rate)

    def fixed_size(self, adjacency: Adjacency, sensitivity: float = 2.0) -> PrivacyLoss:
        """Return the loss if every batch is a fresh subset of one size."""
        if self.sizes is None:
            raise ValueError("sampler 'fixed_size' needs batch_size and examples, not a rate")
        return self.steps * self._exchange(sensitivity).fixed_size(*self.sizes, adjacency)

    def shuffle(self, adjacency: Adjacency) -> PrivacyLoss:
        """Return the loss if batches are dealt from a shuffled deck, one release per epoch."""
        if adjacency is Adjacency.REPLACE:
            return self.epochs * self._exchange()
        return self.epochs * gaussian(self.sigma, adjacency=adjacency)

    def none(self, adjacency: Adjacency) -> PrivacyLoss:
        """Return the loss if every step looks at all records."""
        if adjacency is Adjacency.REPLACE:
            return self.steps * self._exchange()
        return self.steps * gaussian(self.sigma, adjacency=adjacency)

    def _exchange(self, sensitivity: float = 2.0) -> PrivacyLoss:
        return gaussian(self.sigma, sensitivity=sensitivity, adjacency=Adjacency.REPLACE)

    def others(self, sampler: str, adjacency: Adjacency) -> dict[str, PrivacyLoss]:
        """Return losses of runs that this one is easily taken for."""
        found = {}
        if sampler != "none" and (sampler, adjacency) != ("poisson", Adjacency.ADD_REMOVE):
            usual = self.poisson(Adjacency.ADD_REMOVE)
            found[f"Poisson batches under {Adjacency.ADD_REMOVE}"] = usual
        if sampler == "shuffle" and self.sizes is not None:
            found["fresh batches of fixed size"] = self.fixed_size(Adjacency.REPLACE)
        if sampler == "fixed_size":
            found["a sum that one exchanged record moves by the clipping norm, not by twice it"] = (
                self.fixed_size(adjacency, sensitivity=1.0)
            )
        return found


def read_described(data: Mapping[str, Any]) -> Stated:
    """Return what a statement claims that describes a run of DP-SGD.

    Raises:
        ValueError: for an unknown or missing key, or sizes that do not fit.
    """
    for key in data:
        if key not in _KEYS:
            near = difflib.get_close_matches(key, _KEYS, n=1)
            meant = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(_KEYS)}"
            raise ValueError(f"the statement has the unknown key {key!r}; {meant}")
    mechanism = data.get("mechanism", "dp-sgd")
    if mechanism not in ("dp-sgd", "gaussian"):
        raise ValueError(f"mechanism must be 'dp-sgd' or 'gaussian', got mechanism={mechanism!r}")
    sampler = data.get("sampler", "none" if mechanism == "gaussian" else None)
    if sampler is None:
        raise ValueError(f"the statement needs 'sampler', one of {', '.join(_USUAL)}")
    if not isinstance(sampler, str) or sampler not in _USUAL:
        raise ValueError(f"sampler must be one of {', '.join(_USUAL)}, got sampler={sampler!r}")
    adjacency = Adjacency(_relation(data.get("adjacency", _USUAL[sampler])))
    run = _run(data, sampler)
    epsilon, delta = claimed_number(data, "epsilon"), claimed_delta(data)
    words = str(data.get("statement", ""))
    numbers: dict[str, float | str] = {
        "epsilon": epsilon,
        "delta": delta,
        "sampler": sampler,
        "adjacency": str(adjacency),
    }
    doubts: tuple[str, ...] = ()
    if sampler == "shuffle" and adjacency is Adjacency.ADD_REMOVE:
        doubts = (
            "no theorem covers add_remove adjacency with shuffled batches, whose borders move when "
            "a record is added; state the claim for zero_out or replace",
        )
    return Stated(
        epsilon=min([epsilon, *epsilons_in_words(words)]),
        delta=delta,
        loss=getattr(run, sampler)(adjacency),
        sampler=sampler,
        floor=_floor(run, adjacency, delta) if sampler == "shuffle" else None,
        contradictions=tuple(disagreements(words, numbers)),
        doubts=doubts,
        others=run.others(sampler, adjacency),
    )


def shuffled_floor(sigma: float, batches: int, shift: float, delta: float) -> float:
    """Return a lower bound on epsilon at `delta` of one epoch of shuffled batches.

    Args:
        sigma: noise multiplier.
        batches: of the epoch, all of one size, so that every record is in exactly one.
        shift: 1 under zero-out, where the other one of two neighbours still has a record of zeros,
            and 2 under replace-one.
        delta: in [0, 1).

    **Guarantee**: if all other records have gradient -1 and the one in question 1, batches sum up
    to a shift by 2 in a random place; with its neighbour, to a shift by 2 - `shift`. The
    event that some batch lies above a threshold then tells the two apart (Chua, Ghazi, Kamath,
    Kumar, Manurangsi, Sinha and Zhang 2024, section 4), and epsilon is no less than
    log((P - delta) / Q) of any event.
    """
    thresholds = np.linspace(0.0, 2.0 + 12.0 * sigma, 4_001)
    others = (batches - 1) * log_ndtr(thresholds / sigma)
    with_record = -np.expm1(log_ndtr((thresholds - 2.0) / sigma) + others)
    without = -np.expm1(log_ndtr((thresholds - 2.0 + shift) / sigma) + others)
    excess = with_record * (1 - _SLACK) - delta
    usable = (excess > 0) & (without > 0)
    if not usable.any():
        return 0.0
    best = np.log(excess[usable] / (without[usable] * (1 + _SLACK))).max()
    return max(float(best), 0.0)


def _floor(run: _Run, adjacency: Adjacency, delta: float) -> float:
    """Return a lower bound on the true epsilon of shuffled epochs: that of one epoch."""
    shifts = {Adjacency.ZERO_OUT: 1.0, Adjacency.REPLACE: 2.0}
    batches = round(1 / run.rate)
    if adjacency not in shifts or not math.isclose(batches * run.rate, 1.0, rel_tol=1e-9):
        return 0.0  # a last batch that is smaller, or left out, is another mechanism
    return shuffled_floor(run.sigma, batches, shifts[adjacency], delta)


def _run(data: Mapping[str, Any], sampler: str) -> _Run:
    if "noise_multiplier" not in data:
        raise ValueError("the statement needs 'noise_multiplier': noise over the clipping norm")
    sigma = _validate.positive(noise_multiplier=data["noise_multiplier"])
    rate, sizes = _batches(data, sampler)
    per_epoch = max(math.floor(1 / rate * (1 + 1e-12)), 1)
    if ("steps" in data) == ("epochs" in data):
        raise ValueError("the statement needs either 'steps' or 'epochs'")
    if "steps" in data:
        steps = _validate.positive_integer(steps=data["steps"])
        return _Run(sigma, rate, steps, -(-steps // per_epoch), sizes)
    epochs = _validate.positive(epochs=data["epochs"])
    steps = max(math.ceil(epochs / rate * (1 - 1e-12)), 1)
    return _Run(sigma, rate, steps, math.ceil(epochs), sizes)


def _batches(data: Mapping[str, Any], sampler: str) -> tuple[float, tuple[int, int] | None]:
    given = {key for key in ("rate", "batch_size", "examples") if key in data}
    if sampler == "none":
        if given - {"examples"}:
            raise ValueError("sampler 'none' looks at all records: leave out rate and batch_size")
        return 1.0, None
    if "rate" in given and "batch_size" not in given:
        rate = _validate.probability(rate=data["rate"])
        if rate < _LEAST_RATE:
            raise ValueError(f"rate must be greater than 0, at least {_LEAST_RATE}, got {rate=!r}")
        return rate, None
    if given != {"batch_size", "examples"}:
        raise ValueError("the statement needs either 'rate', or 'batch_size' and 'examples'")
    size = _validate.positive_integer(batch_size=data["batch_size"])
    examples = _validate.positive_integer(examples=data["examples"])
    if size > examples:
        raise ValueError(f"batch_size must be at most examples={examples}, got batch_size={size}")
    return size / examples, (size, examples)


def _relation(value: object) -> Adjacency:
    try:
        relation = Adjacency(str(value))
    except ValueError:
        relation = None
    if relation not in (Adjacency.ADD_REMOVE, Adjacency.REPLACE, Adjacency.ZERO_OUT):
        raise ValueError(
            f"adjacency must be one of add_remove, replace, zero_out, got adjacency={value!r}"
        )
    return relation
