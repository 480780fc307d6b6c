"""What a file leaves open, or says in an unusual place, is no promise of the usual one."""

import json

import pytest

import taut
from taut.audit import check_settings

SIZES = {"examples": 10_000, "epochs": 1, "delta": 1e-5}
OPACUS = "engine.make_private(noise_multiplier=1.0, max_grad_norm=1.0{})"
LOADED = OPACUS.format(", data_loader=train")


def checked(tmp_path, code, name="train.py", **options):
    path = tmp_path / name
    path.write_text(code if isinstance(code, str) else json.dumps(code))
    return check_settings(path, **{**SIZES, **options}).settings


# --- the loader -----------------------------------------------------------------------------------


@pytest.mark.parametrize("made", ["DataLoader(data, 5000)", "loader(data, batch_size=5000)"])
def test_batches_are_those_of_the_loader_by_place_or_name(tmp_path, made):
    code = f"test = DataLoader(other, batch_size=16)\ntrain = {made}\n" + LOADED
    (setting,) = checked(tmp_path, code)
    expected = (2 * taut.gaussian(1.0).poisson(0.5)).epsilon_bounds(1e-5)
    assert setting.readings[0].bounds == expected


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ("loader(data, 5000)", "batch_size: the loader gets one"),
        ("loader(5000)", "batch_size: the loader gets one"),
        ("DataLoader(data, batch_sampler=draw())", "the number of batches"),
        ("DataLoader(data, sampler=some, batch_size=5000)", "the number of batches"),
    ],
)
def test_batches_of_a_loader_that_decides_itself_are_open(tmp_path, made, words):
    code = f"test = DataLoader(other, batch_size=16)\ntrain = {made}\n" + LOADED
    (setting,) = checked(tmp_path, code)
    assert setting.promised is None
    assert any(text.startswith(words) for text in setting.missing)
    assert checked(tmp_path, code, batch_size=5000)[0].promised is not None


def test_a_loader_may_be_given_by_place(tmp_path):
    code = "test = f(batch_size=16)\ntrain = DataLoader(data, 5000)\n"
    call = "make_private(model, optimizer, train, noise_multiplier=1.0, max_grad_norm=1.0)"
    assert checked(tmp_path, code + call)[0].read["batch_size"].startswith("5000 ")


def test_a_loader_without_a_size_has_batches_of_one(tmp_path):
    (setting,) = checked(tmp_path, "test = f(batch_size=50)\ntrain = DataLoader(data)\n" + LOADED)
    assert setting.read["batch_size"].startswith("1 (default")


def test_sizes_by_place_are_values_of_the_file(tmp_path):
    code = "if big:\n    train = DataLoader(data, 5000)\nelse:\n    train = DataLoader(data, {})\n"
    (setting,) = checked(tmp_path, code.format("batch_size=64") + LOADED)
    assert any("batch_size: the file has several" in text for text in setting.missing)


@pytest.mark.parametrize("end", ["drop_last=cut", "**more", "drop_last=None"])
def test_an_end_that_may_be_cut_off_is_read_both_ways(tmp_path, end):
    code = f"train = DataLoader(data, batch_size=100, {end})\n" + LOADED
    (setting,) = checked(tmp_path, code, examples=150, delta=1e-3)
    assert [reading.bounds for reading in setting.readings] == [
        (2 * taut.gaussian(1.0).poisson(0.5)).epsilon_bounds(1e-3),
        taut.gaussian(1.0).poisson(1.0).epsilon_bounds(1e-3),
    ]
    assert len(checked(tmp_path, code, examples=200)[0].readings) == 1


def test_an_end_that_a_table_cuts_off_is_cut_off(tmp_path):
    table = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "batch_size": 100, "drop_last": True}
    (setting,) = checked(tmp_path, table, "a.json", examples=150, delta=1e-3)
    expected = taut.gaussian(1.0).poisson(1.0).epsilon_bounds(1e-3)
    assert [reading.bounds for reading in setting.readings] == [expected]


# --- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [None, "false", 0])
def test_flags_that_are_neither_true_nor_false_are_open(tmp_path, said):
    table = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "batch_size": 100}
    (setting,) = checked(tmp_path, {**table, "poisson_sampling": said}, "a.json")
    names = [reading.name for reading in setting.readings]
    assert names == ["Poisson batches", "shuffled batches"]
    assert f"poisson_sampling: {said!r} is neither true nor false" in setting.missing


@pytest.mark.parametrize(
    "code",
    [
        "DPKerasConfig(1.0, 1e-5, 1.0, 10, n, 10, 900, noise_multiplier=3.0)",
        "DPKerasSGDOptimizer(1.0, 1.0, n)\nbatch_size = 10",
    ],
)
def test_an_argument_that_is_open_is_not_its_default(tmp_path, code):
    (setting,) = checked(tmp_path, code)
    assert setting.promised is None
    assert any(" n is not a literal" in text for text in setting.missing)


def test_microbatches_count_whatever_their_type_is(tmp_path):
    table = {"l2_norm_clip": 1.0, "noise_multiplier": 1.0, "num_microbatches": 5.0}
    (setting,) = checked(tmp_path, {**table, "batch_size": 10}, "a.json")
    assert "clipped together" in setting.false_promises[0]


def test_noise_that_is_left_out_is_not_that_of_another_call(tmp_path):
    sizes = "clipping_norm=1.0, batch_size=10, train_steps=10, train_size=900"
    code = f"f(noise_multiplier=50.0)\nDPKerasConfig(epsilon=1.0, delta=1e-5, {sizes})"
    (setting,) = checked(tmp_path, code, examples=None)
    assert setting.read["noise_multiplier"].endswith("(the least that keeps epsilon)")
    assert setting.readings[0].bounds.upper > 0.9


def test_arguments_beside_a_table_of_arguments_count(tmp_path):
    table = {"_target_": "opacus.PrivacyEngine.make_private", "poisson_sampling": False}
    table |= {"kwargs": {"max_grad_norm": 1.0}, "noise_multiplier": 1.0, "batch_size": 100}
    (setting,) = checked(tmp_path, table, "a.json")
    assert [reading.name for reading in setting.readings] == ["shuffled batches"]


@pytest.mark.parametrize("norm", ["max_grad_norm", "l2_norm_clip"])
def test_an_epsilon_beside_noise_is_a_claim(tmp_path, norm):
    table = {"noise_multiplier": 0.5, norm: 1.0, "target_epsilon": 0.1, "batch_size": 100}
    (setting,) = checked(tmp_path, table, "a.json")
    assert setting.claimed == 0.1
    assert not setting.passes


# --- values that are given ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        "make_private_with_epsilon(target_epsilon=0.9, target_delta=1e-3, max_grad_norm=1)",
        "DPKerasConfig(0.9, 1e-3, 1.0, 10, 1, 10, 900, True)",
        "compute_noise(900, 10, 0.9, 1, 1e-3, 0.1)",
        "LocalDpMod(1.0, 2.0, 0.9, 1e-3)",
    ],
)
def test_a_delta_that_is_given_does_not_change_the_noise_of_the_tool(tmp_path, code):
    code += "\nbatch_size = 10"
    sizes = {"examples": 900, "rounds": 1, "epochs": None if "compute" in code else 1}
    own, given = (checked(tmp_path, code, **sizes, delta=delta)[0] for delta in (None, 1e-9))
    assert own.readings[0].bounds.upper <= 0.9 < given.readings[0].bounds.lower
    assert not given.passes


@pytest.mark.parametrize("code", [OPACUS.format(""), "DPKerasSGDOptimizer(1.0, 1.0)"])
def test_steps_that_are_given_go_before_epochs_of_the_file(tmp_path, code):
    (setting,) = checked(tmp_path, code + "\nf(batch_size=100, epochs=1)", steps=700, epochs=None)
    expected = (700 * taut.gaussian(1.0).poisson(0.01)).epsilon_bounds(1e-5)
    assert setting.readings[0].bounds == expected
    assert setting.read["steps"] == "700 (given)"


def test_a_delta_that_is_no_promise_gets_no_bounds(tmp_path):
    code = OPACUS.format("") + "\nloss = huber(batch_size=100, delta=0.9)"
    (setting,) = checked(tmp_path, code, delta=None)
    assert setting.promised is None
    assert not setting.passes


# --- other places ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [
        "train(max_epochs=500)",
        "config.epochs = 500",
        "config['epochs'] = 500",
        "config.epochs *= 500",
        "config.epochs: int = 500",
        "config = {'epochs': 500}",
        "config = {**more, 'num_epochs': 500}",
    ],
)
def test_epochs_that_another_name_or_place_says_are_asked_for(tmp_path, other):
    code = f"warm(epochs=1, batch_size=100)\n{other}\n" + OPACUS.format("")
    (setting,) = checked(tmp_path, code, epochs=None)
    assert setting.promised is None
    (text,) = [text for text in setting.missing if text.startswith("epochs: the file has several")]
    assert " 1 (line 1)" in text
    assert "500" in text or "config.epochs" in text


@pytest.mark.parametrize(
    "change",
    [
        "optimizer.noise_multiplier = 0.1",
        "optimizer.noise_multiplier: float = 0.1",
        "optimizer.noise_multiplier *= 0.99",
        "optimizer.noise_multiplier = schedule(step)",
        "setattr(optimizer, 'noise_multiplier', 0.1)",
    ],
)
def test_noise_that_is_set_later_is_not_that_of_the_first_step(tmp_path, change):
    code = OPACUS.format("") + "\nf(batch_size=100)\n"
    (setting,) = checked(tmp_path, code + change)
    assert setting.promised is None
    assert any(text.startswith("the noise of every step") for text in setting.missing)
    same = "self.noise_multiplier = noise_multiplier\nself.noise_multiplier = 1.0"
    assert checked(tmp_path, code + same)[0].promised is not None


def test_a_value_that_is_passed_on_is_no_other_value(tmp_path):
    code = "def go(self, epochs, c):\n    self.epochs = epochs\n    log({'epochs': c.epochs})\n"
    (setting,) = checked(tmp_path, code + "go(epochs=3, batch_size=100)\n" + OPACUS.format(""))
    assert setting.promised is not None


@pytest.mark.parametrize(
    "cell", ["%%time\nsigma = 0.1", "%%capture out\nsigma = 0.1", "%time sigma = 0.1"]
)
def test_cells_that_are_timed_are_read(tmp_path, cell):
    cells = ["sigma = 10.0", cell, "make_private(noise_multiplier=sigma, max_grad_norm=1.0)"]
    cells += ["%%bash\nif then", "!ls", "%matplotlib inline", "%%time -q\n%timeit -n 3 x"]
    book = {"cells": [{"cell_type": "code", "source": text} for text in cells]}
    (setting,) = checked(tmp_path, book, "a.ipynb", batch_size=100)
    assert "noise_multiplier" not in setting.read
    assert setting.promised is None


# --- events that are composed ---------------------------------------------------------------------


def test_an_event_costs_as_often_as_it_is_composed(tmp_path):
    code = "accountant.compose(GaussianDpEvent({}), count=100)".format
    (setting,) = checked(tmp_path, code(9.0))
    assert setting.readings[0].bounds == (100 * taut.gaussian(9.0)).epsilon_bounds(1e-5)
    assert checked(tmp_path, "a.compose(GaussianDpEvent(9.0))")[0].promised is not None


@pytest.mark.parametrize(
    "code",
    [
        "for _ in range(9):\n    a.compose(GaussianDpEvent(9.0))",
        "[a.compose(GaussianDpEvent(9.0)) for _ in range(9)]",
        "a.compose(GaussianDpEvent(9.0))\na.compose(LaplaceDpEvent(2.0))",
        "a.compose(GaussianDpEvent(9.0), n)",
        "a.compose(GaussianDpEvent(9.0), **more)",
    ],
)
def test_an_event_that_is_composed_who_knows_how_often_is_no_promise(tmp_path, code):
    assert all(setting.promised is None for setting in checked(tmp_path, code))
