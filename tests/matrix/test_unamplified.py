import numpy as np
import pytest

import taut
from taut.errors import UnsoundConfiguration
from taut.matrix import (
    FixedOrder,
    MinimumSeparation,
    SingleParticipation,
    TreeEncoder,
    Workload,
    identity,
    sensitivity,
    square_root,
    unamplified_loss,
)

REFERENCE = {4: 1.0607018623, 8: 0.503855615, 10: 0.3968573776}


@pytest.mark.parametrize("scale", REFERENCE)
def test_tree_has_the_reference_value(scale):
    tree = TreeEncoder(1024)
    sigma = scale * np.sqrt(11)
    loss = unamplified_loss(tree, SingleParticipation(), sigma)
    assert loss.epsilon(delta=1e-6) == pytest.approx(REFERENCE[scale], rel=1e-8)
    assert loss.adjacency == taut.Adjacency.ZERO_OUT


def test_identity_in_every_step_is_a_sum_of_gaussians():
    loss = unamplified_loss(identity(50), MinimumSeparation(1), 9.0, adjacency="add_remove")
    assert loss.epsilon(1e-6) == pytest.approx((50 * taut.gaussian(9.0)).epsilon(1e-6))


def test_replacing_costs_twice_the_sensitivity():
    encoder, rule = square_root(Workload(40), 8), FixedOrder(8)
    size = sensitivity(encoder, rule).value
    loss = unamplified_loss(encoder, rule, 5.0, adjacency="replace")
    assert loss == taut.gaussian(5.0, 2 * size, adjacency="replace")


def test_a_fixed_order_is_refused_under_add_remove():
    with pytest.raises(UnsoundConfiguration, match="later examples move to other steps"):
        unamplified_loss(identity(4), FixedOrder(2), 1.0, adjacency="add_remove")


def test_sigma_must_be_positive():
    with pytest.raises(ValueError, match="sigma must be finite and greater than 0"):
        unamplified_loss(identity(4), FixedOrder(2), 0.0)
