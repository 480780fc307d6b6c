"""The shape of public vectors: measured on others than it was learnt from, and of use."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.errors import UnsoundConfiguration
from taut.noise import SeededForExperiments, optimal_gaussian
from taut.noise.geometry import geometry_report, private_second_moment


def decaying(count=400, dimension=60, power=1.0, seed=0):
    rows = np.random.default_rng(seed).standard_normal((count, dimension))
    return rows / np.arange(1, dimension + 1) ** power


PUBLIC = decaying()
REPORT = geometry_report(PUBLIC, provenance="public", clip=1.0, directions=30)
HELD = PUBLIC[1::2] * np.minimum(1, 1 / np.linalg.norm(PUBLIC[1::2], axis=1))[:, None]


class TestMeasures:
    @pytest.mark.parametrize("k", [1, 7, 30])
    def test_directions_by_projection(self, k):
        basis = REPORT.subspaces.basis[:, :k]
        inside = HELD @ basis @ basis.T
        lengths = np.linalg.norm(inside, axis=1)
        lost = np.linalg.norm(HELD - inside, axis=1).mean()
        assert REPORT.direction_residuals[k - 1] == pytest.approx(lost, rel=1e-10)
        assert REPORT.projected_means[k - 1] == pytest.approx(lengths.mean(), rel=1e-10)
        assert REPORT.projected_deviations[k - 1] == pytest.approx(lengths.std(), rel=1e-9)

    @pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 1.0])
    def test_coordinates_by_masks(self, share):
        learnt = PUBLIC[::2] * np.minimum(1, 1 / np.linalg.norm(PUBLIC[::2], axis=1))[:, None]
        dropped = np.argsort(-np.abs(learnt).mean(axis=0))[math.ceil(share * 60) :]
        lost = np.linalg.norm(HELD[:, dropped], axis=1).mean()
        (found,) = REPORT.share_residuals[REPORT.shares == share]
        assert found == pytest.approx(lost, rel=1e-10)

    def test_entries_and_variation(self):
        assert REPORT.entries == pytest.approx(np.abs(HELD).max(axis=1))
        spread, mean = HELD.std(axis=0), HELD.mean(axis=0)
        assert REPORT.variation == pytest.approx(spread / np.abs(mean))

    def test_variation_of_constant_and_of_centred_coordinates(self):
        rows = np.tile(
            [[1.0, 1.0, 0.0], [0.0, 2.0, 0.0], [1.0, 2.0, 0.0], [1.0, -2.0, 0.0]], (2, 1)
        )
        report = geometry_report(rows, provenance="public", clip=9.0, directions=1)
        assert report.variation == pytest.approx([1.0, math.inf, 0.0])

    def test_as_many_directions_as_rows_do_not_leave_nothing(self):
        rows = np.random.default_rng(0).standard_normal((40, 200))
        report = geometry_report(rows, provenance="public", clip=1.0, directions=20)
        # Of isotropic vectors, 20 directions of 200 hold a tenth, whoever chose them.
        assert report.direction_residuals[-1] == pytest.approx(math.sqrt(0.9), abs=0.02)

    def test_float32_says_the_same(self):
        report = geometry_report(
            PUBLIC.astype(np.float32), provenance="public", clip=1.0, directions=30
        )
        assert report.direction_residuals == pytest.approx(REPORT.direction_residuals, abs=1e-5)

    def test_clip_is_the_median_length_unless_given(self):
        report = geometry_report(PUBLIC, provenance="public", directions=3)
        assert report.clip == pytest.approx(np.median(np.linalg.norm(PUBLIC, axis=1)))


class TestSuggestion:
    def test_radii_in_proportion_to_mean_lengths(self):
        suggestion = REPORT.suggest([4, 10])
        parts = suggestion.blocks.parts(HELD)
        means = np.array([np.linalg.norm(part, axis=1).mean() for part in parts])
        assert suggestion.mean_norms == pytest.approx(means, rel=1e-9)
        assert suggestion.blocks.l2 == pytest.approx(means / np.linalg.norm(means), rel=1e-9)
        assert suggestion.ball.radius == pytest.approx(1.0)

    def test_radii_at_quantiles(self):
        suggestion = REPORT.suggest([4], allocation="quantile", quantile=0.75)
        for part, radius in zip(suggestion.blocks.parts(HELD), suggestion.blocks.l2, strict=True):
            assert np.mean(np.linalg.norm(part, axis=1) <= radius) == pytest.approx(0.75, abs=0.01)

    @settings(max_examples=20, deadline=None)
    @given(
        ranks=st.lists(st.integers(1, 10), min_size=1, max_size=3),
        allocation=st.sampled_from(["mean", "quantile"]),
        quantile=st.floats(0.1, 1.0),
    )
    def test_ratio_is_the_closed_form_and_never_below_one(self, ranks, allocation, quantile):
        suggestion = REPORT.suggest(ranks, allocation=allocation, quantile=quantile)
        c, r = suggestion.blocks.l2, np.array(suggestion.blocks.ranks)
        expected = r.sum() * (c @ c) / (c @ np.sqrt(r)) ** 2
        assert suggestion.variance_ratio == pytest.approx(expected, rel=1e-9)
        assert suggestion.variance_ratio >= 1 - 1e-12
        variances = c / np.sqrt(r) * (c @ np.sqrt(r))
        assert suggestion.variances == pytest.approx(variances, rel=1e-9)
        noise = optimal_gaussian(suggestion.blocks, epsilon=1.0, delta=1e-6)
        assert noise.loss.epsilon(delta=1e-6) <= 1.0

    def test_default_rank_is_the_best_of_all(self):
        best = REPORT.suggest()
        others = [REPORT.suggest([k]).variance_ratio for k in range(1, 31)]
        assert best.variance_ratio == pytest.approx(max(others), rel=1e-9)

    def test_entry_bounds_hold_for_their_share_in_the_turned_basis(self):
        suggestion = REPORT.suggest([20], quantile=0.8)
        inside = suggestion.blocks.parts(HELD)[0]
        held = np.abs(inside).max(axis=1) <= suggestion.entry_bounds[0]
        assert held.mean() == pytest.approx(0.8, abs=0.01)
        reach = (suggestion.blocks.l2[0] / suggestion.entry_bounds[0]) ** 2
        assert suggestion.spreads == pytest.approx([min(max(reach, 1), 20)])

    def test_whole_space_in_blocks(self):
        report = geometry_report(PUBLIC[:, :5], provenance="public", clip=1.0, directions=5)
        suggestion = report.suggest([2, 3])
        assert suggestion.blocks.ranks == (2, 3)
        assert suggestion.variances.size == 2

    def test_blocks_that_are_never_reached(self):
        rows = np.zeros((20, 6))
        rows[:, 0] = np.arange(1, 21)
        suggestion = geometry_report(rows, provenance="public", directions=1).suggest()
        assert suggestion.blocks.l2.min() > 0

    @pytest.mark.parametrize(
        ("arguments", "match"),
        [
            ({"allocation": "median"}, "allocation"),
            ({"quantile": 0.0}, "quantile"),
            ({"quantile": 1.5}, "quantile"),
            ({"ranks": [31]}, "at most 30"),
        ],
    )
    def test_refusals(self, arguments, match):
        with pytest.raises(ValueError, match=match):
            REPORT.suggest(**arguments)


class TestShown:
    def test_json(self):
        shown = json.loads(json.dumps(REPORT.to_dict(), allow_nan=False))
        assert shown["suggestion"]["variance_ratio"] == REPORT.suggest().variance_ratio
        assert len(shown["directions"]["residual"]) == 30
        assert shown["provenance"] == "public"

    def test_text(self):
        text = str(REPORT)
        assert "200 public vectors in 60 dimensions" in text
        assert "times less total variance" in text


class TestSecondMoment:
    ROWS = decaying(30_000, 40, power=1.5, seed=2)

    def report(self, **options):
        moment = private_second_moment(self.ROWS, 1.0, 1.0, 1e-6, generator=SeededForExperiments(0))
        return geometry_report(moment, provenance="released", **options)

    def test_lengths_are_close_to_those_of_the_records(self):
        report = self.report()
        basis = report.subspaces.basis
        rows = self.ROWS / np.maximum(1, np.linalg.norm(self.ROWS, axis=1))[:, None]
        inside = np.linalg.norm(rows @ basis) / np.linalg.norm(rows)
        assert report.projected_means[-1] == pytest.approx(inside, rel=0.02)
        assert basis.shape[1] > 3

    def test_suggests_blocks_without_entries(self):
        report = self.report()
        suggestion = report.suggest()
        assert suggestion.entry_bounds.size == 0
        assert suggestion.variance_ratio > 1.5
        json.dumps(report.to_dict(), allow_nan=False)
        assert "a second moment" in str(report)

    def test_directions_of_noise_are_noted(self):
        assert any("noise level" in note for note in self.report(directions=40).notes)

    def test_it_is_released_not_public(self):
        moment = private_second_moment(self.ROWS, 1.0, 1.0, 1e-6)
        with pytest.raises(ValueError, match="released"):
            geometry_report(moment, provenance="public")


class TestRefusals:
    def test_private_vectors(self):
        with pytest.raises(UnsoundConfiguration, match="private_second_moment"):
            geometry_report(PUBLIC, provenance="private")

    def test_too_few(self):
        with pytest.raises(ValueError, match="at least 4"):
            geometry_report(PUBLIC[:3], provenance="public")

    def test_zeros(self):
        with pytest.raises(ValueError, match="clip must be given"):
            geometry_report(np.zeros((8, 3)), provenance="public")

    def test_more_directions_than_there_are(self):
        with pytest.raises(ValueError, match="numerical rank"):
            geometry_report(PUBLIC[:20], provenance="public", directions=11)
