"""Normal equations without rounding, and samples on a public grid."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from taut.estimators._posterior.equations import LARGEST_SIZE, equations_of, precisely
from taut.estimators._posterior.samples import grid_exponent, in_doubles, rounded_sample
from taut.noise import SeededForExperiments

ROWS = np.random.default_rng(0).normal(size=(40, 3)) / 3
TARGETS = np.random.default_rng(1).normal(size=40)


def equations(rows=ROWS, targets=TARGETS, **given):
    clips = {"row_clip": 1.0, "target_clip": 1.0, **given}
    return equations_of([np.column_stack([rows, targets])], rows.shape[1], **clips)


class TestEquations:
    def test_are_sums_of_clipped_records_in_units_of_the_clips(self):
        small = ROWS / 4
        ours = equations(small, TARGETS, row_clip=4.0, target_clip=0.5)
        assert ours.gram.astype(float) == pytest.approx(small.T @ small / 16)
        cross = small.T @ np.clip(TARGETS, -0.5, 0.5) / 2
        assert ours.cross.astype(float) == pytest.approx(cross)

    def test_count_records_with_nan_as_zero(self):
        spoilt = np.vstack([ROWS, [[np.nan, 1, 1], [1, np.inf, 1]]])
        more = np.append(TARGETS, [1.0, 1.0])
        assert (equations(spoilt, more).gram == equations().gram).all()

    def test_add_public_penalties(self):
        heavier = equations(penalties=(0.5, 0.0, 0.25))
        assert list(np.diag(heavier.gram - equations().gram)) == [
            Fraction(1, 2),
            Fraction(0),
            Fraction(1, 4),
        ]

    def test_do_not_depend_on_the_order_of_records(self):
        assert (equations(ROWS[::-1], TARGETS[::-1]).cross == equations().cross).all()

    def test_are_solved_to_all_digits(self):
        ours = equations()
        solution = ours.ridge(0.5).solution
        with precisely():
            for i in range(3):
                left = sum(
                    Decimal(entry.numerator) / Decimal(entry.denominator) * one
                    for entry, one in zip(ours.gram[i], solution, strict=True)
                )
                right = Decimal(ours.cross[i].numerator) / Decimal(ours.cross[i].denominator)
                assert abs(left + solution[i] / 2 - right) < Decimal(10) ** -190

    def test_bound_residuals(self):
        ours = equations()
        solution = np.array([float(one) for one in ours.ridge(0.5).solution])
        expected = math.log(1 + np.linalg.norm(solution))
        assert ours.ridge(0.5).log_residual == pytest.approx(expected, rel=1e-12)

    @pytest.mark.parametrize("scale", [1.0, 1e-3])
    def test_round_the_smallest_eigenvalue_down(self, scale):
        rows = ROWS * [1.0, 1.0, scale]
        exact = np.linalg.eigvalsh(rows.T @ rows)[0]
        found = equations(rows).least_eigenvalue
        assert exact - 2**-20 - 1e-12 <= found <= exact + 1e-12

    def test_have_a_smallest_eigenvalue_of_zero_without_rank(self):
        rows = np.column_stack([ROWS[:, 0], ROWS[:, 0], ROWS[:, 1]])
        assert equations(rows / 2).least_eigenvalue == 0.0
        assert equations(np.zeros((0, 2)), np.zeros(0)).least_eigenvalue == 0.0

    def test_find_the_smallest_eigenvalue_from_any_guess(self, monkeypatch):
        exact = equations().least_eigenvalue
        for guess in (0.0, exact * 1.5, exact / 3):
            monkeypatch.setattr(np.linalg, "eigvalsh", lambda _, guess=guess: np.array([guess]))
            assert equations().least_eigenvalue == exact

    def test_refuse_what_error_bounds_do_not_cover(self):
        for ridge in (0.0, 2.0**-41, 2.0**61, math.nan):
            with pytest.raises(ValueError, match="ridge"):
                equations().ridge(ridge)
        wide = np.zeros((1, LARGEST_SIZE + 1))
        with pytest.raises(ValueError, match="features"):
            equations(wide, np.zeros(1))


class TestSamples:
    @staticmethod
    def drawn(count, ridge=0.5, precision=2.0, seed=0):
        solved, exponent = equations().ridge(ridge), grid_exponent(ridge, precision)
        source = SeededForExperiments(seed)
        return np.array(
            [
                in_doubles(rounded_sample(solved, precision, exponent, source), exponent, 1.0)
                for _ in range(count)
            ]
        ), solved

    def test_are_normal_around_the_solution(self):
        found, solved = self.drawn(700)
        clipped = ROWS / np.maximum(np.linalg.norm(ROWS, axis=1, keepdims=True), 1)
        matrix = 2.0 * (clipped.T @ clipped + 0.5 * np.eye(3))
        root = np.linalg.cholesky(matrix)
        away = (found - [float(one) for one in solved.solution]) @ root
        for column in away.T:
            assert stats.kstest(column, "norm").pvalue > 1e-3
        assert np.cov(away.T) == pytest.approx(np.eye(3), abs=0.2)

    def test_lie_on_the_public_grid(self):
        found, _ = self.drawn(20)
        steps = np.ldexp(found, -grid_exponent(0.5, 2.0))
        assert (steps == np.rint(steps)).all()
        assert 2.0 ** grid_exponent(0.5, 2.0) <= 2.0**-39

    def test_use_all_bits_of_the_grid(self):
        found, _ = self.drawn(20)
        assert (np.ldexp(found, -grid_exponent(0.5, 2.0)) % 2).any()

    def test_of_extreme_precision_are_numbers(self):
        for precision in (1e-200, 1e200):
            solved, exponent = equations().ridge(1.0), grid_exponent(1.0, precision)
            steps = rounded_sample(solved, precision, exponent, SeededForExperiments(0))
            assert np.isfinite(in_doubles(steps, exponent, 1.0)).all()
