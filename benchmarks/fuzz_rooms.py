"""Every public entry point of the rooms, found by introspection, with arguments by their names.

A parameter's kind follows from its annotation where that names a class of ours, and from its name
otherwise. What is made is then asked one of its own methods. A name that has no kind yet gets
hostile values only, so that whatever a room exports tomorrow is called without a line here.
"""

import importlib
import inspect
import math

import numpy as np

import taut
from taut import accounting, adaptive, audit, matrix, noise

ROOMS = (
    "taut", "taut.accounting", "taut.accounting.renyi", "taut.accounting.diagnostics", "taut.noise",
    "taut.noise.clipping", "taut.noise.geometry", "taut.matrix", "taut.adaptive", "taut.audit",
    "taut.statistics", "taut.estimators",
)  # fmt: skip

NOT_CALLED = {
    # What answers are made of: frozen records, which check nothing since only we make them.
    "Bounds", "Calibration", "EqualComputePlan", "Explanation", "GaussianFit", "GaussianRun",
    "MixingComparison", "Promise", "Remaining", "SampledRun", "SamplerComparison", "Converted",
    "DataDependent", "Certificate", "Disparity", "GaussianNoise", "LaplaceNoise", "GroupedNoise",
    "StaircaseNoise", "IntegerLaplaceNoise", "MaskedNoise", "NoiseOption", "Recommendation",
    "BlockSuggestion", "ClipBias", "ClipBiasReport", "ClipNormAdvice", "GeometryReport", "OneStep",
    "PrivateSecondMoment", "Subspaces", "AmplifiedEstimate", "DenseOptimum", "Errors",
    "RankedNoise", "Ranking", "Sensitivity", "CheckedGuess", "Outcome", "SparseVectorOption",
    "SparseVectorPlan", "Trial", "Tuned", "TuningOption", "TuningPlan", "AuditResult",
    "CheckedSetting", "Craft", "Evidence", "MechanismGame", "NoiseCheck", "OneRunResult",
    "OneRunScores", "ReplayResult", "ReplayedRelease", "RunAttack", "RunningCheck",
    "SequentialResult", "SettingsCheck", "SettingsReading", "Verification", "RunCanaries",
    "PrivacyLoss", "Secret", "Setting", "GridGaussian", "Estimate", "Interval",
    # Bases, protocols, enumerations.
    "Adjacency", "Engine", "Half", "Ledger", "Sampler", "Verdict", "Source", "Provenance",
    "NoiseMechanism", "SensitivitySet", "RandomSource", "Encoder", "NoiseStream",
    "Participation", "SecretSampler", "SecureGenerator", "SeededForExperiments",
    "default_generator", "Statistic",
    # They run what they are given, for minutes; or read files, which other tests tamper with.
    "audit_loop", "audit_plan", "attack_plan", "audit_training", "refute_loop", "refute_plan",
    "refute_training", "replay", "recorded", "recorded_generator", "recorded_optimizer",
    "recorded_torch", "check_settings", "tune", "optimize", "verify_statement",
    "estimate_balls_in_bins", "plan_tuning", "CircuitBreaker", "compare_samplers", "calibrate",
    "runs_to_refute",
    # Estimates by name, which may be NaN where nothing can be estimated.
    "estimate_loss_moments", "estimate_many_coordinates",
}  # fmt: skip
SLOW = {
    "plan_svt", "SparseVector", "SparseVectorStages", "SparseVectorDesign", "PrivateLabels",
    "StagedSparseVector", "ReusableHoldout", "audit_one_run", "best_of", "buffered", "recommend",
    "audit_mechanism", "simulated_epsilon", "mixed_laplace", "mixed_gaussian", "additive_noise",
    "mixture_of_gaussians", "amplified_loss", "banded_toeplitz", "banded_inverse",
    "optimal_masked_noise", "Exposure", "audit_observations", "selection_routes",
}  # fmt: skip
"""They take tens of milliseconds and more when they answer."""
_SELDOM = 0.04  # of the calls that one of them would get
_QUESTIONED = 0.1  # of the losses that are made: questions cost more than making them
NEVER_HOSTILE = {"generator", "directory", "path", "self", "progress", "budget"}
# Of rows that hold NaN: they are no releases, and fits count such rows as zero.
MAY_BE_NAN = {"row_norms", "sampled_mean_error", "transform", "fit_transform"}
_CHOICES = {
    "adjacency": ["add_remove", "replace", "zero_out", "add", "remove"],
    "objective": ["total", "maximum"], "goal": ["root_mean_square", "maximum"],
    "conversion": ["improved", "classic"], "method": ["gdp", "rdp", "tight", "exact"],
    "provenance": ["public", "private_release"], "kind": ["laplace", "gaussian", "exponential"],
    "non_finite": ["zero", "raise"], "law": ["poisson", "geometric", "logarithmic"],
    "decoder": ["online", "full"], "neighbours": ["fixed", "any"], "source": ["declared"],
    "accounting": ["exact"], "name": ["given"], "direction": ["both", "forward"],
    "reverse": [True, False], "allow_zero": [True, False], "on_grid": [True, False],
    "rotate": [True, False], "fixed": [True, False], "log": [True, False], "gap": [True, False],
    "monotone": [True, False], "resample": [True, False], "statistics": [None],
}  # fmt: skip


def _always(value):
    return lambda _: value


def _sets(values):
    radius = values.positive()
    return values.one_of(
        [
            lambda: noise.L1Ball(3, radius),
            lambda: noise.L2Ball(3, radius),
            lambda: noise.LInfBall(3, radius),
            lambda: noise.Box([radius, values.positive(), values.positive()]),
            lambda: noise.Histogram(3),
        ]
    )()


def _loss(values):
    return values.one_of(
        [
            lambda: taut.gaussian(0.3 + values.positive()),
            lambda: taut.laplace(0.3 + values.positive()),
            lambda: taut.pure(min(values.positive(), 5.0)),
            lambda: taut.approximate(0.5, values.delta()),
            lambda: values.count() * taut.gaussian(1.0 + values.positive()),
            lambda: taut.gaussian(0.5 + values.positive()).poisson(0.1),
        ]
    )()


def _encoder(values):
    steps = values.one_of([2, 4, 8])
    return values.one_of(
        [
            lambda: matrix.identity(steps),
            lambda: matrix.lambda_cgd(steps, 0.5),
            lambda: matrix.TreeEncoder(steps),
            lambda: matrix.square_root(matrix.Workload(steps), 2),
            lambda: matrix.banded(matrix.Workload(steps), 2),
        ]
    )()


def _design(values):
    return adaptive.SparseVectorDesign(
        adaptive.ScalarNoise("laplace", 1 + values.positive()),
        adaptive.ScalarNoise("laplace", 1 + values.positive()),
        1.0, 2, "add_remove", most_queries=20,
    )  # fmt: skip


def _test(values):
    return adaptive.DistanceTest(values.positive(), values.delta(), "add_remove")


def _between(_):
    return adaptive.BetweenDesign(0.0, 20.0, 4.0, 8.0, 1.0, 2, 1e-2, "add_remove")


def _scores(values):
    canaries = audit.RunCanaries.tossed(40)
    return canaries.scored(values.draw.normal(size=40))


def _function(values):
    scale = values.positive()
    answers = [
        lambda *_: scale, lambda *_: -1, lambda *_: math.nan, lambda *_: None,
        lambda given, *_: given, lambda *_: 10**400, lambda *_: "x",
        lambda given, *_: np.asarray(given) * scale,
    ]  # fmt: skip
    return values.one_of(answers)


ANNOTATED = {
    "PrivacyFilter": lambda v: v.one_of([None, taut.PrivacyFilter(v.positive(), v.delta())]),
    "RandomSource": _always(None),
    "Curve": lambda v: v.one_of([accounting.renyi.gaussian(1.0), {2.0: 1.0, 4.0: 2.0}]),
    "Callable[[float], PrivacyLoss]": _always(taut.gaussian),
    "PrivacyLoss | Iterable": _loss,
    "PrivacyLoss": _loss,
    "SparseVectorStages": lambda v: adaptive.SparseVectorStages(_design(v), 2),
    "SparseVectorDesign": _design,
    "BetweenDesign": _between,
    "DistanceTest": _test,
    "ScalarNoise": lambda v: adaptive.ScalarNoise(v.one_of(["laplace", "gaussian"]), v.positive()),
    "MechanismGame": lambda v: audit.laplace_game(0.1 + v.positive()),
    "OneRunScores": _scores,
    "Trials": lambda v: accounting.Trials("poisson", 1 + v.positive()),
    "Ranges": _always(noise.Ranges([(0.0, 1.0), (-1.0, 2.0)])),
    "NoiseMechanism": lambda v: noise.optimal_laplace(_sets(v), epsilon=1.0),
    "Mapping[str, SensitivitySet": _always({"ball": noise.L2Ball(3, 1.0)}),
    "SensitivitySet": _sets,
    "Box | LInfBall": _sets,
    "Workload": lambda v: matrix.Workload(v.one_of([2, 4, 8])),
    "BallsInBins": _always(matrix.BallsInBins(4)),
    "SecretSampler": lambda v: v.one_of([matrix.PoissonRounds(0.3), matrix.CyclicPoisson(2, 0.3)]),
    "Participation": lambda v: v.one_of(
        [matrix.SingleParticipation(), matrix.FixedOrder(2), matrix.MinimumSeparation(2, 2)]
    ),
    "Encoder": _encoder,
    "LogDensity": _always(lambda x: -np.square(x) / 2),
    "Mapping[float, float]": lambda v: {1: v.positive(), 2: v.positive()},
    "Callable": _function,
    "_D": lambda v: v.rows(),
}
"""Makers by what an annotation holds; the first that fits is taken."""


def _some(low, high):
    return lambda v: int(v.draw.integers(low, high))


def _increasing(v):
    return np.cumsum(np.exp(v.draw.normal(size=3))).tolist()


POSITIVE = {
    "epsilon", "sigma", "scale", "width", "radius", "norm", "clip", "clip_norm", "bound", "cap",
    "sensitivity", "test_epsilon", "bound_epsilon", "noise_multiplier", "multiplier", "margin",
    "threshold_scale", "query_scale", "noise", "answer_sigma", "smoothness", "sigma_p", "sigma_q",
    "reach", "limit", "step", "kappa", "excess_loss", "rho", "parameter", "clip_inf", "power",
    "threshold", "noise_scale", "variance", "budget", "spread", "value", "l2", "linf", "shape",
    "l1", "tail_curvature", "sensitivity_inf", "pure_epsilon", "omega", "grid",
}  # fmt: skip
RATES = {
    "rate", "p", "tolerance", "record_rate", "coordinate_rate", "momentum", "weight_decay",
    "weight",
    "beta", "truth", "level", "slack", "quantile", "probability", "share",
}  # fmt: skip
DELTAS = {"delta", "stability_delta", "noise_delta", "failure"}
SMALL = {
    "steps": _some(1, 12), "dimension": _some(1, 5), "bands": _some(1, 5), "buffers": _some(1, 4),
    "groups": _some(1, 5), "slots": _some(1, 5), "bins": _some(1, 6), "separation": _some(1, 6),
    "epochs": _some(1, 4), "participations": _some(1, 4), "tops": _some(1, 5), "k": _some(1, 9),
    "most_queries": _some(1, 50), "stages": _some(1, 4), "betweens": _some(1, 4),
    "size": _some(1, 50), "trials": _some(1_000, 3_000), "levels": _some(1, 4),
    "cells": _some(1, 5), "per_record": _some(1, 3), "seed": _some(0, 99), "points": _some(1, 50),
    "teachers": _some(2, 300), "unstable": _some(1, 9), "count": _some(1, 500),
    "examples": _some(100, 10_000), "batch_size": _some(1, 100), "population": _some(100, 10_000),
    "group_size": _some(1, 5), "candidates": _some(10, 10_000), "largest_order": _some(2, 32),
    "guesses": lambda v: 2 * int(v.draw.integers(1, 20)), "parameters": _some(1, 10_000),
    "directions": _some(1, 3), "iterations": _some(1, 5), "order": lambda v: 1 + v.positive(),
    "least": _some(1, 5), "most": _some(1, 5), "tau": _some(2, 9), "settings": _some(2, 50),
    "n_components": _some(1, 3), "max_iter": _some(1, 9), "confidence": _always(0.95),
}  # fmt: skip
LISTS = {
    "sizes": _always([2, 3]), "clips": lambda v: [v.positive(), v.positive()],
    "ranks": _always([1, 2]), "widths": lambda v: [v.positive() for _ in range(3)],
    "scales": lambda v: [v.positive() for _ in range(3)], "weights": _always([1.0, 2.0, 3.0]),
    "orders": _always([2.0, 3.5, 8.0]), "rates": lambda v: [v.rate(), v.rate()],
    "sigmas": lambda v: [v.positive(), v.positive()], "dimensions": _always([2, 3]),
    "clip_infs": _always([0.1, 0.2]), "probabilities": _always([0.25, 0.75]),
    "shifts": lambda v: [0.0, v.positive()], "bounds": _increasing, "decays": _always([0.5, 0.25]),
    "diagonals": _always([[1.0, 1.0, 1.0], [0.5, 0.5, 0.0]]), "means": _increasing,
    "entries": lambda v: np.tril(v.draw.normal(size=(3, 3))) + 3 * np.eye(3),
    "covariance": lambda v: np.diag([v.positive() for _ in range(3)]),
    "votes": _always([40, 3, 1]), "norms": _increasing, "radii": _always({1: 1.0, 2: 0.8}),
    "q": _always([0.25, 0.25, 0.5]), "epsilons": _always([0.0, 0.5, 1.0]), "shares": _always([0.5,
    0.5]), "mask": _always([True] * 3),
    "ranges": lambda v: [(0.0, v.positive()), (-1.0, 1.0)], "shift": _always([0.1, 0.1, 0.1]),
    "basis": _always(np.eye(3)), "axes": _always({"x": [1, 2], "y": adaptive.Range(0.1, 1.0)}),
    "one": _always([3.0, 2.0, 1.0]), "other": _always([2.0, 2.0, 2.0]),
    "without": lambda v: v.draw.normal(size=(60, 2)), "leads": lambda v: v.draw.integers(0, 9, 4),
    "including": lambda v: v.draw.normal(size=(60, 2)), "labels": lambda v: v.draw.integers(0, 3,
    9),
    "y": lambda v: v.draw.integers(0, 2, 5),
    "profile": lambda v: {0.0: 0.5, 1.0: v.delta()}, "event": _always(None),
    "learning_rates": _always(None), "releases": _always(3), "samples": _always(5),
}  # fmt: skip
ROWS = {"rows", "vectors", "data", "neighbour", "values", "optima", "points", "x", "X"}
REALS = {"low", "high", "answer", "guess", "query", "least_value", "start", "offset"}


def kind_of(name, annotation):
    """Return what makes values for a parameter, or None if only hostile ones are known."""
    said = annotation if isinstance(annotation, str) else ""
    for part, made in ANNOTATED.items():
        if part in said:
            return made
    if name == "p" and said and "float" not in said:  # a distribution
        return lambda v: v.draw.dirichlet([1.0, 1.0, 1.0]).tolist()
    if name in _CHOICES:
        return lambda v: v.one_of(_CHOICES[name])
    if name == "bands" and "Sequence" in str(annotation):
        return lambda v: [1.0, v.rate()]
    for names, made in (
        (SMALL, SMALL.get(name)),
        (LISTS, LISTS.get(name)),
        (DELTAS, lambda v: v.delta()),
        (RATES, lambda v: v.rate()),
        (POSITIVE, lambda v: v.positive()),
        (ROWS, lambda v: v.rows()),
        (REALS, lambda v: float(v.draw.normal())),
    ):
        if name in names:
            return made
    return None


def _signature(function):
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None


def entries():
    """Return every public callable by its full name, but for those that are not to be called."""
    found = {}
    for room in ROOMS:
        module = importlib.import_module(room)
        for name in module.__all__:
            entry = getattr(module, name)
            if name in NOT_CALLED or not callable(entry) or inspect.ismodule(entry):
                continue
            if inspect.isclass(entry) and issubclass(entry, BaseException):
                continue
            if _signature(entry) is not None:
                found.setdefault(id(entry), (f"{room}.{name}", entry))
    return dict(found.values())


def arguments(parameters, values, wildness, hostile):
    """Return positional and named arguments: optional ones now and then, hostile ones as asked."""
    named = {}
    for name, parameter in parameters.items():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        optional = parameter.default is not parameter.empty
        if not optional and name == "generator":
            named[name] = noise.SeededForExperiments(values.count())
            continue
        if optional and (name in NEVER_HOSTILE or values.draw.random() < 0.6):
            continue
        made = kind_of(name, parameter.annotation)
        if name not in NEVER_HOSTILE and (made is None or values.draw.random() < wildness):
            named[name] = values.one_of(hostile)
        else:
            named[name] = None if made is None else made(values)
    return named


_ASKED_AFTER = {
    "release", "release_sum", "clip", "contains", "answer", "decide", "fit", "transform", "predict",
    "score", "epsilon", "delta", "loss", "spend", "update", "query", "partial_fit", "inverse",
    "fit_transform", "fit_predict", "predict_proba", "radius", "support", "rows", "decode",
    "sample",
    "advance", "costs", "error", "width", "accuracy", "interval", "most_found", "applied", "matrix",
    "stream", "charge", "charge_row", "remaining", "loss_after", "fits",
}  # fmt: skip


def follow_ups(thing):
    """Return public methods of a thing of ours, by name."""
    if not type(thing).__module__.startswith("taut") or isinstance(thing, taut.PrivacyLoss):
        return {}  # losses are asked by what checks them
    found = {}
    for name in dir(type(thing)):
        member = inspect.getattr_static(type(thing), name)
        if name.startswith("_") or isinstance(member, property | classmethod):
            continue
        if name in _ASKED_AFTER and inspect.isfunction(member):
            found[name] = getattr(thing, name)
    return found


def check_answer(name, found, check_number, values, wildness, check_loss, deep=True):
    """Raise if an answer holds NaN where none may be, or negative privacy."""
    if name.rpartition(".")[2] in MAY_BE_NAN:
        return
    if isinstance(found, taut.PrivacyLoss):
        if values.draw.random() < _QUESTIONED:
            check_loss(found, values, wildness)
    elif isinstance(found, taut.Bounds):
        check_number(found.lower, "lower bound")
        check_number(found.upper, "upper bound")
        if found.lower > found.upper:
            raise AssertionError(f"bounds cross: {found}")
    elif isinstance(found, float | np.floating):
        if math.isnan(found):
            raise AssertionError(f"{name} is NaN")
    elif isinstance(found, np.ndarray) and found.dtype.kind == "f":
        if np.isnan(found).any():
            raise AssertionError(f"{name} holds NaN")
    elif isinstance(found, tuple | list):
        for part in found[:5]:
            check_answer(name, part, check_number, values, wildness, check_loss, deep=False)
    elif hasattr(found, "get_params"):  # an estimator keeps what it is given until it is fitted
        return
    elif deep and type(found).__module__.startswith("taut"):
        for said in ("epsilon", "delta", "error", "root_mean_square", "sigma", "noise_multiplier"):
            number = getattr(found, said, None)
            if isinstance(number, float):
                check_number(number, f"{said} of {name}")
        loss = getattr(found, "loss", None)
        if isinstance(loss, taut.PrivacyLoss) and values.draw.random() < _QUESTIONED:
            check_loss(loss, values, wildness)


class Rooms:
    """Calls entry points of the rooms, and methods of what they make."""

    def __init__(self, hostile, check_number, check_loss):
        self.entries = entries()
        self.names = list(self.entries)
        self.hostile = hostile
        self.checks = check_number, check_loss

    def __call__(self, values, wildness):
        name = values.one_of(self.names)
        while name.rpartition(".")[2] in SLOW and values.draw.random() > _SELDOM:
            name = values.one_of(self.names)
        entry = self.entries[name]
        given = arguments(_signature(entry), values, wildness, self.hostile)
        yield name, given
        found = entry(**given)
        number, loss = self.checks
        check_answer(name, found, number, values, wildness, loss)
        methods = follow_ups(found)
        if not methods:
            return
        for _ in range(2):
            method = values.one_of(sorted(methods))
            more = arguments(_signature(methods[method]), values, wildness, self.hostile)
            yield f"{name}.{method}", {**given, "THEN": more}
            check_answer(
                f"{name}.{method}", methods[method](**more), number, values, wildness, loss, False
            )
