"""One run under every sampler."""

import pytest

import taut
from taut.accounting import Mask

RUN = {"batch_size": 100, "examples": 10_000, "steps": 1_000, "delta": 1e-5}


@pytest.fixture(scope="module")
def runs():
    return taut.compare_samplers(1.0, **RUN)


@pytest.fixture(scope="module")
def masked():
    return taut.compare_samplers(1.0, **RUN, mask=Mask())


def test_every_row_is_the_run_that_was_asked_for(runs):
    rate = RUN["batch_size"] / RUN["examples"]
    assert runs["poisson"].loss == RUN["steps"] * taut.gaussian(1.0).poisson(rate)
    first = runs.runs[0]
    assert first.sampler == "allocation"
    assert first.loss == RUN["steps"] // 100 * taut.gaussian(1.0).allocated(100)
    named = {"allocation", "poisson", "fixed_size", "shuffle"}
    assert {run.sampler for run in runs.runs} == named
    assert runs.others == ()


def test_other_runs_stand_apart_and_are_called_so(runs, masked):
    assert [run.epsilon for run in masked.runs] == [run.epsilon for run in runs.runs]
    assert [run.sampler for run in masked.others] == ["equal_compute_poisson", "twice_sampled"]
    assert all(run.assumes.startswith("another run: ") for run in masked.others)
    above, below = str(masked).split("other runs than the one above")
    assert "equal_compute" not in above
    assert above.strip() == str(runs)
    assert "equal_compute_poisson" in below
    assert "noise multiplier 2," in below


def test_samplers_of_most_records_need_no_mask():
    runs = taut.compare_samplers(1.0, **{**RUN, "batch_size": 6_000, "steps": 10})
    assert runs["Poisson"].loss == 10 * taut.gaussian(1.0).poisson(0.6)


def test_known_epsilons(runs):
    assert runs["Poisson, add_remove"].epsilon.upper == pytest.approx(1.8282, rel=1e-3)
    assert runs["Allocation, add_remove"].epsilon.upper == pytest.approx(1.701, rel=1e-3)
    assert runs["fixed size, add_remove"].epsilon.upper == pytest.approx(13.36, rel=1e-3)
    ten_epochs = 10 * taut.gaussian(1.0, adjacency="zero_out")
    assert runs["shuffled"].epsilon.upper == ten_epochs.epsilon(1e-5)


def test_equal_compute_beats_twice_sampling(masked):
    assert masked["equal-compute Poisson"].epsilon.upper < masked["twice sampled"].epsilon.upper


def test_sorted_by_epsilon(masked):
    for runs in (masked.runs, masked.others):
        uppers = [run.epsilon.upper for run in runs]
        assert uppers == sorted(uppers)


def test_every_run_is_recomputable(masked):
    for run in (*masked.runs, *masked.others):
        assert run.loss.epsilon_bounds(run.delta) == run.epsilon
        assert run.loss == run.loss_of(run.steps)
        again = taut.PrivacyLoss.from_dict(run.loss.to_dict())
        assert again == run.loss


def test_table_names_relation_and_assumptions(masked):
    table = str(masked)
    for run in (*masked.runs, *masked.others):
        assert str(run.adjacency) in table
        assert run.assumes in table
    assert "no amplification is claimed" in table


def test_epochs_are_rounded_up():
    runs = taut.compare_samplers(1.0, **{**RUN, "steps": 101})
    assert runs["shuffled"].loss == 2 * taut.gaussian(1.0, adjacency="zero_out")


def test_dictionary(masked):
    data = masked.to_dict()
    rows = data["runs"]
    assert len(rows) == len(masked.runs)
    assert [row["sampler"] for row in data["others"]] == [run.sampler for run in masked.others]
    assert {"sampler", "adjacency", "epsilon", "delta", "assumes", "loss"} == set(rows[0])


@pytest.mark.parametrize(
    ("old", "name"),
    [
        ("Poisson", "poisson, add_remove"),
        ("Poisson, replace", "poisson, replace"),
        ("fixed size, replace", "fixed_size, replace"),
        ("shuffled epochs", "shuffle"),
        ("equal-compute Poisson", "equal_compute_poisson"),
        ("twice sampled", "twice"),
    ],
)
def test_names_of_earlier_versions_are_understood(masked, old, name):
    assert masked[old] is masked[name]


def test_unknown_sampler(runs):
    with pytest.raises(KeyError, match=r"there are: .*fixed_size"):
        runs["bootstrap"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 10_000}, "smaller than examples"),
        ({"batch_size": 0}, "batch_size"),
        ({"steps": 0}, "steps"),
        ({"delta": 1.0}, "delta"),
        ({"batch_size": 6_000, "mask": Mask()}, "record rate of 1.2"),
    ],
)
def test_bad_arguments(change, message):
    with pytest.raises(ValueError, match=message):
        taut.compare_samplers(1.0, **{**RUN, **change})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((0.0,), "rate"), ((1.5,), "rate"), ((0.5, 0.0), "clip_inf"), ((0.5, 0.1, 0), "dimension")],
)
def test_bad_masks(arguments, message):
    with pytest.raises(ValueError, match=message):
        Mask(*arguments)
