"""A private second moment: its noise hides every record as promised, and shows directions."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.noise import L2Ball, SeededForExperiments
from taut.noise._exact.release import RoundedNoise
from taut.noise.geometry import private_second_moment

ROWS = np.random.default_rng(0).standard_normal((50, 6))
MOMENT = private_second_moment(ROWS, 2.0, 1.0, 1e-6)
REPLACED = private_second_moment(ROWS, 1.5, 1.0, 1e-6, adjacency="replace")


def whitened(change, moment):
    """Return the length of a symmetric change in units of the noise of its entries."""
    upper = np.triu_indices(len(change))
    scales = np.where(upper[0] == upper[1], moment.diagonal_scale, moment.off_diagonal_scale)
    return float(np.linalg.norm(change[upper] / scales))


class TestLoss:
    @given(st.lists(st.floats(-1, 1), min_size=6, max_size=6).filter(any))
    def test_every_record_of_full_length_is_hidden_alike(self, entries):
        moment = MOMENT
        x = 2.0 * np.array(entries) / np.linalg.norm(entries)
        mu = moment.noise.mu
        assert whitened(np.outer(x, x), moment) == pytest.approx(mu, rel=1e-9)

    @given(st.integers(0, 2**32))
    def test_replacing_a_record(self, seed):
        moment = REPLACED
        x, y = np.random.default_rng(seed).standard_normal((2, 6))
        x, y = (1.5 * v / np.linalg.norm(v) for v in (x, y))
        mu = moment.noise.mu
        assert whitened(np.outer(x, x) - np.outer(y, y), moment) <= mu * (1 + 1e-12)
        across = y - (y @ x) * x / (x @ x)
        across *= 1.5 / np.linalg.norm(across)
        worst = np.outer(x, x) - np.outer(across, across)
        assert whitened(worst, moment) == pytest.approx(mu, rel=1e-9)

    def test_keeps_the_promise(self):
        moment = private_second_moment(ROWS, 1.0, 0.7, 1e-7)
        assert moment.loss.epsilon(delta=1e-7) <= 0.7
        assert moment.loss.epsilon(delta=1e-7) == pytest.approx(0.7, rel=1e-6)


class TestRelease:
    def test_is_the_clipped_sum_with_noise_of_the_stated_scales(self):
        rows = np.array([[3.0, 4.0, 0.0], [0.1, 0.2, math.nan], [0.3, 0.0, 0.4]])
        clipped = np.array([[0.6, 0.8, 0.0], [0.0, 0.0, 0.0], [0.3, 0.0, 0.4]])
        source = SeededForExperiments(0)
        draws = np.array(
            [
                private_second_moment(rows, 1.0, 1.0, 1e-6, generator=source).matrix
                for _ in range(1000)
            ]
        )
        moment = private_second_moment(rows, 1.0, 1.0, 1e-6)
        assert np.array_equal(draws, draws.transpose(0, 2, 1))
        spread = np.full((3, 3), moment.off_diagonal_scale)
        np.fill_diagonal(spread, moment.diagonal_scale)
        z_scores = (draws.mean(axis=0) - clipped.T @ clipped) / spread * math.sqrt(1000)
        assert np.abs(z_scores).max() < 4.5
        assert draws.std(axis=0) == pytest.approx(spread, rel=0.1)

    def test_sums_are_exact_and_releases_on_a_grid(self, monkeypatch):
        """A record moves the sum by its own product, cut to 40 bits, to the last digit."""
        seen = []
        original = RoundedNoise.on_grid

        def on_grid(rounded, value, source):
            released = original(rounded, value, source)
            steps = released / rounded.grid
            assert (steps == np.rint(steps)).all()
            exact = [
                value.exact(i) * Fraction(2) ** int(e) for i, e in enumerate(rounded.exponents)
            ]
            seen.append(exact)
            return released

        monkeypatch.setattr(RoundedNoise, "on_grid", on_grid)
        rows = np.random.default_rng(2).standard_normal((5000, 2)) * [1.0, 1e-9]
        for part in (rows, rows[1:]):
            private_second_moment(part, 1.5, 1.0, 1e-6, generator=SeededForExperiments(0))
        clipped = L2Ball(2, 1.5).clip(rows[0])
        kept = [Fraction(math.trunc(Fraction(x) * 2**39), 2**39) for x in clipped.tolist()]
        moved = [a - b for a, b in zip(*seen, strict=True)]
        assert moved == [kept[0] ** 2, kept[0] * kept[1], kept[1] ** 2]

    def test_noise_is_fresh(self):
        first, second = (private_second_moment(ROWS, 1.0, 1.0, 1e-6).matrix for _ in range(2))
        assert (first != second).any()


class TestSubspaces:
    def test_enough_records_show_their_directions(self):
        random = np.random.default_rng(1)
        rows = random.standard_normal((20_000, 30)) * ([1.0] * 2 + [0.05] * 28)
        moment = private_second_moment(rows, 1.0, 1.0, 1e-6, generator=SeededForExperiments(1))
        spaces = moment.subspaces([2])
        assert spaces.ranks == (2, 28)
        assert np.linalg.svd(spaces.basis[:2], compute_uv=False).min() > 0.99
        assert str(spaces.provenance) == "released"
        assert spaces.notes == ()

    def test_directions_of_noise_are_noted(self):
        moment = private_second_moment(ROWS, 1.0, 0.1, 1e-6, generator=SeededForExperiments(1))
        assert "noise level" in moment.subspaces([6]).notes[0]

    def test_noise_ends_at_its_level(self):
        rows = np.zeros((1, 200))
        moment = private_second_moment(rows, 1.0, 1.0, 1e-6, generator=SeededForExperiments(2))
        assert np.linalg.eigvalsh(moment.matrix)[-1] == pytest.approx(moment.noise_level, rel=0.1)

    @pytest.mark.parametrize("ranks", [[], [7], [0]])
    def test_ranks(self, ranks):
        with pytest.raises(ValueError, match="rank"):
            private_second_moment(ROWS, 1.0, 1.0, 1e-6).subspaces(ranks)


class TestRefusals:
    @pytest.mark.parametrize("rows", [np.ones(4), np.ones((2, 5000)), np.ones((2, 0))])
    def test_shape(self, rows):
        with pytest.raises(ValueError, match="rows must be a table"):
            private_second_moment(rows, 1.0, 1.0, 1e-6)

    @pytest.mark.parametrize("clip", [0.0, -1.0, math.nan, math.inf])
    def test_clip(self, clip):
        with pytest.raises(ValueError, match="clip"):
            private_second_moment(ROWS, clip, 1.0, 1e-6)

    def test_non_finite_rows_can_be_refused(self):
        with pytest.raises(ValueError, match="finite"):
            private_second_moment([[math.nan]], 1.0, 1.0, 1e-6, non_finite="raise")
