"""PrivacyLoss: what a sum of releases costs, as a value that adds up."""

from __future__ import annotations

import cmath
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from taut._base import validate
from taut._base.floats import RELATIVE_ERROR, UP
from taut.accounting import _serialize
from taut.accounting._adjacency import Adjacency, Half, halves
from taut.accounting._answers.answer import delta_bounds, epsilon_bounds
from taut.accounting._answers.explain import Explanation, explain
from taut.accounting._answers.gaussian_fit import GaussianFit, fit_gaussian
from taut.accounting._answers.questions import (
    cumulant_of_sum,
    estimate_delta,
    estimate_epsilon,
    renyi_divergence,
    tradeoff,
)
from taut.accounting._engines.bounds import Bounds
from taut.accounting._releases.allocated import Allocated
from taut.accounting._releases.release import Release
from taut.accounting._releases.renyi_only import RenyiOnly
from taut.accounting._releases.sampled import FixedSize, Poisson, PoissonReplace
from taut.accounting._releases.sampled_renyi import FixedSizeRenyi, PoissonRenyi
from taut.accounting._releases.sums import ReleaseSum, as_one
from taut.accounting._releases.truncated import TruncatedPoisson
from taut.errors import AdjacencyMismatch, UnsoundConfiguration

__all__ = ["PrivacyLoss"]

_HIGHEST_ORDER = 1e100  # of a divergence: its square, times those of shifts, stays within doubles


class PrivacyLoss(ReleaseSum):
    """The privacy loss of a sum of releases: an immutable, hashable value.

    Losses are made by the factories of the bank (``taut.gaussian`` and its neighbours), added with
    ``+``, repeated with ``*`` and amplified with :meth:`poisson` and :meth:`fixed_size`. A sum is
    a multiset, so a million equal steps cost the memory of one, and nothing is computed until a
    question is asked.

    **Guarantee**: :meth:`epsilon` and :meth:`delta` are certified upper bounds for the adaptive
    composition of the releases under :attr:`adjacency`, provided that every parameter and count
    was fixed before the first output was seen (Zhu, Dong and Wang 2022, Theorem 10), the samplers
    are the ones named, and noise is drawn from the exact distributions named.

    Example:
        >>> import taut
        >>> step = taut.gaussian(sigma=1.0).poisson(rate=0.01)
        >>> total = 1_000 * step + taut.laplace(scale=20)
        >>> round(total.epsilon(delta=1e-5), 2)
        1.84
    """

    __slots__ = ()

    @property
    def adjacency(self) -> Adjacency:
        """The neighbouring relation that the loss is about."""
        return self._adjacency

    @property
    def terms(self) -> tuple[tuple[Release, int], ...]:
        """The distinct releases with their counts."""
        return self._terms

    # --- sampling ------------------------------------------------------------------------------

    def poisson(self, rate: float, removal: PrivacyLoss | None = None) -> PrivacyLoss:
        """Return the loss when every record takes part independently with probability ``rate``.

        Several releases that look at one sample are amplified together: ``(a + b).poisson(rate)``.
        If each draws its own, amplify each: ``a.poisson(rate) + b.poisson(rate)``. Sampling twice
        multiplies the rates.

        Args:
            rate: the probability of taking part.
            removal: loss, for a replace-one loss only, under add/remove, of taking a record out of
                the sample altogether. For a sum clipped at C it has sensitivity C where the
                replace-one loss has 2 C.

        **Guarantee**: add/remove, its halves, or zero-out (Zhu, Dong and Wang 2022, Theorem 11,
        corrected); replace-one by advanced joint convexity (Balle, Barthe and Gaboardi 2018,
        Theorem 2), and tightly for two ``gaussian`` losses, which are taken for what they are:
        normal noise on one clipped sum (docs/theory/joint.md). The realised sample must stay
        secret. A loss known by Renyi divergences only stays so, by the binomial sum
        (docs/theory/renyi.md).

        Raises:
            ValueError: if ``rate`` is not in [0, 1].
            UnsoundConfiguration: for a replace-one loss without ``removal``.

        Example:
            >>> import taut
            >>> taut.gaussian(sigma=1.0).poisson(rate=0.01)
            <PrivacyLoss gaussian(sigma=1, sensitivity=1).poisson(rate=0.01); adjacency=add_remove>
        """
        share = validate.probability(rate=rate)
        base = as_one(self._terms)
        if base is None:
            return self
        sampled = base.sampled(share)
        if removal is not None:
            sampled = PoissonReplace(
                base, _only_release("removal", removal, Adjacency.ADD_REMOVE), share
            )
        elif sampled is None and isinstance(base, RenyiOnly):
            sampled = PoissonRenyi(base, share)
        elif sampled is None:
            sampled = Poisson(base, share)
        return PrivacyLoss([(sampled, 1)], self._adjacency)

    def fixed_size(
        self, batch_size: int, population: int, adjacency: Adjacency | str = "add_remove"
    ) -> PrivacyLoss:
        """Return the loss on a uniformly random subset of ``batch_size`` of ``population`` records.

        Args:
            batch_size: size of the subset.
            population: size of the dataset (of the larger one, under add/remove).
            adjacency: the relation of the result: add/remove, one of its halves, replace-one, or
                zero-out (for which replace-one is valid, if not tight).

        **Guarantee**: this loss must be for replace-one, because exchanging a sampled record is
        what moving to a neighbour does to the subset. For a sum clipped at C the sensitivity is
        then 2 C, which people forget: it turns an epsilon of 1.8 into 13.4. Several releases that
        look at one subset are amplified together.

        Raises:
            ValueError: if the sizes do not fit.
            UnsoundConfiguration: if this loss is not for replace-one.
        """
        size = validate.positive_integer(batch_size=batch_size)
        total = validate.positive_integer(population=population)
        relation = Adjacency(adjacency)
        if self._terms and self._adjacency is not Adjacency.REPLACE:
            raise UnsoundConfiguration(
                f"fixed_size needs a loss for adjacency='replace', got {str(self._adjacency)!r}. "
                "For a sum clipped at C: gaussian(sigma, sensitivity=2 * C, adjacency='replace')"
            )
        base = as_one(self._terms)
        if base is None:
            return self
        if isinstance(base, RenyiOnly):
            return PrivacyLoss([(FixedSizeRenyi(base, size, total), 1)], relation)
        exchange = relation in (Adjacency.REPLACE, Adjacency.ZERO_OUT)
        return PrivacyLoss([(FixedSize(base, size, total, exchange), 1)], relation)

    def allocated(self, steps: int, taken: int | None = None) -> PrivacyLoss:
        """Return the loss of an epoch in which every record takes part in one of ``steps`` steps.

        Each record draws its step uniformly, independently of all others, and this is the loss of
        one step. Batch sizes are random, as under Poisson sampling with rate 1/``steps``, but every
        record is used exactly once. k epochs, each with new draws, are ``k * loss.allocated(t)``.

        Args:
            steps: number of steps of the epoch.
            taken: number of steps whose outputs were seen, if the epoch was stopped early; all of
                them by default.

        **Guarantee**: add/remove, its halves, or zero-out, if a step without the record does what
        it does when the record was drawn for another step (clipped sums with a fixed divisor do);
        steps may depend on all outputs before them (docs/theory/allocation.md, after Feldman and
        Shenfeld 2025). The draws must stay secret.

        Raises:
            ValueError: if ``steps`` or ``taken`` is not a positive integer, or ``taken`` exceeds
                ``steps``.
            UnsoundConfiguration: for a replace-one loss, for a loss known by Renyi divergences
                only, and for batches of fixed size.

        Example:
            >>> import taut
            >>> epochs = 10 * taut.gaussian(sigma=1.0).allocated(steps=100)
            >>> round(epochs.epsilon(delta=1e-5), 2)
            1.7
        """
        count = validate.positive_integer(steps=steps)
        seen = count if taken is None else validate.positive_integer(taken=taken)
        base = as_one(self._terms)
        if base is None:
            return self
        return PrivacyLoss([(Allocated(base, count, seen), 1)], self._adjacency)

    def truncated_poisson(
        self,
        rate: float,
        cap: int,
        population: int,
        exchange: PrivacyLoss,
        *,
        or_fewer: bool = False,
    ) -> PrivacyLoss:
        """Return the loss on a Poisson sample of which at most ``cap`` records are kept.

        Where more were drawn, a uniformly random subset of ``cap`` of them is the batch, so that
        memory is bounded. What the cap costs is the difference to :meth:`poisson`.

        Args:
            rate: the probability with which every record is drawn.
            cap: the most records of a batch.
            population: the size of the dataset (of the larger one, under add/remove).
            exchange: the replace-one loss of the same release: in a full batch a record takes the
                place of another. For a sum clipped at C it has sensitivity 2 C.
            or_fewer: whether the loss shall hold for every dataset of at most ``population``
                records and for one that is added to it, instead of for one size. For Gaussian
                noise alone.

        **Guarantee**: add/remove or its halves; exact but for the case distinction between full
        batches and others (docs/theory/sampling.md). Drawn records, and whether the
        batch was full, must stay secret.

        Raises:
            ValueError: if ``rate`` is not in [0, 1], or ``cap`` or ``population`` is below one.
            UnsoundConfiguration: for a replace-one or zero-out loss, or one without a pair.

        Example:
            >>> import taut
            >>> wide = taut.gaussian(1.0, sensitivity=2.0, adjacency="replace")
            >>> step = taut.gaussian(1.0).truncated_poisson(0.01, 160, 10_000, exchange=wide)
            >>> round((1_000 * step).epsilon(delta=1e-5), 3)
            1.828
        """
        base = as_one(self._terms)
        if base is None:
            return self
        swap = _only_release("exchange", exchange, Adjacency.REPLACE)
        return PrivacyLoss(
            [(TruncatedPoisson(base, swap, rate, cap, population, or_fewer), 1)], self._adjacency
        )

    # --- questions -----------------------------------------------------------------------------

    def epsilon(self, delta: float, tolerance: float = 1e-3) -> float:
        """Return a certified upper bound on epsilon at ``delta``: the number to publish.

        Infinite if the loss has more than ``delta`` of infinite mass; 0 if delta(0) <= ``delta``.
        """
        return self.epsilon_bounds(delta, tolerance).upper

    def delta(self, epsilon: float, tolerance: float = 1e-3) -> float:
        """Return a certified upper bound on delta at ``epsilon``."""
        return self.delta_bounds(epsilon, tolerance).upper

    def epsilon_bounds(self, delta: float, tolerance: float = 1e-3) -> Bounds:
        """Return certified bounds on epsilon at ``delta``.

        Args:
            delta: probability delta of the guarantee, in [0, 1); at 0 the answer is the pure-DP
                epsilon, possibly infinite.
            tolerance: wanted gap relative to the upper bound. The bracket is valid at any gap; it
                can be wider than asked where memory or rounding would not allow more (very small
                delta or rate, some sums of atoms), and for releases without a dominating pair.
        """
        level, sharpness = validate.below_one(delta=delta), _tolerance(tolerance)
        with _quiet():
            return epsilon_bounds(self._sums(), level, sharpness).bounds

    def delta_bounds(self, epsilon: float, tolerance: float = 1e-3) -> Bounds:
        """Return certified bounds on delta at ``epsilon`` >= 0, with relative gap ``tolerance``."""
        at, sharpness = validate.non_negative(epsilon=epsilon), _tolerance(tolerance)
        with _quiet():
            return delta_bounds(self._sums(), at, sharpness).bounds

    def profile(self, threshold: float) -> float:
        """Return a certified upper bound on the hockey-stick divergence at ``threshold`` >= 0.

        ``profile(exp(e))`` is ``delta(e)``; thresholds below 1 follow from the swap rule.
        """
        t = validate.non_negative(threshold=threshold)
        if t == 0:
            return 1.0
        with _quiet():
            if t >= 1:
                return delta_bounds(self._sums(), math.log(t), 1e-3).bounds.upper
            swapped = delta_bounds(self._sums(swap=True), -math.log(t), 1e-3).bounds.upper
        return min((1 - t + t * swapped) * UP, 1.0)

    def tradeoff(self, fpr: float) -> float:
        """Return a certified lower bound on an attacker's miss rate at false-positive rate ``fpr``.

        Whoever decides from the outputs whether a record took part, and accuses at most a
        fraction ``fpr`` of innocent records, misses at least this fraction of the guilty.
        """
        accused = validate.probability(fpr=fpr)
        with _quiet():
            return tradeoff(self._sums(), self._sums(swap=True), accused)

    def tpr(self, fpr: float) -> float:
        """Return a certified upper bound on the true-positive rate at false-positive rate ``fpr``.

        No attacker who accuses at most a fraction ``fpr`` of others finds more of the members.

        Example:
            >>> import taut
            >>> round(taut.gaussian(sigma=1.0).tpr(fpr=0.05), 3)
            0.26
        """
        return 1 - self.tradeoff(fpr)

    def bayes_risk(self, prior: float = 0.5) -> float:
        """Return a certified lower bound on the error of whoever guesses membership.

        Args:
            prior: the probability, before any output is seen, that the record takes part.

        The bound holds for both answers as the one of that probability. A guess without any output
        errs with min(prior, 1 - prior).

        Example:
            >>> import taut
            >>> round(taut.gaussian(sigma=1.0).bayes_risk(), 3)
            0.309
        """
        chance = validate.probability(prior=prior)
        chance = min(chance, 1 - chance)
        if chance < 1e-300:  # its odds would leave the range of floats
            return 0.0
        # Success is 1 - prior + prior H_t with t = (1 - prior) / prior, at most one in all.
        found = self.profile((1 - chance) / chance) * UP
        return min(max(chance * (1 - found) * (1 - 4 * RELATIVE_ERROR), 0.0), chance)

    def gdp(self, delta: float = 0.0) -> GaussianFit:
        """Return the loss in terms of Gaussian differential privacy, with the regret of the fit.

        Args:
            delta: probability that is left out. The smallest mu over *all* of the curve is decided
                by events that never happen (of sampled Gaussians, that every step draws the
                record), so take a delta that you would accept as failure. At 0 the answer is
                finite for Gaussian and for bounded losses.

        **Guarantee**: delta(epsilon) <= delta_mu(epsilon) + ``delta`` at every epsilon for
        mu = ``fit.mu.upper``, in both directions (docs/theory/profiles.md).

        Example:
            >>> import taut
            >>> run = 1_000 * taut.gaussian(sigma=1.0).poisson(rate=0.01)
            >>> fit = run.gdp(delta=1e-5)
            >>> round(fit.mu.upper, 2), fit.regret < 0.02
            (0.45, True)
        """
        left_out = validate.below_one(delta=delta)
        with _quiet():
            return fit_gaussian([*self._sums(), *self._sums(swap=True)], left_out)

    def rdp(self, order: float) -> float:
        """Return the Renyi divergence of ``order`` >= 1 (1: Kullback-Leibler; may be infinite).

        Closed forms where there are any, else quadrature accurate to some nine digits, which is
        not certified; an upper bound for releases that are known by their divergences only. Orders
        beyond 1e100 are answered by that of infinite order, which is larger.
        """
        alpha = validate.positive(order=order) if order != math.inf else math.inf
        if not alpha >= 1:
            raise ValueError(f"order must be at least 1, got order={order!r}")
        if alpha > _HIGHEST_ORDER:
            alpha = math.inf
        with _quiet():
            directions = halves(self._adjacency)
            return max(renyi_divergence(self._terms, half, alpha) for half in directions)

    def log_mgf(self, z: complex, half: Half | str | None = None) -> complex:
        """Return log E[exp(z L)] over finite losses; ``half`` names the direction if it matters."""
        if cmath.isnan(z):
            raise ValueError(f"z must be a number, got z={z!r}")
        sums = dict.fromkeys(self._sums())
        if half is not None:
            sums = dict.fromkeys(part for part in self._sums() if part.half == half)
        if len({part.terms for part in sums}) != 1:
            names = ", ".join(repr(str(name)) for name in halves(self._adjacency))
            raise ValueError(f"half must be one of {names}, got half={half!r}")
        return cumulant_of_sum(next(iter(sums)), complex(z))

    def explain(self, delta: float) -> Explanation:
        """Return which half, release and engine decided epsilon at ``delta``, and the RDP value."""
        level = validate.below_one(delta=delta)
        with _quiet():
            return explain(self._adjacency, self._terms, self._sums(), level)

    def estimate_epsilon(self, delta: float, method: str = "contour") -> float:
        """Return an estimate of epsilon, not a guarantee.

        Args:
            delta: probability delta of the guarantee, in (0, 1).
            method: ``"contour"`` (many digits, for losses with closed-form cumulants) or ``"afa"``
                (the accountant of Zhu, Dong and Wang 2022, unsafe at large epsilon).
        """
        level = validate.below_one(delta=delta)
        if level == 0:
            raise ValueError("delta must be greater than 0 for an estimate, got delta=0")
        return estimate_epsilon(self._sums(), self._sums(swap=True), level, method)

    def estimate_delta(self, epsilon: float, method: str = "contour") -> float:
        """Return an estimate of delta, not a guarantee; see :meth:`estimate_epsilon`."""
        at = validate.non_negative(epsilon=epsilon)
        return estimate_delta(self._sums(), self._sums(swap=True), at, method)

    # --- serialisation -------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description from which the loss can be recomputed."""
        return _serialize.encode(self._adjacency, self._terms)

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON text."""
        return _serialize.dumps(self.to_dict())

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PrivacyLoss:
        """Return the loss described by ``data``, the inverse of :meth:`to_dict`."""
        adjacency, terms = _serialize.decode(data)
        return cls(terms, adjacency)

    @classmethod
    def from_json(cls, text: str) -> PrivacyLoss:
        """Return the loss described by JSON ``text``."""
        return cls.from_dict(_serialize.loads(text))


def _quiet() -> np.errstate:
    """Return a context in which overflow and underflow are what they are: infinite and zero."""
    return np.errstate(over="ignore", under="ignore", divide="ignore")


def _only_release(name: str, loss: PrivacyLoss, relation: Adjacency) -> Release:
    """Return a loss, given as an argument, as one release for the relation that is needed."""
    if not isinstance(loss, PrivacyLoss):
        raise TypeError(f"{name} must be a PrivacyLoss, got {name}={loss!r}")
    if loss.adjacency is not relation:
        raise AdjacencyMismatch(
            f"{name} must be a loss for adjacency={str(relation)!r}, got {str(loss.adjacency)!r}"
        )
    release = as_one(loss.terms)
    if release is None:
        raise ValueError(f"{name} must not be the zero loss: moving a record costs something")
    return release


def _tolerance(tolerance: float) -> float:
    value = validate.positive(tolerance=tolerance)
    if value < 1e-9:  # rounding of long sums is of that order
        raise ValueError(f"tolerance must be at least 1e-9, got tolerance={tolerance!r}")
    return min(value, 1.0)
