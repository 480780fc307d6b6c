"""Bugs of values: one record moves them by more than their noise is made for."""

import numpy as np
import torch
from audit.opacus_stub import DPOptimizer
from audit.zoo.bugs import Bug, clipped, gaussian, laplace, with_last
from torch import nn

from taut.audit import recorded_generator, recorded_optimizer

MOVED = "moved by more than its declared sensitivity"
GRADIENTS, FEWER_GRADIENTS = with_last(np.full((7, 3), 0.2), [5.0, 0.0, 0.0])
ROWS, FEWER_ROWS = with_last(np.random.default_rng(0).uniform(0, 1, (9, 2)), [40.0, 60.0])


# --- opendp/smartnoise-sdk#622: data are clipped, and the data before that are used ---------------


def unclipped_covariance(rows):
    bounded = np.clip(rows, 0.0, 1.0)
    del bounded
    return laplace((rows.T @ rows).ravel(), 4.0, 1.0)


def clipped_covariance(rows):
    bounded = np.clip(rows, 0.0, 1.0)
    return laplace((bounded.T @ bounded).ravel(), 4.0, 1.0)


# --- IBM/differential-privacy-library#105: the lower bound twice ----------------------------------


def second_moment(rows, ends):
    low, high = 0.0, 100.0
    sensitivity = max(abs(end) for end in ends(low, high)) ** 2
    return laplace((np.clip(rows[:, 0], low, high) ** 2).sum(), sensitivity, 1.0)


def lower_bound_twice(rows):
    return second_moment(rows, lambda low, _: (low, low))


def both_bounds(rows):
    return second_moment(rows, lambda low, high: (low, high))


# --- interpretml/interpret#523: the width of a range for what is added or removed -----------------


def range_for_sensitivity(rows):
    low, high = 50.0, 60.0
    return laplace(np.clip(rows[:, 1], low, high).sum(), high - low, 1.0)


def largest_for_sensitivity(rows):
    low, high = 50.0, 60.0
    return laplace(np.clip(rows[:, 1], low, high).sum(), max(abs(low), abs(high)), 1.0)


# --- DataResponsibly/DataSynthesizer#34: noise of frequencies on counts ---------------------------


def counts_as_frequencies(rows, sensitivity=2 / 10):
    counts = np.histogram(rows[:, 0], bins=[-np.inf, 0.5, np.inf])[0]
    return laplace(counts.astype(float), sensitivity, 1.0) / 10


def counts_as_counts(rows):
    return counts_as_frequencies(rows, sensitivity=2.0)


# --- PrivBayes: noise in proportion to columns minus degree ---------------------------------------


def degree_of_all_columns(rows, degree=2, columns=2):
    cells = np.histogram2d(rows[:, 0], rows[:, 1], bins=[[-np.inf, 0.5, np.inf]] * 2)[0].ravel()
    return laplace(cells, 2.0 * (columns - degree), 1.0)


def degree_of_some_columns(rows):
    return degree_of_all_columns(rows, degree=1)


# --- NaN passes numpy.clip ------------------------------------------------------------------------

BLANK, FEWER_BLANK = with_last(np.linspace(0, 1, 5)[:, None], [np.nan])


def not_a_number(rows):
    return laplace(np.clip(rows, 0.0, 1.0).sum(), 1.0, 1.0)


def number(rows):
    return laplace(np.clip(np.nan_to_num(rows, nan=0.5), 0.0, 1.0).sum(), 1.0, 1.0)


# --- private gradients ----------------------------------------------------------------------------


def clipped_after_averaging(rows):
    mean = rows.sum(0) / 8
    return gaussian(8 * clipped(mean[None], 1.0)[0], 1.0, 1.0) / 8


def clipped_before_averaging(rows):
    return gaussian(clipped(rows, 1.0).sum(0), 1.0, 1.0) / 8


def clipped_at_twice(rows):
    return gaussian(clipped(rows, 2.0).sum(0), 1.0, 1.0)


TOKENS = np.random.default_rng(1).normal(size=(6, 8, 3))
LENGTHS = np.array([8, 7, 8, 6, 8, 2])  # the last example is mostly padding


def tokens(count):
    mask = np.arange(8)[None] < LENGTHS[:count, None]
    return TOKENS[:count] * mask[:, :, None], mask


def padded_norms(count, divisor=8):
    """Norms are those of means over all tokens, gradients those of means over real ones."""
    gradients, mask = tokens(count)
    real = gradients.sum(1) / mask.sum(1)[:, None]
    norms = np.linalg.norm(gradients.sum(1) / np.broadcast_to(divisor, (count,))[:, None], axis=1)
    return gaussian((real * np.minimum(1.0, 0.1 / norms)[:, None]).sum(0), 0.1, 1.0)


def own_norms(count):
    return padded_norms(count, divisor=LENGTHS[:count])


def token_mean(count):
    """The loss is the mean over all tokens of the batch: lengths of others are in each gradient."""
    gradients, mask = tokens(count)
    examples = gradients.sum(1) / mask.sum() * count
    return gaussian(clipped(examples, 1.0).sum(0), 1.0 / 2, 1.0)


def mean_of_own_tokens(count):
    gradients, mask = tokens(count)
    return gaussian(clipped(gradients.sum(1) / mask.sum(1)[:, None], 0.5).sum(0), 0.5, 1.0)


def optimizer_step(rows, *, clips):
    torch.manual_seed(0)
    model = nn.Linear(3, 1, bias=False)
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1),
        noise_multiplier=1.0,
        max_grad_norm=0.5,
        expected_batch_size=8,
        clips=clips,
    )
    recorded_optimizer(optimizer)
    model.weight.grad_sample = torch.from_numpy(rows).float()[:, None]
    optimizer.step()
    return model.weight


def norm_that_is_ignored(rows):
    return optimizer_step(rows, clips=False)


def norm_that_counts(rows):
    return optimizer_step(rows, clips=True)


# --- noise ----------------------------------------------------------------------------------------


def noise_of_all_steps(rows, drawn_once=True):
    draw = recorded_generator(np.random.default_rng(), sensitivity=1.0)
    kept = draw.normal(0.0, 1.0, 3)
    steps = []
    for _ in range(3):
        noise = kept if drawn_once else draw.normal(0.0, 1.0, 3)
        steps.append(clipped(rows, 1.0).sum(0) + noise)
    return steps


def noise_of_every_step(rows):
    return noise_of_all_steps(rows, drawn_once=False)


BUGS = [
    Bug(
        "data before clipping", "opendp/smartnoise-sdk#622",
        unclipped_covariance, clipped_covariance, ROWS, FEWER_ROWS, MOVED,
    ),
    Bug(
        "lower bound used twice", "IBM/differential-privacy-library#105",
        lower_bound_twice, both_bounds, ROWS, FEWER_ROWS, MOVED,
    ),
    Bug(
        "width of a range as sensitivity", "interpretml/interpret#523",
        range_for_sensitivity, largest_for_sensitivity, ROWS, FEWER_ROWS, MOVED,
    ),
    Bug(
        "noise of frequencies on counts", "DataResponsibly/DataSynthesizer#34",
        counts_as_frequencies, counts_as_counts, ROWS, FEWER_ROWS, MOVED,
    ),
    Bug(
        "no noise at one hyper-parameter", "DataResponsibly/DataSynthesizer#15 (the formula)",
        degree_of_all_columns, degree_of_some_columns, ROWS, FEWER_ROWS, MOVED,
    ),
    Bug(
        "NaN through a clip", "",
        not_a_number, number, BLANK, FEWER_BLANK, "not finite",
    ),
    Bug(
        "clipping after averaging", "",
        clipped_after_averaging, clipped_before_averaging,
        GRADIENTS * 20, FEWER_GRADIENTS * 20, MOVED,
    ),
    Bug(
        "clipping at twice the norm", "",
        clipped_at_twice, clipped_before_averaging, GRADIENTS, FEWER_GRADIENTS, MOVED,
    ),
    Bug(
        "norms that count padding", "meta-pytorch/opacus#792",
        padded_norms, own_norms, 6, 5, MOVED,
    ),
    Bug(
        "mean over the tokens of a batch", "",
        token_mean, mean_of_own_tokens, 6, 5, MOVED,
    ),
    Bug(
        "clipping norm that is ignored", "meta-pytorch/opacus#664",
        norm_that_is_ignored, norm_that_counts, GRADIENTS, FEWER_GRADIENTS, MOVED,
    ),
    Bug(
        "noise drawn once for all steps", "",
        noise_of_all_steps, noise_of_every_step, GRADIENTS, FEWER_GRADIENTS, "the noise of release",
    ),
]  # fmt: skip
