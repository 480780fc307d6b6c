"""Configurations: every wrong key and value is named, with the way out."""

import dataclasses
import tomllib

import numpy as np
import pytest

from taut.errors import InfeasibleBudget
from taut.runs import RunConfig, prepare
from taut.runs._sections import DataSection, PlanSection, RunSection, TrainingSection
from taut.training import FixedSizeSampling, FlatClip, GroupClip, NormalisedClip, RandomAllocation

SECTIONS = {
    "data": DataSection,
    "plan": PlanSection,
    "training": TrainingSection,
    "run": RunSection,
}


def test_values_and_defaults(configured):
    config = RunConfig.from_toml(configured())
    assert config.plan.epsilon == 3.0
    assert config.training.optimizer == "sgd"
    assert config.run.unit == "example"
    assert config.directory == config.home / "run"
    plan = prepare(config).plan
    assert (plan.examples, plan.batch_size, plan.steps) == (100, 20, 6)
    assert plan.clipping == FlatClip(1.0)


def test_paths_start_at_the_file(configured, monkeypatch, tmp_path_factory):
    path = configured()
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert len(prepare(RunConfig.from_toml(path)).examples) == 100


def test_a_moved_configuration_says_the_same(configured, folder):
    config = RunConfig.from_toml(configured(model={"name": "mlp", "widths": [3, 2]}))
    (folder / "run").mkdir()
    moved = config.moved(folder / "run")
    copy = folder / "run" / "config.toml"
    copy.write_text(moved.to_toml())
    again = RunConfig.from_toml(copy)
    assert again == moved
    assert again.data_path.resolve() == config.data_path.resolve()
    assert again.directory.resolve() == config.directory.resolve()
    assert (again.plan, again.training, again.model) == (
        config.plan,
        config.training,
        config.model,
    )


def test_every_value_survives_being_written(configured):
    config = RunConfig.from_toml(
        configured(
            data={"scale": 0.5, "shape": [3]},
            plan={
                "clipping": {"name": "group", "bounds": {"1": 0.5, "3": 2}},
                "sampling": "fixed_size",
            },
            training={"ema": 0.9, "seed": 3, "device": "cpu", "schedule": "cosine"},
            run={"unit": 'a "person"\t\\ of ours, \x7f é'},
        )
    )
    again = RunConfig._of(tomllib.loads(config.to_toml()), config.home)
    assert again == config


@pytest.mark.parametrize(
    ("clipping", "expected"),
    [
        ({"name": "flat", "norm": 2}, FlatClip(2)),
        ({"name": "normalised", "norm": 1.0, "stability": 0.1}, NormalisedClip(1.0, stability=0.1)),
        ({"name": "group", "norm": 1.0}, GroupClip(1.0)),
    ],
)
def test_strategies_by_name(configured, clipping, expected):
    config = RunConfig.from_toml(configured(plan={"clipping": clipping, "sampling": "fixed_size"}))
    plan = prepare(config).plan
    assert plan.clipping == expected
    assert plan.sampling == FixedSizeSampling(20)


@pytest.mark.parametrize("sampling", ["allocation", "best", {"name": "allocation", "steps": 5}])
def test_epochs_that_use_every_example_once(configured, sampling):
    config = RunConfig.from_toml(configured(plan={"sampling": sampling}))
    plan = prepare(config).plan
    assert plan.sampling == RandomAllocation(steps=5)
    config.plan.check(plan)


@pytest.mark.parametrize(
    "changes",
    [
        {"noise_schedule": [[5, 1.0], [15, 0.5]]},
        {"batch_size": [[5, 20], [15, 10]]},
        {"noise_multiplier": [[5, 2.0], [15, 1.0]], "epsilon": None},
        {"noise_multiplier": 3.0, "noise_schedule": [[5, 2.0], [15, 1.0]], "epsilon": None},
    ],
)
def test_schedules(configured, changes):
    config = RunConfig.from_toml(configured(plan={"steps": 20} | changes))
    plan = prepare(config).plan
    assert plan.is_scheduled
    assert plan.steps == 20
    config.plan.check(plan)
    assert RunConfig.from_toml(configured(plan={"steps": 20} | changes)).plan == config.plan
    other = dataclasses.replace(config.plan, noise_schedule=[[10, 1.0], [10, 0.1]])
    if config.plan.noise_multiplier is None:
        with pytest.raises(ValueError, match="is not that of the run"):
            other.check(plan)


@pytest.mark.parametrize(
    ("section", "key"),
    [(name, field.name) for name, cls in SECTIONS.items() for field in dataclasses.fields(cls)],
)
def test_misspelt_key_is_named_with_the_right_one(configured, section, key):
    wrong = key[:-1] + "zq"
    with pytest.raises(ValueError, match=rf"config.toml: \[{section}\] has the unknown") as caught:
        RunConfig.from_toml(configured(**{section: {wrong: 1}}))
    assert repr(wrong) in str(caught.value)
    assert repr(key) in str(caught.value) or f" {key}" in str(caught.value)


@pytest.mark.parametrize(
    ("section", "key"),
    [(name, field.name) for name, cls in SECTIONS.items() for field in dataclasses.fields(cls)],
)
def test_value_of_the_wrong_type_is_named(configured, section, key):
    with pytest.raises(ValueError, match=rf"config.toml: \[{section}\] {key}.* must be a"):
        RunConfig.from_toml(configured(**{section: {key: [[True]]}}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": None}, "the section [data] is missing"),
        ({"run": None}, "the section [run] is missing"),
        ({"trainning": {"ema": 0.9}}, "unknown key 'trainning'; did you mean 'training'?"),
        ({"data": {"builtin": "digits"}}, "[data] needs either path"),
        ({"data": {"path": None}}, "[data] needs either path"),
        ({"data": {"path": None, "builtin": "digit"}}, "did you mean 'digits'?"),
        ({"data": {"scale": -1}}, "[data] scale must be finite and greater than 0"),
        ({"data": {"shape": [0]}}, "[data] shape must be at least 1"),
        ({"data": {"shape": [1.5]}}, "[data] shape[0] must be an integer, got 1.5"),
        ({"model": {"name": None}}, "[model] needs name = 'mlp'"),
        ({"plan": {"epsilon": "three"}}, "[plan] epsilon must be a number, got 'three'"),
        ({"plan": {"batch_size": [20, 0]}}, "[plan] batch_size: value must be finite and greater"),
        (
            {"plan": {"batch_size": 20.5}},
            "[plan] batch_size must be an integer or a list, got 20.5",
        ),
        (
            {"plan": {"batch_size": True}},
            "[plan] batch_size must be an integer or a list, got True",
        ),
        ({"plan": {"clipping": {"norm": 1}}}, "[plan] clipping needs a name among flat"),
        ({"plan": {"clipping": {"name": "flatt"}}}, "did you mean 'flat'?"),
        (
            {"plan": {"clipping": {"name": "flat", "nrm": 1}}},
            "[plan] clipping 'flat' has the unknown key 'nrm'; did you mean 'norm'?",
        ),
        ({"plan": {"clipping": {"name": "flat"}}}, "missing 1 required positional argument"),
        (
            {"plan": {"clipping": {"name": "flat", "norm": -1}}},
            "[plan] clipping: norm must be finite and greater than 0",
        ),
        ({"plan": {"sampling": "poison"}}, "did you mean 'poisson'?"),
        ({"plan": {"noise": "blts"}}, "got 'blts'; did you mean 'blt'?"),
        ({"plan": {"mixing": {"name": "model"}}}, "[plan] mixing needs a name among model_mix"),
        ({"plan": {"mixing": {"name": "model_mix", "widht": 1}}}, "did you mean 'width'?"),
        ({"training": {"optimizer": "sgdd"}}, "got 'sgdd'; did you mean 'sgd'?"),
        ({"training": {"loss": "mae"}}, "[training] loss must be one of cross_entropy"),
        ({"training": {"schedule": "cosin"}}, "did you mean 'cosine'?"),
        ({"training": {"learning_rate": 0}}, "[training] learning_rate must be finite"),
        ({"training": {"momentum": 1.0}}, "[training] momentum must be in [0, 1)"),
        ({"training": {"momentum": 0.9, "optimizer": "adam"}}, "momentum is not an option of adam"),
        ({"training": {"weight_decay": -1.0}}, "[training] weight_decay must be finite"),
        ({"training": {"ema": 1.5}}, "[training] ema must be in [0, 1)"),
        ({"training": {"physical_batch_size": 0}}, "physical_batch_size must be at least 1"),
        ({"training": {"workers": -1}}, "[training] workers must be at least 0"),
        ({"training": {"seed": -1}}, "[training] seed must be at least 0"),
        ({"run": {"directory": None}}, "[run] needs the key 'directory'"),
        ({"run": {"directory": ""}}, "[run] directory must name a directory"),
        ({"run": {"checkpoint_seconds": -1}}, "[run] checkpoint_seconds must be finite"),
    ],
)
def test_wrong_value_is_named(configured, changes, message):
    with pytest.raises(ValueError, match=r"config\.toml: ") as caught:
        RunConfig.from_toml(configured(**changes))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"plan": {"rate": 0.1}}, "[plan] give either batch_size or rate"),
        ({"plan": {"batch_size": 101}}, "[plan] batch_size must be at most examples=100"),
        ({"plan": {"epochs": 2.0}}, "[plan] give either steps or epochs"),
        ({"plan": {"noise_multiplier": 1.0}}, "[plan] give two of epsilon, delta"),
        ({"plan": {"epsilon": -1.0}}, "[plan] epsilon must be finite and greater than 0"),
        ({"plan": {"delta": 1.0}}, "[plan] delta must be in [0, 1)"),
        ({"data": {"path": "none.npz"}}, "there is no file"),
        ({"data": {"path": "config.toml"}}, "is not a file of plain arrays"),
        ({"data": {"path": "empty.npz"}}, "has no array 'x_train'; there are none"),
        ({"data": {"path": "half.npz"}}, "has no array 'y_train'; there are x_train"),
        ({"data": {"path": "uneven.npz"}}, "holds 3 inputs, and targets of shape (2,)"),
        ({"data": {"path": "words.npz"}}, "must hold numbers, got inputs of type <U1"),
        ({"data": {"path": "floats.npz"}}, "for numbers write [training] loss = 'mse'"),
        ({"data": {"path": "objects.npz"}}, "is not a file of plain arrays"),
        ({"data": {"shape": [2, 2]}}, "[data] shape [2, 2] does not fit inputs of 3 numbers"),
        ({"model": {"name": "Perceptron"}}, "[model] name must be one of linear, FeatureCNN"),
        ({"model": {"name": "TanCNN"}}, "did you mean 'TanhCNN'?"),
        ({"model": {"width": [3, 2]}}, "unknown key 'width'; did you mean 'widths'?"),
        ({"model": {"widths": [3]}}, "[model] mlp could not be made: ValueError"),
        ({"model": {"widths": [4, 2]}}, "[model] mlp cannot take an input of shape [3]"),
        ({"model": {"widths": [4, 2]}}, "such as widths = [3, ...] of an mlp"),
        ({"model": {"name": "linear", "widths": None}}, "linear needs widths = [inputs, outputs]"),
        ({"model": {"name": "linear", "widths": [3, 4, 2]}}, "it is name = 'mlp'"),
        ({"model": {"name": "nowhere.to:go", "widths": None}}, "cannot import 'nowhere.to'"),
        ({"model": {"name": "nets:mak", "widths": None}}, "did you mean 'make'?"),
        ({"model": {"name": "nets:none", "widths": None}}, "must return a torch.nn.Module"),
        ({"model": {"name": "nets:make", "widths": None, "size": 1}}, "unknown key 'size'"),
        ({"training": {"device": "abacus"}}, "[training] device 'abacus' is not there"),
    ],
)
def test_parts_that_do_not_fit_are_named(configured, folder, monkeypatch, changes, message):
    monkeypatch.chdir(folder)
    np.savez(folder / "empty.npz")
    np.savez(folder / "half.npz", x=np.ones((3, 3)))
    np.savez(folder / "uneven.npz", x=np.ones((3, 3)), y=np.ones(2))
    np.savez(folder / "words.npz", x=np.array(["a", "b"]), y=np.ones(2))
    np.savez(folder / "floats.npz", x=np.ones((100, 3)), y=np.ones(100))
    np.savez(folder / "objects.npz", x=np.array([{}, {}]), y=np.ones(2))
    (folder / "nets.py").write_text(
        "from torch import nn\ndef make(): return nn.Linear(3, 2)\ndef none(): return 3\n"
    )
    config = RunConfig.from_toml(configured(**changes))
    with pytest.raises((ValueError, OSError)) as caught:
        prepare(config, allow_code=config.model.name.partition(":")[0])
    assert message in str(caught.value)


def test_impossible_budget_says_what_would_help(configured):
    config = RunConfig.from_toml(configured(plan={"epsilon": 1e-4, "batch_size": 1}))
    with pytest.raises(
        InfeasibleBudget, match=r"\[plan\] epsilon=0.0001 .* Any one of these would suffice"
    ):
        prepare(config)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"[data", "not valid TOML"), (b"\xff\xfe", "not a text in UTF-8"), (b"data = 3", "[model]")],
)
def test_what_is_no_configuration(tmp_path, content, message):
    path = tmp_path / "config.toml"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"config\.toml") as caught:
        RunConfig.from_toml(path)
    assert message in str(caught.value)


def test_section_must_be_a_table(configured):
    text = configured().read_text().replace('[data]\npath = "points.npz"', "")
    path = configured()
    path.write_text("data = 3\n" + text)
    with pytest.raises(ValueError, match=r"\[data\] must be a table, got 3"):
        RunConfig.from_toml(path)
