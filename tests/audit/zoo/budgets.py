"""Bugs of budgets: every release is what it says, and together they cost more than was claimed."""

import math

import numpy as np
from audit.zoo.bugs import Bug, clipped, gaussian, laplace, with_last

import taut

ROWS, FEWER = with_last(np.random.default_rng(3).uniform(0, 1, (9, 3)), [0.9, 0.9, 0.9])
SPENT = "is claimed: a budget was spent more than once"
EPSILON = 1.0


# --- IBM/differential-privacy-library#104: X and y are centred with one slice of the budget -------


def shared_slice(rows, shares=4):
    bounded = np.clip(rows, 0, 1)
    slice_of_budget = EPSILON / shares
    means = laplace(bounded[:, :2].sum(0), 2.0, slice_of_budget)
    target = laplace(bounded[:, 2].sum(), 1.0, slice_of_budget)
    rest = laplace((bounded[:, 0] * bounded[:, 2]).sum(), 1.0, EPSILON * 3 / 4)
    return means, target, rest


def own_slices(rows):
    return shared_slice(rows, shares=8)


# --- the whole budget for every part: marginals, then the model -----------------------------------


def whole_budget_twice(rows, share=1.0):
    marginals = laplace(np.clip(rows, 0, 1).sum(0), 3.0, share * EPSILON)
    model = laplace(np.clip(rows, 0, 1).prod(1).sum(), 1.0, share * EPSILON)
    return marginals, model


def half_of_the_budget_twice(rows):
    return whole_budget_twice(rows, share=0.5)


# --- an odometer with a wrong formula -------------------------------------------------------------

ANSWERS, EACH, DELTA = 40, 0.1, 1e-6
WITHOUT_LOG = EACH * math.sqrt(2 * ANSWERS)  # sqrt(2 k log(1 / delta)) was meant
ADVANCED = EACH * math.sqrt(2 * ANSWERS * math.log(1 / DELTA)) + ANSWERS * EACH * math.expm1(EACH)


def answers(rows, each=EACH):
    return [laplace(np.clip(rows[:, 0], 0, 1).sum(), 1.0, each) for _ in range(ANSWERS)]


def cheaper_answers(rows):
    return answers(rows, each=EACH * WITHOUT_LOG / ADVANCED / 1.01)


# --- meta-pytorch/opacus#807: the count of an adaptive clip is not paid for -----------------------

COUNT_NOISE = 2.0


def unpaid_count(rows, multiplier=1.0):
    total = gaussian(clipped(rows, 1.0).sum(0), 1.0, multiplier)
    short = (np.linalg.norm(rows, axis=1) <= 1.0).sum() - 0.5 * len(rows)
    return total, gaussian(short, 0.5, COUNT_NOISE / 0.5)


def paid_count(rows):
    return unpaid_count(rows, multiplier=(1 - (0.5 / COUNT_NOISE) ** 2) ** -0.5)


# --- noise of the squared norm --------------------------------------------------------------------


def norm_twice(rows, power=2):
    """The clipping norm is in the noise once more, and makes it smaller where it is below one."""
    norm = 0.1
    return gaussian(clipped(rows, norm).sum(0), norm, norm ** (power - 1))


def norm_once(rows):
    return norm_twice(rows, power=1)


BUGS = [
    Bug(
        "one slice of the budget for two releases", "IBM/differential-privacy-library#104",
        shared_slice, own_slices, ROWS, FEWER, SPENT, claim=taut.pure(EPSILON),
    ),
    Bug(
        "whole budget spent twice", "",
        whole_budget_twice, half_of_the_budget_twice, ROWS, FEWER, SPENT, claim=taut.pure(EPSILON),
    ),
    Bug(
        "odometer with a wrong formula", "opendp/smartnoise-sdk#621 (there on the safe side)",
        answers, cheaper_answers, ROWS, FEWER, SPENT, claim=taut.approximate(WITHOUT_LOG, DELTA),
    ),
    Bug(
        "count of an adaptive clip not paid for", "meta-pytorch/opacus#807",
        unpaid_count, paid_count, ROWS, FEWER, SPENT, claim=taut.gaussian(1.0),
    ),
    Bug(
        "noise in proportion to the squared norm", "greenelab/SPRINT_gan#5",
        norm_twice, norm_once, ROWS, FEWER, SPENT, claim=taut.gaussian(1.0),
    ),
]  # fmt: skip
