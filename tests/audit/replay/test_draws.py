"""Noise that is scaled, moved and overwritten before it is added: what a replay takes it for."""

import copy
import pickle

import numpy as np
import pytest
import torch

import taut
from taut.audit import recorded, recorded_generator, recorded_torch, replay

AGES = np.array([34.0, 51.0, 28.0, 62.0])
DRAW = recorded_generator(np.random.default_rng(5), sensitivity=100.0)


def array(scaled, many=1):
    def program(rows):
        return rows.sum(keepdims=True) + scaled(DRAW.standard_normal(many))

    return program


def tensor(scaled, add=torch.add):
    def program(rows):
        with recorded_torch(sensitivity=100.0):
            value = torch.tensor(rows.sum(keepdims=True))
            return add(value, scaled(torch.randn(1, dtype=torch.float64)))

    return program


def in_place(noise, change):
    change(noise)
    return noise


def times(noise, factor):
    noise *= factor
    return noise


def over(noise, divisor):
    noise /= divisor
    return noise


@pytest.mark.parametrize(
    "program",
    [
        array(lambda noise: times(noise, 50.0)),
        array(lambda noise: over(noise, 0.02)),
        array(lambda noise: -noise * 50),
        array(lambda noise: np.negative(noise) / 0.02),
        array(lambda noise: np.multiply(50.0, noise, out=noise)),
        array(lambda noise: noise.reshape(1) * 50),
        array(lambda noise: noise[1:] * 50, many=2),
        tensor(lambda noise: times(noise, 50.0)),
        tensor(lambda noise: over(noise, 0.02)),
        tensor(lambda noise: noise / 0.02),
        tensor(lambda noise: -noise * 50),
        tensor(lambda noise: in_place(noise, lambda n: n.mul_(50.0))),
        tensor(lambda noise: in_place(noise, lambda n: n.neg_().div_(0.02))),
        tensor(lambda noise: (50 * noise).to(torch.float64).view(1).clone()),
        tensor(lambda noise: noise, lambda value, noise: value.add_(noise, alpha=50)),
        tensor(lambda noise: noise, lambda value, noise: torch.add(value, noise, alpha=-50)),
        tensor(lambda noise: noise * 50, lambda value, noise: times(noise, 1).add_(value)),
    ],
)
def test_noise_that_is_scaled_is_noise_of_that_scale(program):
    result = replay(program, AGES, AGES[:-1], crafted=True)
    assert result.findings == ()
    (release,) = result.releases
    assert release.measured == pytest.approx(0.62)
    claims = [1.9, 2.1]  # the loss of deviation 50 for sensitivity 100, and around it
    allowed = [
        replay(program, AGES, AGES[:-1], claim=taut.gaussian(1 / mu)).passed for mu in claims
    ]
    assert allowed == [False, True]


@pytest.mark.parametrize("factor", [0, 0.0])
def test_noise_of_no_scale_hides_nothing(factor):
    @recorded(sensitivity=100.0, scale=factor)
    def silent(value):
        return value

    programs = [
        array(lambda noise: noise * factor),
        array(lambda noise: times(noise, factor)),
        lambda rows: rows.sum() + DRAW.laplace(0.0, factor),
        tensor(lambda noise: noise * factor),
        tensor(lambda noise: times(noise, factor)),
        lambda rows: silent(rows.sum()),
    ]
    assert [replay(program, AGES, AGES[:-1]).passed for program in programs] == [False] * 6


def again(noise, rows):
    noise += rows.sum()
    return noise + 30.0 * len(rows)


def test_noise_that_a_value_was_written_into_hides_no_other():
    def entry(rows):
        noise = 50.0 * DRAW.standard_normal(2)
        noise[0] = rows.sum()
        return 0.0 + noise

    def of_torch(rows, write):
        with recorded_torch(sensitivity=100.0):
            noise = 50.0 * torch.randn(1, dtype=torch.float64)
            write(noise, torch.tensor([rows.sum()]))
            return noise + 30.0 * len(rows)

    programs = [
        lambda rows: again(50.0 * DRAW.standard_normal(1), rows),
        entry,
        lambda rows: of_torch(rows, lambda noise, value: noise.add_(value)),
        lambda rows: of_torch(rows, lambda noise, value: noise.copy_(value)),
        lambda rows: of_torch(rows, lambda noise, value: torch.add(value, 0.0, out=noise)),
        lambda rows: of_torch(rows, lambda noise, value: noise.__setitem__(0, value[0])),
    ]
    assert [replay(program, AGES, AGES[:-1]).passed for program in programs] == [False] * 6


def test_recorded_generator_takes_what_the_generator_takes():
    for given in ({}, {"size": 3}, {"size": 2, "dtype": np.float32}, {"out": np.zeros(2)}):
        ours, theirs = np.random.default_rng(3), np.random.default_rng(3)
        mine = recorded_generator(ours, sensitivity=1.0).standard_normal(**copy.deepcopy(given))
        assert np.array_equal(mine, theirs.standard_normal(**copy.deepcopy(given)))
    small = replay(
        lambda rows: rows.sum() + 90 * DRAW.standard_normal(1, dtype=np.float32), AGES, AGES[:-1]
    )
    assert small.passed
    with pytest.raises(TypeError, match="leave out= away"):
        replay(lambda rows: DRAW.standard_normal(out=np.zeros(1)) + rows.sum(), AGES, AGES[:-1])


def test_recorded_generator_is_copied_and_pickled():
    for other in (copy.deepcopy(DRAW), pickle.loads(pickle.dumps(DRAW))):
        assert other.integers(9) == copy.deepcopy(DRAW).integers(9)
