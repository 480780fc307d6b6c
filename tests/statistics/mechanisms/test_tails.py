"""How far noise reaches, compared with densities and draws of the noise itself."""

import numpy as np
import pytest
from scipy.integrate import trapezoid

from taut.noise import Box, L1Ball, SeededForExperiments, staircase
from taut.statistics._mechanisms.tails import deviations_within


@pytest.mark.parametrize("level", [0.95, 0.99, 0.999, 0.99999])
def test_staircase_noise_stays_within_its_reach_as_often_as_its_density_says(level):
    # Four thousand draws told the reach before: at 0.999 noise was beyond it twice as often.
    noise = staircase(L1Ball(1, 1.0), epsilon=1.0, power=2.0)
    reach = deviations_within(noise, level) * np.sqrt(noise.coordinate_errors()[0])
    points = np.linspace(reach, reach + 60 * noise.scales[0], 1_000_001)
    beyond = 2 * trapezoid(noise.density(points[:, None]), points)
    assert beyond == pytest.approx(1 - level, rel=1e-4)


def test_staircase_noise_in_the_plane_stays_within_its_reach():
    noise = staircase(Box([1.0, 0.5]), epsilon=1.0, power=2.0)
    source = SeededForExperiments(seed=1)
    drawn = np.array([noise.sample(source) for _ in range(10_000)])
    away = np.abs(drawn) / np.sqrt(noise.coordinate_errors())
    for level in (0.95, 0.99):
        beyond = (away > deviations_within(noise, level)).mean(axis=0)
        assert beyond == pytest.approx(1 - level, rel=0.25)


def test_what_is_computed_from_several_coordinates_may_be_nearly_normal():
    noise = staircase(L1Ball(1, 1.0), epsilon=10.0, power=2.0)  # nearly always within one deviation
    assert deviations_within(noise, 0.95) == pytest.approx(1.96, abs=0.01)
