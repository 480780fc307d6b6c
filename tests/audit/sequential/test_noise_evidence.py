"""Evidence about noise has mean one at most where noise is as claimed, and grows elsewhere."""

import numpy as np
import pytest

from taut.audit._sequential.noise_evidence import RepetitionEvidence, SizeEvidence, _most


@pytest.mark.parametrize("deviation", [1.0, 1.0002, 1.0005])
def test_mean_of_size_evidence_by_quadrature(deviation):
    grid = np.linspace(-40, 40, 200_001)
    evidence = SizeEvidence("variance")
    means = []
    for log, factor in zip(evidence._logs, evidence._factors, strict=True):
        ratio = log + factor * grid**2 - np.square(grid / deviation) / 2
        means.append(np.exp(ratio).sum() * (grid[1] - grid[0]) / (deviation * np.sqrt(2 * np.pi)))
    assert max(means) <= 1 + 1e-9
    if deviation == 1.0:
        assert means[:6] == pytest.approx([1.0] * 6, abs=1e-9)


@pytest.mark.parametrize("deviation", [1.0, 1.0002, 1.0005])
def test_mean_of_repetition_evidence_by_quadrature(deviation):
    grid = np.linspace(-9, 9, 400_001)
    density = np.exp(-np.square(grid / deviation) / 2) / (deviation * np.sqrt(2 * np.pi))
    for before in (-2.3, 0.4):
        for left in (1e-4, 0.1, 0.5):
            mean = np.sqrt(1 - left) * before
            ratio = np.exp(grid**2 / 2 - np.square(grid - mean) / (2 * left)) / np.sqrt(left)
            integral = float((ratio * density).sum() * (grid[1] - grid[0]))
            assert integral / np.exp(_most(np.array([mean]), left)) <= 1 + 1e-6


def crossed(evidence, draw, runs, level, make):
    for _ in range(runs):
        evidence.update(make(draw))
        if evidence.log_evidence >= -np.log(level):
            return True
    return False


@pytest.mark.parametrize("kind", [lambda: SizeEvidence("variance"), RepetitionEvidence])
def test_true_noise_seldom_ever_looks_wrong(kind):
    level, audits = 0.2, 200
    draws = [np.random.default_rng(seed) for seed in range(audits)]
    alarms = sum(crossed(kind(), draw, 60, level, lambda d: d.normal(size=4)) for draw in draws)
    assert alarms <= level * audits


@pytest.mark.parametrize("deviation", [0.8, 0.5, 1.3])
def test_wrong_size_is_noticed(deviation):
    draw = np.random.default_rng(0)
    assert crossed(SizeEvidence("x"), draw, 100, 1e-6, lambda d: deviation * d.normal(size=8))


def test_repeated_noise_is_noticed_at_once():
    evidence, noise = RepetitionEvidence(), np.random.default_rng(0).normal(size=8)
    evidence.update(noise)
    evidence.update(noise)
    assert evidence.log_evidence > 20
    assert evidence.ratio > 1.5
