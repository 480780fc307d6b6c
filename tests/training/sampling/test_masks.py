"""Masks: exact rates, independence, unbiased sums, a source of its own for every process."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from torch import nn
from training.ranks import in_processes

from taut.accounting.diagnostics import sampled_mean_error
from taut.errors import UnsoundConfiguration
from taut.noise import RandomSource, SeededForExperiments
from taut.training import FlatClip, L2LInfClip, TwiceSampling
from taut.training._sampling import masks as masks_module
from taut.training._sampling.masks import Masks, dyadic_rate
from taut.training.extend import IndependentNoise, PrivateGradient

CLIP = L2LInfClip.spread_over(1.0, spread=16)


class Counting(RandomSource):
    """Gives the bytes that it was given, in turn."""

    secure = True

    def __init__(self, data):
        self._data, self.used = bytes(data), 0

    def bytes(self, n):
        start, self.used = self.used, self.used + n
        return self._data[start : self.used]


class TestMasks:
    @pytest.mark.parametrize("numerator", range(1, 16))
    def test_all_patterns_of_bits_give_exactly_the_rate(self, numerator):
        """Enumerate what every coordinate can be given: of 16 patterns, `numerator` keep it."""
        rate = numerator / 16
        planes = Fraction(rate).denominator.bit_length() - 1
        kept = 0
        for pattern in itertools.product((0, 255), repeat=planes):
            found = Masks(rate, Counting(pattern)).cut(torch.ones(1, 8))
            assert found.unique().numel() == 1
            kept += int(found[0, 0])
        assert Fraction(kept, 2**planes) == Fraction(numerator, 16)

    def test_half_keeps_where_a_bit_is_one(self):
        source = Counting([0b10110000, 0b00000001])
        found = Masks(0.5, source).cut(torch.full((2, 8), 3.0))
        assert found.tolist() == [[3, 0, 3, 3, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0, 3]]
        assert source.used == 2

    def test_finest_rate(self):
        """A multiple of 2^-16 takes sixteen bits a coordinate; the rarest needs all of them."""
        source = Counting([255] * 16)
        assert Masks(2.0**-16, source).cut(torch.ones(1, 8)).tolist() == [[1.0] * 8]
        assert source.used == 16
        assert not Masks(2.0**-16, Counting([255] * 15 + [0])).cut(torch.ones(1, 8)).any()

    @pytest.mark.parametrize("rate", [0.5, 0.25, 5 / 16, 1 - 2.0**-16])
    def test_coordinates_rows_and_calls_are_independent(self, rate):
        masks = Masks(rate, SeededForExperiments(seed=1))
        count = 2_000
        calls = [masks.cut(torch.ones(count, 3)).numpy() for _ in range(2)]
        bits = np.concatenate(calls, axis=1).astype(int)  # six bits that must not know each other
        expected = [
            rate ** sum(p) * (1 - rate) ** (6 - sum(p)) for p in itertools.product((0, 1), repeat=6)
        ]
        found = np.bincount(bits @ (1 << np.arange(5, -1, -1)), minlength=64)
        large = np.array(expected) * count >= 5
        rest = count - found[large].sum(), count * (1 - np.array(expected)[large].sum())
        seen = np.append(found[large], rest[0])
        want = np.append(np.array(expected)[large] * count, rest[1])
        seen, want = seen[want > 0.5], want[want > 0.5]
        if len(seen) > 1:
            statistic = ((seen - want) ** 2 / want).sum()
            assert chi2.sf(statistic, len(seen) - 1) > 1e-4
        assert abs(bits.mean() - rate) <= 5 * math.sqrt(rate * (1 - rate) / bits.size) + 1e-9

    def test_rows_next_to_each_other_differ(self):
        found = Masks(0.5, SeededForExperiments(seed=2)).cut(torch.ones(50, 64))
        assert len({tuple(row) for row in found.tolist()}) == 50

    def test_portions_are_masked_alike(self, monkeypatch):
        monkeypatch.setattr(masks_module, "_PORTION", 64)
        found = Masks(0.5, SeededForExperiments(seed=3)).cut(torch.ones(40, 25))
        assert abs(float(found.mean()) - 0.5) < 0.1
        assert torch.equal(found, found.bool().float())

    def test_memory_is_bounded(self):
        """Bits are drawn for a portion at a time, whatever the batch."""
        sizes = []

        class Spy(SeededForExperiments):
            def bytes(self, n):
                sizes.append(n)
                return super().bytes(n)

        Masks(0.5, Spy(seed=0)).cut(torch.ones(64, 20_000))
        assert max(sizes) <= masks_module._PORTION // 8
        assert sum(sizes) == 64 * 20_000 // 8

    def test_rates_that_bits_cannot_draw_name_their_neighbours(self):
        with pytest.raises(ValueError, match=r"21845/2\*\*16 and 21846/2\*\*16"):
            dyadic_rate(coordinate_rate=1 / 3)
        for rate in (0.0, 1.0):
            with pytest.raises(ValueError, match="between 0 and 1"):
                TwiceSampling(coordinate_rate=rate)


class TestSum:
    @staticmethod
    def gradient(net, noise, **options):
        return PrivateGradient(
            net, CLIP, noise=noise, expected_batch_size=4, self_check=False, **options
        )

    def test_mean_and_variance_over_masks(self):
        """E o/(n q) is the mean, and its error (1-q)/(q n^2) sum |y|^2 (Proposition 5.1)."""
        net = nn.Linear(6, 1, bias=False)
        rate, n = 0.25, 4
        rows = torch.randn(n, 6, generator=torch.Generator().manual_seed(0))
        clipped = CLIP.clip_rows(rows)
        step = self.gradient(
            net, IndependentNoise((0.0,), (0,), rate), generator=SeededForExperiments(seed=5)
        )
        found = []
        for _ in range(3_000):
            step.accumulate_batch(rows, torch.zeros(n), lambda out, _: out[:, 0])
            step.finish()
            found.append(net.weight.grad[0].clone())
            net.weight.grad = None
        found = torch.stack(found).double()
        exact = clipped.mean(0).double()
        error = ((found - exact) ** 2).sum(1)
        expected = sampled_mean_error(clipped.numpy(), rate)
        assert float(error.mean()) == pytest.approx(expected, rel=0.08)
        deviations = (found.mean(0) - exact) / (found.std(0) / math.sqrt(len(found)) + 1e-12)
        assert float(deviations.abs().max()) < 4.5

    def test_geo_27(self):
        rows = [[1.0, 2.0], [0.5, -1.0], [0.0, 3.0]]
        assert sampled_mean_error(rows, 0.2) == pytest.approx(6.777777777777779)

    def test_no_masks_without_noise_for_them(self):
        net = nn.Linear(6, 1, bias=False)
        assert self.gradient(net, IndependentNoise((1.0,), (0,))).masks is None
        step = self.gradient(net, IndependentNoise((1.0,), (0,), 0.5))
        assert step.masks.rate == 0.5

    def test_empty_batch_is_noise_over_the_same_constant(self):
        net = nn.Linear(3_000, 1, bias=False)
        step = self.gradient(net, IndependentNoise((2.0,), (0,), 0.25))
        step.finish()
        assert float(net.weight.grad.std()) == pytest.approx(2.0 / (4 * 0.25), rel=0.1)

    def test_examples_that_are_not_finite_count_for_nothing(self):
        net = nn.Linear(3, 1, bias=False)
        step = self.gradient(net, IndependentNoise((0.0,), (0,), 0.5))
        rows = torch.tensor([[math.nan, 1.0, 1.0], [math.inf, 0.0, 0.0]])
        step.accumulate_batch(rows, torch.zeros(2), lambda out, _: out[:, 0])
        assert step.dropped == 2
        step.finish()
        assert not net.weight.grad.any()

    def test_masks_cannot_be_exchanged_away(self):
        net = nn.Linear(3, 1, bias=False)
        step = self.gradient(net, IndependentNoise((1.0,), (0,), 0.5))
        with pytest.raises(UnsoundConfiguration, match="sampled at 1"):
            step.exchange(CLIP, IndependentNoise((1.0,), (0,)))

    def test_masked_noise_needs_a_clipping_of_entries(self):
        net = nn.Linear(3, 1, bias=False)
        with pytest.raises(UnsoundConfiguration, match="bounds no entries"):
            PrivateGradient(
                net, FlatClip(1.0), noise=IndependentNoise((1.0,), (0,), 0.5), expected_batch_size=1
            )


def _masks_of(rank):
    net = nn.Linear(64, 1, bias=False)
    noise = IndependentNoise((0.0,), (0,), 0.5)
    step = PrivateGradient(
        net, L2LInfClip(8.0, 1.0), noise=noise, expected_batch_size=1.0, self_check=False,
        generator=SeededForExperiments(seed=3),
    )  # fmt: skip
    found = []
    for _ in range(3):
        # Two examples in the first process and one in the other: a sum of three masked rows.
        step.accumulate_batch(
            torch.ones(2 - rank, 64), torch.zeros(2 - rank), lambda out, _: out[:, 0]
        )
        step.finish()
        found.append((net.weight.grad[0] * 0.5).tolist())
        net.weight.grad = None
    return found, step.masks.state_dict()["seed"]


@pytest.mark.slow
def test_every_process_masks_its_own_rows():
    (first, one), (second, other) = in_processes(_masks_of)
    assert first == second
    assert one != other
    sums = np.array(first).round().astype(int)
    assert set(sums.ravel()) <= {0, 1, 2, 3}
    counts = np.bincount(sums.ravel(), minlength=4)
    expected = len(sums) * 64 * np.array([1, 3, 3, 1]) / 8
    assert chi2.sf(((counts - expected) ** 2 / expected).sum(), 3) > 1e-4
    assert len({tuple(step) for step in sums.tolist()}) == 3
