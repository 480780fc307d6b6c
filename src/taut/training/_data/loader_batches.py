"""What the loader of a loop that exists says about a plan: its rate and the length of a pass."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader

from taut.training._data.loader_checks import check_replaceable
from taut.training._plan.arguments import sampling_of
from taut.training._plan.best_sampling import BEST
from taut.training._sampling.allocation import RandomAllocation
from taut.training._sampling.fixed_order import FixedOrderSampling
from taut.training._sampling.keyed import KeyedSampling
from taut.training._sampling.sampling import (
    FixedSizeSampling,
    PoissonSampling,
    Sampling,
    positive_rate,
)
from taut.training._sampling.truncated import TruncatedPoissonSampling
from taut.training._tensors.examples import length

__all__ = ["LoaderBatches"]

_FOR_LOOPS = (PoissonSampling, TruncatedPoissonSampling, RandomAllocation, FixedSizeSampling)
_FOR_NOISE = (FixedOrderSampling, KeyedSampling)


@dataclass(frozen=True)
class LoaderBatches:
    """The batches that take the place of those of a loader of torch.

    Attributes:
        examples: the number of examples in the dataset.
        in_pass: the number of batches in one pass.
        share: what a plan is told about the size of a batch, `batch_size` or `rate`.
        sampling: how batches are drawn, to be fitted or chosen by the plan; None for what its
            correlated noise asks for.
    """

    examples: int
    in_pass: int
    share: dict[str, Any]
    sampling: Sampling | str | None

    @classmethod
    def of(
        cls,
        loader: DataLoader[Any],
        *,
        poisson: bool,
        rate: float | None,
        sampling: Sampling | str | None = None,
        correlated: bool = False,
    ) -> LoaderBatches:
        """Return the batches for a loader.

        Args:
            loader: its dataset and its length count; its shuffling does not.
            poisson: sample every example on its own; otherwise draw batches of fixed size.
            sampling: how batches are drawn, or its name; None for what `poisson` says.
            rate: the probability with which an example is sampled; None for one over the length
                of the loader, so that a pass of as many steps sees every example once on average.
            correlated: whether the noise of steps is correlated, which goes with other samplings.

        Raises:
            UnsoundConfiguration: if the loader or its dataset cannot be sampled from.
            ValueError: if the loader is empty, or the rate or the sampling does not fit.
        """
        check_replaceable(loader)
        examples, in_pass = length(loader.dataset), len(loader)
        if in_pass == 0:
            raise ValueError(
                f"data_loader has no batches: batch_size={loader.batch_size} exceeds its "
                f"{examples} examples, and drop_last=True drops them; choose a smaller batch_size"
            )
        kind = _for_noise(poisson, sampling) if correlated else _kind(poisson, sampling)
        if isinstance(kind, FixedSizeSampling):
            _refuse_rate(rate)
            return cls(examples, in_pass, {"batch_size": loader.batch_size}, kind)
        if rate is not None:
            share = positive_rate(rate=rate)
            in_pass = math.ceil(1 / share * (1 - 1e-12))  # a rounded quotient adds no step
            return cls(examples, in_pass, {"rate": share}, kind)
        return cls(examples, in_pass, _one_over_length(loader, examples), kind)

    def of_plan(self) -> dict[str, Any]:
        """Return these batches as arguments of a plan."""
        return {"examples": self.examples, "sampling": self.sampling, **self.share}

    def steps(self, passes: float) -> int:
        """Return the number of steps in some passes, the last of which may be a part."""
        return max(math.ceil(passes * self.in_pass * (1 - 1e-12)), 1)


def _kind(poisson: bool, sampling: Sampling | str | None) -> Sampling | str:
    if sampling is None:
        return PoissonSampling() if poisson else FixedSizeSampling()
    kind = sampling if sampling == BEST else sampling_of(sampling)
    if not poisson and not isinstance(kind, FixedSizeSampling):
        raise ValueError(
            f"poisson_sampling=False means batches of fixed size, got sampling={sampling!r} beside "
            "it; give one of the two"
        )
    if isinstance(kind, _FOR_NOISE):
        raise ValueError(
            f"sampling={kind!r} is for noise that is correlated over steps; give noise='banded' or "
            "another, or sampling='allocation'"
        )
    if kind != BEST and type(kind) not in _FOR_LOOPS:
        raise ValueError(
            f"sampling={kind!r} is not for a loop that exists; use PrivateTrainer, or "
            "sampling='allocation'"
        )
    return kind


def _for_noise(poisson: bool, sampling: Sampling | str | None) -> Sampling | str | None:
    """Return the sampling that goes with correlated noise; whether it does, a plan says."""
    if not poisson:
        raise ValueError(
            "poisson_sampling=False means batches of fixed size, for which correlated noise has no "
            "theorem; leave it out: noise= asks for a fixed order, or for the sampling= of yours"
        )
    return None if sampling is None else sampling if sampling == BEST else sampling_of(sampling)


def _one_over_length(loader: DataLoader[Any], examples: int) -> dict[str, Any]:
    """Return the batch size where it divides the examples, which is the same rate, and exact."""
    if loader.batch_size is not None and loader.batch_size * len(loader) == examples:
        return {"batch_size": loader.batch_size}
    return {"rate": 1 / len(loader)}


def _refuse_rate(rate: float | None) -> None:
    if rate is not None:
        raise ValueError(
            f"batches of fixed size have no rate, got rate={rate!r} with poisson_sampling=False; "
            "leave rate out: batches have the batch_size of data_loader"
        )
