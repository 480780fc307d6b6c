"""Statements written by hand: a run described by its noise, its batches and its steps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import log_ndtr

from taut._base import validate
from taut.accounting import Adjacency, GaussianRun, PrivacyLoss, Sampler
from taut.audit._statements.keys import free_words, nearest
from taut.audit._statements.stated_claim import (
    Stated,
    beside_bounds,
    claimed_delta,
    claimed_lower,
    claimed_number,
)

__all__ = ["read_described", "shuffled_floor"]

_KEYS = (
    "epsilon",
    "delta",
    "mechanism",
    "noise_multiplier",
    "rate",
    "batch_size",
    "examples",
    "cap",
    "steps",
    "epochs",
    "sampler",
    "adjacency",
    "statement",
)
_SIZES = ("rate", "batch_size", "examples", "cap", "steps", "epochs")
_ALIASES = {"sigma": "noise_multiplier", "population": "examples", "sampling": "sampler"}
_SLACK = 1e-9  # relative: far above what rounding does to probabilities of the normal distribution


def read_described(data: Mapping[str, Any]) -> Stated:
    """Return what a statement claims that describes a run of DP-SGD.

    Raises:
        ValueError: for an unknown or missing key, or sizes that do not fit.
    """
    data = _one_vocabulary(data)
    mechanism = data.get("mechanism", "dp-sgd")
    if mechanism not in ("dp-sgd", "gaussian"):
        raise ValueError(f"mechanism must be 'dp-sgd' or 'gaussian', got mechanism={mechanism!r}")
    named = data.get("sampler", Sampler.NONE if mechanism == "gaussian" else None)
    if named is None:
        raise ValueError(f"the statement needs 'sampler', one of {', '.join(Sampler)}")
    sampler = Sampler(named)
    adjacency = _relation(data.get("adjacency", sampler.usual_adjacency))
    if "noise_multiplier" not in data:
        raise ValueError("the statement needs 'noise_multiplier': noise over the clipping norm")
    sigma = validate.positive(noise_multiplier=data["noise_multiplier"])
    run = GaussianRun.of(sampler, **{key: data[key] for key in _SIZES if key in data})
    if not run.rate > 0:
        raise ValueError("rate must be greater than 0: no step would see data; got rate=0")
    if run.steps < 1:
        raise ValueError(f"steps must be at least 1, got steps={run.steps}")
    delta = claimed_delta(data)
    return Stated(
        epsilon=claimed_number(data, "epsilon"),
        delta=delta,
        lower=claimed_lower(data),
        loss=run.loss(sigma, adjacency),
        sampler=sampler.value,
        records=validate.positive_integer(examples=data["examples"])
        if "examples" in data
        else None,
        floor=_floor(run, sigma, adjacency, delta) if sampler is Sampler.SHUFFLE else None,
        doubts=(*_without_theorem(sampler, adjacency), *beside_bounds(data), *free_words(data)),
        others=_others(run, sigma, adjacency),
    )


def _one_vocabulary(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the statement with one name for each thing; refuse what has none, or two."""
    found: dict[str, Any] = {}
    for key, value in data.items():
        name = _ALIASES.get(key, key)
        if name not in _KEYS:
            near = nearest(key, (*_KEYS, *_ALIASES))
            meant = f"did you mean {near!r}?" if near else f"known are {', '.join(_KEYS)}"
            raise ValueError(f"the statement has the unknown key {key!r}; {meant}")
        if name in found:
            raise ValueError(f"the statement has {name!r} twice, once as {key!r}; leave one out")
        if value is None and name in _SIZES:
            raise ValueError(f"the statement has {key!r} without a value; leave it out")
        found[name] = value
    return found


def _without_theorem(sampler: Sampler, adjacency: Adjacency) -> tuple[str, ...]:
    if sampler is not Sampler.SHUFFLE or adjacency is not Adjacency.ADD_REMOVE:
        return ()
    return (
        "no theorem covers add_remove adjacency with shuffled batches, whose borders move when "
        "a record is added; state the claim for zero_out or replace",
    )


def _others(run: GaussianRun, sigma: float, adjacency: Adjacency) -> dict[str, PrivacyLoss]:
    """Return losses of runs that this one is easily taken for."""
    found = {}
    sampler, usual = run.sampler, Adjacency.ADD_REMOVE
    if sampler is not Sampler.NONE and (sampler, adjacency) != (Sampler.POISSON, usual):
        poisson = replace(run, sampler=Sampler.POISSON)
        found[f"Poisson batches under {usual}"] = poisson.loss(sigma, usual)
    if sampler is Sampler.SHUFFLE and run.sizes is not None:
        fresh = replace(run, sampler=Sampler.FIXED_SIZE)
        found["fresh batches of fixed size"] = fresh.loss(sigma)
    if sampler is Sampler.FIXED_SIZE:
        found["a sum that one exchanged record moves by the clipping norm, not by twice it"] = (
            run.loss(sigma, adjacency, exchange=1.0)
        )
    return found


def shuffled_floor(sigma: float, batches: int, shift: float, delta: float) -> float:
    """Return a lower bound on epsilon at `delta` of one epoch of shuffled batches.

    Args:
        sigma: noise multiplier.
        batches: number of batches of the epoch, all of one size, so that every record is in exactly
            one.
        shift: 1 under zero-out, where the other one of two neighbours still has a record of zeros,
            and 2 under replace-one.
        delta: probability delta of the guarantee, in [0, 1).

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


def _floor(run: GaussianRun, sigma: float, adjacency: Adjacency, delta: float) -> float:
    """Return a lower bound on the true epsilon of shuffled epochs: that of one epoch."""
    shifts = {Adjacency.ZERO_OUT: 1.0, Adjacency.REPLACE: 2.0}
    batches = round(1 / run.rate)
    if adjacency not in shifts or not math.isclose(batches * run.rate, 1.0, rel_tol=1e-9):
        return 0.0  # a last batch that is smaller, or left out, is another mechanism
    if run.steps < batches:
        return 0.0  # the record may be in none of them
    return shuffled_floor(sigma, batches, shifts[adjacency], delta)


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
