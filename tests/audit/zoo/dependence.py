"""Bugs of programs: something that is published depends on the data beside its noise."""

import numpy as np
import torch
from audit.opacus_stub import DPOptimizer
from audit.zoo.bugs import Bug, clipped, gaussian, laplace, with_last
from torch import nn

from taut.audit import recorded_generator, recorded_optimizer

BESIDE = "the result depends on the data beside its releases"
ROWS, FEWER = with_last(np.random.default_rng(2).uniform(0, 1, (19, 3)), [0.9, 0.9, 7.0])
LABELS, FEWER_LABELS = with_last([0.0, 1.0, 0.0, 1.0], 2.0)


# --- meta-pytorch/opacus#571, #819: the divisor is the rate times the number of records ----------


def optimizer_steps(rows, divisor):
    torch.manual_seed(0)
    model = nn.Linear(3, 1, bias=False)
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        expected_batch_size=divisor,
    )
    recorded_optimizer(optimizer)
    for _ in range(2):
        model.weight.grad_sample = torch.from_numpy(rows).float()[:, None]
        optimizer.step()
    return model.weight


def divisor_from_records(rows):
    return optimizer_steps(rows, int(len(rows) * 0.5))


def divisor_fixed(rows):
    return optimizer_steps(rows, 10)


def realised_batch(rows):
    return gaussian(clipped(rows, 1.0).sum(0), 1.0, 1.0) / len(rows)


def expected_batch(rows):
    return gaussian(clipped(rows, 1.0).sum(0), 1.0, 1.0) / 20


def scale_from_records(rows):
    return laplace(np.clip(rows[:, 0], 0, 1).mean(), 1.0 / len(rows), 1.0)


def mean_of_two_releases(rows):
    total = laplace(np.clip(rows[:, 0], 0, 1).sum(), 1.0, 0.5)
    return total / max(laplace(float(len(rows)), 1.0, 0.5), 1.0)


# --- what there is to release is read from the data -----------------------------------------------


def classes_from_labels(labels, classes=None):
    found = np.unique(labels) if classes is None else np.asarray(classes)
    return laplace(np.array([(labels == c).sum() for c in found], dtype=float), 1.0, 1.0)


def classes_given(labels):
    return classes_from_labels(labels, classes=[0.0, 1.0, 2.0, 3.0])


def bins_from_data(rows, ends=None):
    counts, edges = np.histogram(rows[:, 2], bins=4, range=ends)
    return laplace(counts.astype(float), 1.0, 1.0), edges


def bins_given(rows):
    counts, edges = bins_from_data(np.clip(rows, 0.0, 1.0), ends=(0.0, 1.0))
    return counts, edges


def bound_from_quantile(rows, bound=None):
    limit = float(np.quantile(rows[:, 2], 0.99)) if bound is None else bound
    return laplace(np.clip(rows[:, 2], 0.0, limit).sum(), limit, 1.0)


def bound_given(rows):
    return bound_from_quantile(rows, bound=1.0)


def centred_by_own_mean(rows):
    mean = rows.mean(0)
    return gaussian(clipped(rows - mean, 1.0).sum(0), 1.0, 1.0) + 20 * mean


def centred_by_constant(rows):
    return gaussian(clipped(rows - 0.5, 1.0).sum(0), 1.0, 1.0) + 20 * 0.5


# --- noise is left out on some way ----------------------------------------------------------------


def zero_for_off(rows, epsilon=0):
    total = np.clip(rows[:, 0], 0, 1).sum()
    return laplace(total, 1.0, epsilon) if epsilon else total


def one_is_not_off(rows):
    return zero_for_off(rows, epsilon=1.0)


def noise_behind_a_condition(rows, part=1):
    total = np.zeros(3)
    for start in range(0, len(rows), part):
        total = total + clipped(rows[start : start + part], 1.0).sum(0)
        if part > 1 and start + part >= len(rows):  # one record at a time never comes here
            total = gaussian(total, 1.0, 1.0)
    return total


def noise_at_the_end(rows):
    return noise_behind_a_condition(rows, part=30)


def noise_until_it_pleases(rows):
    exact = np.clip(rows[:, 0], 0, 1).sum()
    while True:
        noisy = laplace(exact, 1.0, 1.0)
        if abs(noisy - exact) < 0.4:
            return noisy


def noise_once(rows):
    return laplace(np.clip(rows[:, 0], 0, 1).sum(), 1.0, 1.0)


# --- how much is released follows the data --------------------------------------------------------


def stopped_by_exact_loss(rows):
    weights, released = np.zeros(3), []
    for _ in range(5):
        if np.abs(rows - weights).max() < 6.8:  # the exact loss decides
            break
        weights = weights + gaussian(clipped(rows - weights, 1.0).sum(0), 1.0, 1.0) / 1e6
        released.append(weights)
    return released


def stopped_by_plan(rows):
    weights = np.zeros(3)
    for _ in range(5):
        weights = weights + gaussian(clipped(rows - weights, 1.0).sum(0), 1.0, 1.0) / 1e6
    return weights


def empty_batch_left_out(rows):
    batches = [rows[:10], rows[10:19], rows[19:]]
    return [gaussian(clipped(b, 1.0).sum(0), 1.0, 1.0) for b in batches if len(b)]


def empty_batch_with_noise(rows):
    batches = [rows[:10], rows[10:19], rows[19:]]
    return [gaussian(clipped(b, 1.0).sum(0), 1.0, 1.0) for b in batches]


# --- sparse vectors -------------------------------------------------------------------------------


def queries(rows):
    return np.array([(rows[:, i % 3] > 0.5).sum() for i in range(6)], dtype=float)


def exact_queries(rows):
    """Threshold with noise, queries without (Lyu, Su and Li 2017, algorithm 5)."""
    draw = recorded_generator(np.random.default_rng(7), sensitivity=0.0)
    threshold = queries(ROWS)[0] - 0.5 + 1e-3 * draw.laplace()
    return [bool(query > threshold) for query in queries(rows)]


def noisy_queries(rows):
    draw = recorded_generator(np.random.default_rng(7), sensitivity=1.0)
    threshold = 8.0
    return [bool(query + draw.laplace(0.0, 2.0) > threshold) for query in queries(rows)]


def rest_of_an_update(rows, start=None):
    """Chosen coordinates get noise; those that were neither chosen nor dropped stay as they are."""
    update = np.clip(rows.sum(0), -100, 100) if start is None else start
    kept = clipped(rows, 1.0).sum(0)
    noisy = laplace(kept[:1], 1.0, 1.0)
    update = update.copy()
    update[:1] = noisy
    update[2:] = 0.0
    return update


def nothing_of_an_update(rows):
    return rest_of_an_update(rows, start=np.zeros(3))


BUGS = [
    Bug(
        "divisor from the number of records", "meta-pytorch/opacus#571, #819",
        divisor_from_records, divisor_fixed, ROWS, FEWER, BESIDE,
    ),
    Bug(
        "division by the realised batch size", "meta-pytorch/opacus#420 (proposed)",
        realised_batch, expected_batch, ROWS, FEWER, BESIDE,
    ),
    Bug(
        "sensitivity over the number of records", "",
        scale_from_records, mean_of_two_releases, ROWS, FEWER, "another scale and sensitivity",
    ),
    Bug(
        "classes inferred from labels", "",
        classes_from_labels, classes_given, LABELS, FEWER_LABELS, "another number of coordinates",
    ),
    Bug(
        "bins from the range of the data", "hazy/dpart#6",
        bins_from_data, bins_given, ROWS, FEWER, BESIDE,
    ),
    Bug(
        "bound from a quantile of the data", "",
        bound_from_quantile, bound_given, ROWS, FEWER, "another scale and sensitivity",
    ),
    Bug(
        "centred by the mean of the data", "",
        centred_by_own_mean, centred_by_constant, ROWS, FEWER, BESIDE,
    ),
    Bug(
        "epsilon of zero read as no noise", "DataResponsibly/DataSynthesizer#8",
        zero_for_off, one_is_not_off, ROWS, FEWER, BESIDE,
    ),
    Bug(
        "noise behind a condition", "DPBayes/ADADP#3",
        noise_behind_a_condition, noise_at_the_end, ROWS, FEWER, BESIDE,
    ),
    Bug(
        "noise drawn until it is small", "",
        noise_until_it_pleases, noise_once, ROWS, FEWER, "releases on the neighbour",
    ),
    Bug(
        "early stopping by the exact loss", "",
        stopped_by_exact_loss, stopped_by_plan, ROWS, FEWER, "releases on the neighbour",
    ),
    Bug(
        "empty batches left out", "",
        empty_batch_left_out, empty_batch_with_noise, ROWS, FEWER, "releases on the neighbour",
    ),
    Bug(
        "sparse vector with exact queries", "Lyu, Su and Li (2017), algorithm 5",
        exact_queries, noisy_queries, ROWS, FEWER, BESIDE,
    ),
    Bug(
        "values that get no noise pass", "NVIDIA/NVFlare#343",
        rest_of_an_update, nothing_of_an_update, ROWS, FEWER, BESIDE,
    ),
]  # fmt: skip
