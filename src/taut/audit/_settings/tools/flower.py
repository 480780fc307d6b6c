"""Flower: strategies with central differential privacy, and the modifier for local privacy.

Argument names are those of versions 1.8 to 1.29. A round adds noise of deviation
noise_multiplier * clipping_norm / num_sampled_clients to the mean of clipped updates; Flower has no
accountant, so that every epsilon about it is somebody else's.
"""

from __future__ import annotations

import math
from dataclasses import replace

from taut._base import validate
from taut.accounting import Adjacency, Bounds, GaussianRun, Sampler, gaussian
from taut.audit._settings.document import Document, Signature
from taut.audit._settings.reader import Reader
from taut.audit._settings.result import CheckedSetting, SettingsReading
from taut.audit._settings.runs import NoisySteps, of_loss

__all__ = ["FLOWER", "check_flower"]

_FIXED = ("strategy", "noise_multiplier", "clipping_norm", "num_sampled_clients")
_ADAPTIVE = (
    *("strategy", "noise_multiplier", "num_sampled_clients", "initial_clipping_norm"),
    *("target_clipped_quantile", "clip_norm_lr", "clipped_count_stddev"),
)
_LOCAL = ("clipping_norm", "sensitivity", "epsilon", "delta")
FLOWER = (
    Signature(
        "DifferentialPrivacyServerSideFixedClipping",
        _FIXED,
        (frozenset({"noise_multiplier", "clipping_norm", "num_sampled_clients"}),),
    ),
    Signature("DifferentialPrivacyClientSideFixedClipping", _FIXED),
    Signature(
        "DifferentialPrivacyServerSideAdaptiveClipping",
        _ADAPTIVE,
        (frozenset({"noise_multiplier", "num_sampled_clients", "target_clipped_quantile"}),),
    ),
    Signature("DifferentialPrivacyClientSideAdaptiveClipping", _ADAPTIVE),
    Signature("LocalDpMod", _LOCAL, (frozenset(_LOCAL),)),
)
_WEIGHTED = (
    "noise is scaled for a mean in which every client has the weight 1/num_sampled_clients, and "
    "FedAvg weighs clients by their numbers of examples: a client with many moves the mean "
    "further than the noise covers; aggregate with equal weights"
)
_LATE = (
    "the clipping norm is adapted before noise is added, so that a round is clipped at one norm "
    "and covered by noise for the next: where the norm falls, noise is too small by that factor"
)
_NO_ACCOUNTANT = (
    "an epsilon: Flower has no accountant; state the bounds here with delta, rounds and sampling"
)
_CLIENT_SIDE = (
    "who clips: updates are clipped by clients, which the server has to trust; use the strategy "
    "with server-side clipping, or say so"
)
_DROPOUT = (
    "clients that fail: fewer replies than num_sampled_clients make noise smaller per reply, and a "
    "warning is all that shows it; require as many replies"
)


def check_flower(reader: Reader, document: Document) -> CheckedSetting:  # noqa: ARG001
    """Return what a strategy or modifier of Flower promises.

    Args:
        reader: the arguments of the call.
        document: the file around it.
    """
    return _local(reader) if reader.call.name == "LocalDpMod" else _central(reader)


def _central(reader: Reader) -> CheckedSetting:
    adaptive = "Adaptive" in reader.call.name
    sigma = reader.needed("noise_multiplier", "no noise, no promise", "noise_multiplier")
    reader.own("clipping_norm")
    sampled = reader.whole(
        "num_sampled_clients",
        reader.needed("num_sampled_clients", "noise is divided by it", "num_sampled_clients"),
    )
    clients = reader.whole("clients", reader.needed("clients", "the rate is of all clients"))
    rounds = reader.whole("rounds", reader.needed("rounds", "every round is a release"))
    delta = reader.delta(clients)
    batch = None if sampled is None or clients is None else min(sampled, clients)
    run = NoisySteps(sigma, delta, rounds, None, batch, clients)
    side = (_CLIENT_SIDE,) if "ClientSide" in reader.call.name else ()
    return CheckedSetting(
        tool=f"Flower {reader.call.name}",
        where=reader.call.where,
        unit="client",
        read=reader.read,
        delta=delta,
        claimed=None,
        readings=(run.fixed_size(accounted=False), run.all_records(), _weighted(run)),
        false_promises=(_WEIGHTED, _LATE) if adaptive else (_WEIGHTED,),
        missing=(*reader.missing, _NO_ACCOUNTANT, *side, _DROPOUT),
    )


def _weighted(run: NoisySteps) -> SettingsReading:
    """Return the promise of a mean in which one client may have all the weight.

    Another client in its place moves the mean by up to twice the clipping norm, and the noise is
    that of a share. How often this is reached depends on the numbers of examples: the lower bound
    is zero.
    """
    assumes = "clients are weighed by their numbers of examples, which may be anything"
    relation = Adjacency.REPLACE
    if not (run.sigma is not None and run.batch and run.records and run.steps) or run.delta is None:
        return SettingsReading("weighted mean (FedAvg)", relation, assumes)
    if run.sigma == 0:
        upper = math.inf
    else:
        sampled = GaussianRun.of(
            Sampler.FIXED_SIZE, batch_size=run.batch, examples=run.records, steps=run.steps
        )
        upper = sampled.loss(run.sigma / run.batch, relation).epsilon(run.delta)
    return SettingsReading("weighted mean (FedAvg)", relation, assumes, Bounds(0.0, upper))


def _local(reader: Reader) -> CheckedSetting:
    norm = reader.needed("clipping_norm", "it bounds what a client can say", "clipping_norm")
    sensitivity = reader.needed("sensitivity", "noise is scaled by it", "sensitivity")
    epsilon = reader.needed("epsilon", "noise is scaled by it", "epsilon")
    rounds = reader.whole("rounds", reader.needed("rounds", "every round is a release"))
    delta = reader.delta(None, "delta")
    asked = reader.as_called().delta(None, "delta")
    loss, wrong = None, []
    if norm is not None and sensitivity is not None and epsilon and asked:
        sigma = sensitivity * math.sqrt(2 * math.log(1.25 / asked)) / epsilon
        reader.read["noise"] = f"deviation {sigma:.4g} (the classical Gaussian formula)"
        moved = 2 * validate.positive(clipping_norm=norm)
        if sensitivity < moved * (1 - 1e-9):  # a sum of two floats
            wrong.append(
                f"sensitivity {sensitivity:g} is less than twice the clipping norm, {moved:g}, "
                "by which two updates can differ: noise is too small; set it to that"
            )
        if epsilon >= 1:
            wrong.append(
                f"the formula for the noise holds for epsilon below 1, and {epsilon:g} is asked "
                "for; calibrate with taut.gaussian instead"
            )
        if rounds is not None and sigma > 0:
            count, deviation = rounds, sigma
            loss = lambda: count * gaussian(deviation, moved, adjacency=Adjacency.REPLACE)  # noqa: E731
    reading = of_loss(
        "local noise on every update",
        "a client sends one clipped update in every round, and no other message",
        Adjacency.REPLACE,
        loss,
        delta,
        accounted=False,
    )
    if sensitivity == 0 and norm:
        reading = replace(reading, bounds=Bounds(math.inf, math.inf))
    if reading.bounds is not None and epsilon and reading.bounds.lower > epsilon:
        wrong.append(
            f"epsilon {epsilon:g} is for one round at most; {rounds} rounds cost at least "
            f"{reading.shown[0]}"
        )
    return CheckedSetting(
        tool="Flower LocalDpMod",
        where=reader.call.where,
        unit="client",
        read=reader.read,
        delta=delta,
        claimed=epsilon,
        readings=(reading,),
        false_promises=tuple(wrong),
        missing=tuple(reader.missing),
    )
