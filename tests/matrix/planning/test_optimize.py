import pytest

from taut.matrix import (
    CyclicPoisson,
    FixedOrder,
    PoissonRounds,
    Workload,
    amplified_loss,
    errors,
    identity,
    optimize,
    sensitivity,
    unamplified_loss,
)

SUMS = Workload(96)
DELTA = 1e-6


@pytest.fixture(scope="module")
def ranking():
    return optimize(SUMS, epochs=6, epsilon=3, delta=DELTA)


def test_every_row_keeps_the_promise_and_is_near_it(ranking):
    for row in ranking:
        upper = row.loss.epsilon(DELTA)
        assert upper <= 3, row
        if row.sampling == "balls_in_bins":  # whose bound leaps, where another one takes over
            less = amplified_loss(row.encoder, row.sampler, 0.95 * row.sigma, delta=DELTA)
            assert less.epsilon(DELTA) > 3, row
        else:
            assert upper > 3 * (1 - 2e-3), row
        assert str(row.loss.adjacency) == "zero_out"


def test_rows_come_in_the_order_of_their_errors(ranking):
    found = [row.root_mean_square for row in ranking.rows]
    assert found == sorted(found)
    assert ranking.best is ranking.rows[0]
    assert len({(row.noise, row.sampling) for row in ranking.leaders}) == len(ranking.leaders)


def test_errors_and_losses_are_those_of_single_calls(ranking):
    for name in ("independent, poisson", "banded, cyclic_poisson", "blt, fixed_order"):
        row = ranking[name]
        unit = sensitivity(row.encoder).value
        assert row.noise_multiplier == pytest.approx(row.sigma / unit, rel=1e-9)
        found = errors(row.encoder, SUMS)
        assert row.root_mean_square == pytest.approx(row.noise_multiplier * found.root_mean_square)
        assert row.maximum == pytest.approx(row.noise_multiplier * found.maximum)
    cyclic = ranking["cyclic_poisson"]
    assert cyclic.sampler == CyclicPoisson(cyclic.bands, cyclic.bands / 16)
    again = amplified_loss(cyclic.encoder, cyclic.sampler, cyclic.sigma, delta=DELTA)
    assert again.epsilon(DELTA) <= 3
    order = ranking["blt, fixed_order"]
    assert order.sampler == FixedOrder(16)
    assert unamplified_loss(order.encoder, order.sampler, order.sigma).epsilon(DELTA) <= 3


def test_independent_noise_is_ranked_under_poisson_and_under_allocation(ranking):
    poisson, allocated = ranking["independent, poisson"], ranking["independent, allocation"]
    assert poisson.sampler == PoissonRounds(1 / 16)
    assert poisson.encoder == allocated.encoder == identity(96)
    assert ranking.error_of(ranking.best) < min(poisson.root_mean_square, allocated.maximum)


def test_bands_are_refined_beyond_powers_of_two(ranking):
    tried = {
        row.bands for row in ranking if (row.noise, row.sampling) == ("banded", "cyclic_poisson")
    }
    assert tried - {2, 4, 8, 16}
    assert max(tried) <= 16


def test_any_number_of_bands_can_be_asked_for():
    found = optimize(
        SUMS, epochs=6, epsilon=3, delta=DELTA, samplers=["cyclic_poisson"], bands=[3, 7]
    )
    assert sorted(row.bands for row in found) == [3, 7]


def test_the_largest_error_can_be_the_goal():
    found = optimize(
        SUMS, epochs=6, epsilon=3, delta=DELTA, samplers=["fixed_order"], goal="maximum"
    )
    assert [row.maximum for row in found] == sorted(row.maximum for row in found)
    assert found.error_of(found.best) == found.best.maximum


def test_progress_is_told_and_ends_with_all_rows():
    told = []
    found = optimize(
        SUMS, epochs=6, epsilon=1, delta=DELTA, samplers=["cyclic_poisson"],
        progress=lambda *news: told.append(news),
    )  # fmt: skip
    done, total, text = told[-1]
    assert done == total == len(found.rows)
    assert text == ""
    assert "banded, 2 bands, cyclic_poisson" in {news[2] for news in told}


def test_tables_and_dictionaries_hold_the_rows(ranking):
    assert str(ranking).splitlines()[1].endswith("1.000")
    described = ranking.to_dict()
    assert len(described["rows"]) == len(ranking.rows)
    assert described["rows"][0]["sigma"] == ranking.best.sigma


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"epochs": 7}, "nearest"),
        ({"epsilon": 0}, "epsilon"),
        ({"delta": 1}, "delta"),
        ({"samplers": ["shuffle"]}, "'balls_in_bins'"),
        ({"samplers": []}, "samplers"),
        ({"goal": "median"}, "goal"),
        ({"samplers": ["cyclic_poisson"], "bands": [64]}, "no combination"),
    ],
)
def test_what_cannot_be_ranked_is_refused(wrong, says):
    with pytest.raises(ValueError, match=says):
        optimize(SUMS, **{"epochs": 6, "epsilon": 1, "delta": DELTA, **wrong})


def test_unknown_rows_name_those_there_are(ranking):
    with pytest.raises(KeyError, match="blt, fixed_order"):
        ranking["tree"]
