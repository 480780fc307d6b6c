"""Why an epsilon is what it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from taut.accounting._adjacency import Adjacency, Half
from taut.accounting._answers.answer import Engine, epsilon_bounds
from taut.accounting._engines.bounds import Bounds
from taut.accounting._engines.half_sum import HalfSum
from taut.accounting._engines.saddle_point import SHARP_NODES, Cumulants
from taut.accounting._releases.release import Release
from taut.accounting._releases.renyi_only import OneSided, RenyiOnly

__all__ = ["Explanation", "Share", "explain"]


@dataclass(frozen=True)
class Share:
    """How much one kind of release contributes to the loss where epsilon is decided."""

    release: str
    count: int
    fraction: float


@dataclass(frozen=True)
class Explanation:
    """Which half, which releases and which engine decided an epsilon.

    Attributes:
        adjacency: the neighbouring relation.
        delta: the delta that was asked about.
        epsilon: certified bounds.
        half: the direction that decided.
        engine: how the bounds were obtained.
        shares: contribution of each release, largest first.
        rdp_epsilon: what Renyi accounting would prove for the same sum (an upper bound as well).
        caveats: what the bounds rest on beyond published proofs.
    """

    adjacency: Adjacency
    delta: float
    epsilon: Bounds
    half: Half
    engine: Engine
    shares: tuple[Share, ...]
    rdp_epsilon: float
    caveats: tuple[str, ...] = ()

    @property
    def rdp_excess(self) -> float:
        """How far Renyi accounting would overstate epsilon, as a fraction."""
        if self.epsilon.upper == 0 or math.isinf(self.epsilon.upper):
            return 0.0
        return max(self.rdp_epsilon / self.epsilon.upper - 1, 0.0)

    def __str__(self) -> str:
        """Return a few lines for people."""
        lines = [
            f"epsilon <= {self.epsilon.upper:.6g} at delta = {self.delta:g} "
            f"(certified; the truth is at least {self.epsilon.lower:.6g})",
            f"adjacency {self.adjacency}, decided by the {self.half!s} half, engine: {self.engine}",
            f"Renyi accounting alone would say {self.rdp_epsilon:.6g} (+{self.rdp_excess:.1%})",
        ]
        lines += [f"caution: {caveat}" for caveat in self.caveats]
        lines += [f"  {s.fraction:6.1%}  {s.count} x {s.release}" for s in self.shares]
        return "\n".join(lines)


def explain(
    adjacency: Adjacency,
    releases: Sequence[tuple[Release, int]],
    sums: Sequence[HalfSum],
    delta: float,
) -> Explanation:
    """Return the explanation of epsilon at ``delta``."""
    answer = epsilon_bounds(sums, delta, 1e-3)
    rdp = max(_renyi_epsilon(part, delta) for part in sums)
    return Explanation(
        adjacency=adjacency,
        delta=delta,
        epsilon=answer.bounds,
        half=answer.half,
        engine=answer.engine,
        shares=_shares(releases, answer.half, delta),
        rdp_epsilon=max(rdp, answer.bounds.lower),
        caveats=tuple(dict.fromkeys(f"{r}: {r.caveat}" for r, _ in releases if r.caveat)),
    )


def _renyi_epsilon(part: HalfSum, delta: float) -> float:
    """Return the epsilon of the improved Renyi conversion, over real orders."""
    if not part.terms and not part.curves:
        return 0.0
    if part.mass_inf > 0 or delta == 0:
        return math.inf if part.mass_inf > 0 else part.max_loss
    tail = 1e-6 * delta / part.count  # a millionth of delta in all: no digit that is shown
    saddle = Cumulants(part.terms, tail, part.curves, SHARP_NODES).at_delta(delta)
    return min(max(saddle.epsilon, 0.0), part.max_loss)


def _shares(releases: Sequence[tuple[Release, int]], half: Half, delta: float) -> tuple[Share, ...]:
    """Return each release's share of the mean tilted loss, which adds up to epsilon or so."""
    with_pair = [(r, count) for r, count in releases if not isinstance(r, RenyiOnly)]
    without = [(r, count) for r, count in releases if isinstance(r, RenyiOnly)]
    if not releases or delta == 0:
        return ()
    cumulants = Cumulants(
        [(release.pair(half), count) for release, count in with_pair],
        1e-40,  # cut tails: shares are shown with two digits
        [(OneSided(release, half), count) for release, count in without],
    )
    means = cumulants.means(cumulants.at_delta(delta).tilt)
    total = math.fsum(abs(mean) for mean in means) or 1.0
    shares = [
        Share(str(release), count, abs(mean) / total)
        for (release, count), mean in zip([*with_pair, *without], means, strict=True)
    ]
    return tuple(sorted(shares, key=lambda share: -share.fraction))
