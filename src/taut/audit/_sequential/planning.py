"""How many runs a sequential audit is worth: an estimate, before it begins."""

from __future__ import annotations

import math

import numpy as np

from taut._base import validate
from taut.accounting import PrivacyLoss
from taut.audit._attacks.claim import Claim
from taut.audit._sequential.region import Region

__all__ = ["runs_to_refute"]

_RATES = 60  # false-positive rates that are tried for the best test
_WALKS = 2_000  # simulated audits: the quantile of their lengths is off by a few per cent
_LONGEST = 100_000  # runs: beyond, nobody would wait


def runs_to_refute(
    claimed: PrivacyLoss,
    actual: PrivacyLoss,
    *,
    delta: float,
    level: float = 1e-2,
    power: float = 0.9,
) -> int:
    """Estimate after how many runs a claim is refuted, if the loss really is another.

    Args:
        claimed: the loss that is claimed.
        actual: loss that a faulty program may have, such as that of half the noise.
        delta: where epsilon is stated.
        level: level of the audit.
        power: the probability with which the claim is to be refuted by then.

    Returns:
        An estimate by simulation, for an attacker who reaches all that `actual` allows and knows
        the best test from the start; give `most_runs` several times as many, since a test must be
        learned first. It says what a pass would have meant, and is no guarantee.

    Raises:
        ValueError: if the claim allows all that `actual` does, so that no run speaks against it.

    Example:
        >>> import taut
        >>> from taut.audit import runs_to_refute
        >>> runs_to_refute(taut.gaussian(1.0), taut.gaussian(0.5), delta=1e-3)
        150
    """
    region = Region.of(Claim(claimed, delta))
    chance, sure = validate.probability(level=level), validate.probability(power=power)
    fpr = np.geomspace(1e-4, 0.5, _RATES)
    tpr = np.array([1.0 - actual.tradeoff(float(rate)) for rate in fpr])
    growths, aims = region.growths(tpr.clip(1e-9, 1 - 1e-9), fpr)
    best = int(np.argmax(growths))
    if not growths[best] > 0:
        raise ValueError(
            "actual must exceed what claimed allows, or no number of runs refutes it; give the "
            "loss of less noise, or of more steps"
        )
    hit, false = float(tpr[best].clip(1e-9, 1 - 1e-9)), float(fpr[best])
    bet = region.bet_at(hit, false, int(aims[best]))
    draw = np.random.default_rng(0)
    logs, lengths = np.zeros(_WALKS), np.full(_WALKS, _LONGEST)
    for run in range(1, _LONGEST + 1):
        with_canary = draw.random(_WALKS) < 0.5
        taken = draw.random(_WALKS) < np.where(with_canary, hit, false)
        logs += np.log(bet.payoffs)[with_canary.astype(int), taken.astype(int)]
        lengths[(logs >= -math.log(chance / 2)) & (lengths == _LONGEST)] = run
        if (lengths < _LONGEST).mean() >= sure:
            break
    return run
