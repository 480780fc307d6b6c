"""E53: the bound on the loss of a vote is negative as printed, and the loss rises with the lead."""

import math

import numpy as np
import pytest

from taut.adaptive import vote_losses


def minority(lead, epsilon):
    return (2 + epsilon * lead) / 4 * math.exp(-epsilon * lead)


@pytest.mark.parametrize("lead", [0, 3, 10, 100])
def test_printed_bound_is_negative(lead):
    epsilon = 1.0
    inner = math.log(1 - epsilon / (2 + epsilon * (lead + 1)))
    exact = math.log(minority(lead, epsilon) / minority(lead + 1, epsilon))
    assert epsilon * inner < 0 < exact
    assert exact == pytest.approx(epsilon + inner)


def test_pure_loss_rises_to_epsilon_and_that_at_delta_falls_to_zero():
    leads = np.arange(1.0, 60.0)
    pure = vote_losses(leads, 1.0, 0.0)
    assert (np.diff(pure) > 0).all()
    assert 0.98 < pure[-1] < 1
    at_delta = vote_losses(leads, 1.0, 1e-6)
    assert at_delta.argmax() > 5
    assert (at_delta[leads >= 16] == 0).all()
