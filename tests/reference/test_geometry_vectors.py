"""Reference values of clipping, sampling and second moments of vectors, one test per value."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest

from taut.noise import LpIntersection
from taut.noise.clipping import clip_l2_then_linf, project_l2_linf
from taut.noise.geometry import private_second_moment
from taut.noise.geometry._one_step import sampling_variance

CHECKS = json.loads(
    (Path(__file__).parent / "values" / "geometry_vectors.json").read_text(encoding="utf-8")
)
MEAN = next(check for check in CHECKS if check["id"] == "geo-27-mse")


def second_moment_scales(check, rows):
    moment = private_second_moment(rows, 1.0, *check["target"])
    return [moment.diagonal_scale, moment.off_diagonal_scale]


def projection(check, rows):
    found = project_l2_linf(rows, check["radius"], check["bound"])
    norms = {2: check["radius"], math.inf: check["bound"]}
    assert LpIntersection(rows.shape[1], norms).clip(rows) == pytest.approx(found, rel=1e-12)
    return found


QUESTIONS = {
    "sampling_variance": lambda check, rows: sampling_variance(rows, check["rate"]),
    "clip_l2_then_linf": lambda check, rows: clip_l2_then_linf(
        rows, check["radius"], check["bound"]
    ),
    "project_l2_linf": projection,
    "second_moment_scales": second_moment_scales,
}


@pytest.mark.parametrize("check", CHECKS, ids=[check["id"] for check in CHECKS])
def test_reference(check):
    found = QUESTIONS[check["ask"]](check, np.array(check["rows"]))
    assert found == pytest.approx(np.array(check["expected"]), rel=check["tolerance"])


def squared_error(rows, masks_and_odds, rate):
    """Return the expected squared error of the sampled mean over all masks."""
    estimates = ((odds, (rows * mask).sum(axis=0)) for mask, odds in masks_and_odds)
    mean = rows.mean(axis=0)
    return sum(
        odds * float(np.sum((total / (len(rows) * rate) - mean) ** 2)) for odds, total in estimates
    )


def masks(shape, rate):
    """Return all tables of zeros and ones, with their probabilities."""
    cells = math.prod(shape)
    for bits in itertools.product([0, 1], repeat=cells):
        ones = sum(bits)
        yield np.array(bits).reshape(shape), rate**ones * (1 - rate) ** (cells - ones)


def twice(shape, first, second):
    for records, odds in masks((shape[0], 1), first):
        for cells, more in masks(shape, second):
            yield records * cells, odds * more


@pytest.mark.parametrize("way", ["records", "coordinates", "twice"])
def test_sampled_mean_by_enumeration(way):
    rows, rate = np.array(MEAN["rows"]), MEAN["rate"]
    ways = {
        "records": masks((len(rows), 1), rate),
        "coordinates": masks(rows.shape, rate),
        "twice": twice(rows.shape, *MEAN["rates"]),
    }
    assert squared_error(rows, ways[way], rate) == pytest.approx(MEAN["expected"], rel=1e-10)
    assert sampling_variance(rows, rate) == pytest.approx(MEAN["expected"], rel=1e-10)
