"""How many trials are worth it: every option keeps the promise, and more trials need more noise."""

import pytest

import taut
from taut.accounting import Trials, best_of
from taut.adaptive import plan_tuning


def loss(sigma):
    return 100 * taut.gaussian(sigma).poisson(0.05)


def test_every_option_keeps_the_promise():
    plan = plan_tuning(loss, epsilon=2.0, delta=1e-6, settings=8, means=[1, 4, 16])
    assert [option.trials.expected for option in plan.options] == pytest.approx([1, 4, 16])
    noises = [option.noise_multiplier for option in plan.options]
    assert noises == sorted(noises)
    for option in plan.options:
        total = best_of(loss(option.noise_multiplier), option.trials)
        assert 1.98 < total.epsilon(1e-6) <= 2.0
        assert option.own_epsilon == pytest.approx(loss(option.noise_multiplier).epsilon(1e-6))
    assert plan.options[0].noise_factor == pytest.approx(1, rel=2e-3)
    assert plan.options[0].found == pytest.approx(1 / 8)
    assert "epsilon of one" in str(plan)


@pytest.mark.slow
def test_number_of_settings_is_optional():
    (option,) = plan_tuning(loss, epsilon=2.0, delta=1e-6, means=[2], shape=1.0).options
    assert option.found is None
    assert option.trials == Trials.geometric(2)
