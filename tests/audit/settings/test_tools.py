"""Settings as people have them: what is read, what is promised, what is missing."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize, stats

import taut
from taut.audit import check_settings

FILES = Path(__file__).parent / "files"


def only(name, **given):
    (setting,) = check_settings(FILES / name, **given).settings
    return setting


@pytest.fixture
def written(tmp_path):
    def write(text, name="settings.py"):
        path = tmp_path / name
        path.write_text(text if isinstance(text, str) else json.dumps(text))
        return path

    return write


def test_opacus_script_with_options():
    setting = only("opacus_mnist.py.txt", examples=60_000)
    (reading,) = setting.readings
    loss = 10 * 938 * taut.gaussian(1.0).poisson(1 / 938)
    assert reading.bounds == loss.epsilon_bounds(1e-5)
    assert reading.accounted
    assert setting.passes
    assert setting.unit == "example"
    assert setting.read["batch_size"] == "64 (line 11, default of --batch-size)"
    assert any("secure_mode" in text for text in setting.missing)


def test_opacus_without_sizes_says_what_to_add():
    setting = only("opacus_mnist.py.txt")
    assert setting.readings[0].bounds is None
    assert not setting.passes
    assert any("--examples" in text for text in setting.missing)


def test_opacus_that_does_not_sample_is_told_so(written):
    path = written(
        "engine.make_private(data_loader=DataLoader(d, batch_size=100), noise_multiplier=1.0,"
        "max_grad_norm=1.0, poisson_sampling=False)"
    )
    (setting,) = check_settings(path, examples=10_000, epochs=10, delta=1e-5).settings
    (reading,) = setting.readings
    poisson = (1_000 * taut.gaussian(1.0).poisson(0.01)).epsilon(1e-5)
    assert reading.name == "shuffled batches"
    assert reading.bounds.upper == (10 * taut.gaussian(1.0)).epsilon(1e-5)
    assert poisson < reading.bounds.lower  # what the tool reports is refuted
    assert "poisson_sampling=False" in setting.false_promises[0]
    assert not setting.passes


@pytest.mark.parametrize(("examples", "is_open"), [(10_000, False), (10_001, True)])
def test_records_that_may_be_left_out_have_no_lower_bound(written, examples, is_open):
    path = written(
        "engine.make_private(data_loader=DataLoader(d, batch_size=100, drop_last=True),"
        "noise_multiplier=1.0, max_grad_norm=1.0, poisson_sampling=False)"
    )
    (setting,) = check_settings(path, examples=examples, epochs=10, delta=1e-5).settings
    (reading,) = setting.readings
    assert (reading.bounds.lower == 0.0) == is_open


def test_opacus_that_calibrates_is_read_both_ways_where_it_is_open():
    setting = only("opacus_notebook.json", examples=10_000)
    poisson, shuffled = setting.readings
    assert poisson.bounds.upper <= setting.claimed == 3.0
    assert poisson.bounds.lower > 2.98
    assert shuffled.bounds.lower > 3.0
    assert any("not DEBUG" in text for text in setting.missing)


@pytest.mark.parametrize("schedule", ["ExponentialNoise(o, gamma=0.9)", "LambdaNoise(o, **of)"])
def test_opacus_noise_that_changes_is_not_that_of_the_first_step(written, schedule):
    code = f"make_private(noise_multiplier=9.0, max_grad_norm=1.0)\n{schedule}"
    sizes = {"examples": 10_000, "batch_size": 100, "epochs": 1, "delta": 1e-5}
    found = check_settings(written(code), **sizes)
    assert not found.passes
    assert [setting.promised for setting in found.settings] == [None, None]
    assert all("the noise of every step" in str(setting) for setting in found.settings)


def test_opacus_gdp_accountant_is_an_estimate(written):
    path = written(
        "e = PrivacyEngine(accountant='gdp', secure_mode=True)\n"
        "e.make_private(noise_multiplier=1.0, max_grad_norm=1.0)"
    )
    (setting,) = check_settings(path).settings
    assert any("central-limit" in text for text in setting.false_promises)
    assert not any("secure_mode" in text for text in setting.missing)


def test_flower_in_pyproject():
    setting = only("flower_pyproject.toml", delta=1e-3)
    fresh, unsampled, weighted = setting.readings
    step = taut.gaussian(0.2, 2.0, adjacency="replace")
    assert fresh.bounds == (3 * step.fixed_size(20, 100, "replace")).epsilon_bounds(1e-3)
    assert unsampled.bounds == (3 * taut.gaussian(0.2, adjacency="zero_out")).epsilon_bounds(1e-3)
    assert weighted.bounds.lower == 0 < fresh.bounds.upper < weighted.bounds.upper
    assert setting.unit == "client"
    assert setting.read["clients"].startswith("100 (tool.flwr.federations")
    assert any("weighs clients" in text for text in setting.false_promises)


def test_flower_mean_with_weights_moves_further_than_its_noise_covers():
    """An independent look at the false promise: the mean of two clients, one with all examples."""
    updates, clipped = [1.0, -1.0], 1.0
    mean = lambda weights: sum(u * w for u, w in zip(updates, weights, strict=True)) / sum(weights)  # noqa: E731
    moved = abs(mean([1_000, 1]) - mean([1, 1_000]))
    assert moved > 2 * clipped / 2  # what noise of a share covers, for two clients


def test_flower_adaptive_and_local():
    adaptive, local = check_settings(FILES / "flower_server.py.txt", clients=100).settings
    assert any("adapted before noise" in text for text in adaptive.false_promises)
    assert any("who clips" in text for text in adaptive.missing)
    sigma = math.sqrt(2 * math.log(1.25e5))
    assert local.readings[0].bounds == (
        50 * taut.gaussian(sigma, 2.0, adjacency="replace")
    ).epsilon_bounds(1e-5)
    assert len(local.false_promises) == 3  # sensitivity, the formula, the rounds


def test_flower_local_noise_of_one_round_is_recomputed(written):
    """One round against the closed form of Balle and Wang (2018)."""
    path = written({"clipping_norm": 1, "sensitivity": 2, "epsilon": 0.9, "delta": 1e-5}, "a.json")
    (setting,) = check_settings(path, rounds=1).settings
    mu = 0.9 / math.sqrt(2 * math.log(1.25e5))
    exact = optimize.brentq(
        lambda e: (
            stats.norm.cdf(mu / 2 - e / mu) - math.exp(e) * stats.norm.cdf(-mu / 2 - e / mu) - 1e-5
        ),
        1e-3,
        2,
    )
    lower, upper = setting.readings[0].bounds
    assert lower <= exact <= upper <= setting.claimed
    assert setting.passes


def test_nvflare_filters():
    svt, percentile = check_settings(
        FILES / "nvflare_client.json", parameters=7_033_300, rounds=1
    ).settings
    assert svt.readings[0].bounds == (pytest.approx(70_333), math.inf)
    assert any("0.1 is stated" in text for text in svt.false_promises)
    assert percentile.readings[0].bounds == (math.inf, math.inf)
    assert "no differential privacy" in percentile.false_promises[0]
    assert not svt.passes
    assert not percentile.passes


def test_nvflare_release_budget_needs_no_size(written):
    path = written({"path": "x.SVTPrivacy", "args": {"epsilon_release": 3.0}}, "a.json")
    (setting,) = check_settings(path, rounds=4).settings
    assert setting.readings[0].bounds == (12.0, math.inf)


def test_nvflare_lower_bound_by_counting():
    """Two values at the bound, clipped after noise: both at it, for one sign and the other."""
    noise_var, gamma = 0.3, 1.0
    noise = stats.laplace(scale=2 * gamma / noise_var)
    at_bound, at_other = noise.sf(0.0), noise.sf(2 * gamma)
    assert 2 * math.log(at_bound / at_other) == pytest.approx(2 * noise_var)


def test_jax_privacy_keras():
    setting = only("jax_keras.py.txt")
    poisson, shuffled = setting.readings
    assert setting.read["train_steps"].startswith("1000")
    assert poisson.bounds.upper <= 2.0 < shuffled.bounds.lower
    assert "poisson_sampling_in_fit" in setting.false_promises[0]


def test_jax_privacy_keras_that_samples(written):
    text = (
        (FILES / "jax_keras.py.txt")
        .read_text()
        .replace(
            "    train_size=TRAIN_SIZE,", "    train_size=TRAIN_SIZE, poisson_sampling_in_fit=True,"
        )
    )
    (setting,) = check_settings(written(text)).settings
    assert setting.passes
    lax = text.replace("epsilon=2.0", "epsilon=2.0, noise_multiplier=0.8")
    (setting,) = check_settings(written(lax)).settings
    assert not setting.passes
    assert "0.1 beyond" in setting.false_promises[0]


@pytest.mark.parametrize(
    ("call", "loss"),
    [
        (
            "dpsgd_event(1.0, 1000, sampling_prob=0.01)",
            1_000 * taut.gaussian(1.0).poisson(0.01),
        ),
        (
            "fixed_dpsgd_event(1.0, 100, dataset_size=1000, batch_size=10)",
            100 * taut.gaussian(1.0, 2.0, adjacency="replace").fixed_size(10, 1_000, "replace"),
        ),
        (
            "truncated_dpsgd_event(1.0, 10, sampling_prob=0.1, num_examples=100, "
            "truncated_batch_size=20)",
            10
            * taut.gaussian(1.0).truncated_poisson(
                0.1, 20, 100, taut.gaussian(1.0, 2.0, adjacency="replace"), or_fewer=True
            ),
        ),
    ],
)
def test_jax_privacy_events(written, call, loss):
    (setting,) = check_settings(written(f"event = accounting.{call}"), delta=1e-5).settings
    assert setting.readings[0].bounds == loss.epsilon_bounds(1e-5)


@pytest.mark.parametrize(
    "call",
    [
        "fixed_dpsgd_event(1.0, 100, dataset_size=1000, batch_size=10, replace=True)",
        "BandMFConfig(iterations=10, expected_participations=1, strategy=s)",
    ],
)
def test_jax_privacy_without_a_theorem_promises_nothing(written, call):
    (setting,) = check_settings(written(call), delta=1e-5).settings
    assert setting.readings[0].bounds is None
    assert not setting.passes


def test_tf_privacy_optimizer_with_microbatches():
    setting = only("tf_privacy.json")
    poisson, shuffled = setting.readings
    assert poisson.bounds == (3_600 * taut.gaussian(0.65).poisson(1 / 240)).epsilon_bounds(1e-5)
    assert shuffled.bounds.upper == (15 * taut.gaussian(0.65)).epsilon(1e-5)
    assert "clipped together" in setting.false_promises[0]


def test_tf_privacy_microbatches_have_a_floor_that_an_attack_reaches():
    """The event of the floor by its probabilities: one group of an epoch turned around, or none."""
    lower = only("tf_privacy.json").readings[1].bounds.lower
    at = np.linspace(0.0, 20.0, 20_001)
    others = 239 * stats.norm.logcdf(at, scale=1.3)
    turned = -np.expm1(stats.norm.logcdf(at - 2, scale=1.3) + others)
    plain = -np.expm1(stats.norm.logcdf(at, scale=1.3) + others)
    best = np.log((turned - 1e-5)[turned > 2e-5] / plain[turned > 2e-5]).max()
    assert lower == pytest.approx(best, rel=1e-3)


@pytest.mark.parametrize(
    ("call", "sigma"),
    [
        ("compute_dp_sgd_privacy(10000, 100, 1.0, 10, 1e-5)", 1.0),
        ("compute_dp_sgd_privacy_statement(10000, 100, 10, 1.0, 1e-5)", 0.5),
        (
            "compute_dp_sgd_privacy_statement(number_of_examples=10000, batch_size=100, "
            "num_epochs=10, noise_multiplier=1.0, delta=1e-5, used_microbatching=False)",
            1.0,
        ),
    ],
)
def test_tf_privacy_functions(written, call, sigma):
    (setting,) = check_settings(written(call)).settings
    expected = (1_000 * taut.gaussian(sigma).poisson(0.01)).epsilon_bounds(1e-5)
    assert setting.readings[0].bounds == expected
    assert {reading.name for reading in setting.readings} == {"Poisson batches", "shuffled batches"}


def test_tf_privacy_noise_from_a_budget(written):
    call = "compute_noise(n=10000, batch_size=100, target_epsilon=3.0, epochs=10, delta=1e-5)"
    (setting,) = check_settings(written(call)).settings
    assert setting.claimed == 3.0
    assert setting.readings[0].bounds.upper <= 3.0


@pytest.mark.parametrize("name", ["event.txt", "event.json"])
def test_events(name):
    setting = only(name, delta=1e-5)
    loss = 1_000 * taut.gaussian(1.0).poisson(0.01)
    loss = loss + taut.pure(0.5) if name.endswith("json") else loss
    assert setting.readings[0].bounds == pytest.approx(loss.epsilon_bounds(1e-5))
    assert any("adjacency" in text for text in setting.missing)


def test_events_that_a_program_makes(written):
    path = written(
        "sigma = 1.0\nstep = dp_event.GaussianDpEvent(sigma)\n"
        "event = dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(0.01, step), 1000)"
    )
    found = check_settings(path, delta=1e-5).settings
    whole = (1_000 * taut.gaussian(1.0).poisson(0.01)).epsilon_bounds(1e-5)
    assert whole in [setting.readings[0].bounds for setting in found]


def test_hydra_tables_and_names_of_calls(written):
    run = {"noise_multiplier": 1.0, "max_grad_norm": 1.0}
    plain = {"batch_size": 100, "epochs": 10, "delta": 1e-5, "train_size": 10_000}
    for table in (
        {**run, **plain},
        {"dp": {"_target_": "opacus.PrivacyEngine.make_private", **run}, **plain},
        {"make_private": run, "data": plain},
    ):
        (setting,) = check_settings(written(table, "a.json")).settings
        assert setting.tool == "Opacus make_private"
        assert setting.passes


def test_values_that_are_ambiguous_are_asked_for(written):
    text = "make_private(noise_multiplier=1.0, max_grad_norm=1.0)\nf(batch_size=4)\nf(batch_size=5)"
    (setting,) = check_settings(written(text)).settings
    assert any("several, 4 (line 2), 5 (line 3)" in one for one in setting.missing)


def test_delta_that_is_no_promise_is_named(written):
    table = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "examples": 100, "delta": 0.01}
    (setting,) = check_settings(written(table, "a.json")).settings
    assert any("not below 1/100" in text for text in setting.missing)


def test_no_noise_is_no_promise(written):
    table = {"noise_multiplier": 0, "max_grad_norm": 1.0, "examples": 100, "batch_size": 10}
    (setting,) = check_settings(written(table, "a.json"), delta=1e-5, epochs=1).settings
    assert setting.readings[0].bounds == (math.inf, math.inf)
    assert not setting.passes


def test_answer_is_json_and_text():
    found = check_settings(FILES / "tf_privacy.json")
    assert json.loads(json.dumps(found.to_dict()))["settings"][0]["unit"] == "example"
    assert "epsilon <=" in str(found)
    assert found.settings[0].promised.upper == found.settings[0].readings[1].bounds.upper
