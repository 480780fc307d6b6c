"""What a program means by a name: one assignment that nothing shadows, or nothing at all."""

import json

import pytest

from taut.audit import check_settings

SIZES = {"examples": 60_000, "batch_size": 256, "epochs": 10, "delta": 1e-5}
CALL = "engine.make_private(noise_multiplier={}, max_grad_norm=1.0)"
OPTION = 'p.add_argument("--sigma", default=10.0)\nargs = p.parse_args()\n'


def checked(tmp_path, code, name="train.py", **options):
    path = tmp_path / name
    path.write_text(code)
    return check_settings(path, **{**SIZES, **options})


@pytest.mark.parametrize(
    "code",
    [
        "sigma = 10.0\ndef train(sigma):\n    " + CALL.format("sigma"),
        "sigma = 10.0\ndef train(*, sigma=0.3):\n    " + CALL.format("sigma"),
        "sigma = 10.0\ndef train(**sigma):\n    " + CALL.format("sigma"),
        "sigma = 10.0\ngo = lambda sigma: " + CALL.format("sigma"),
        "sigma = 10.0\n[" + CALL.format("sigma") + " for sigma in noises]",
        "sigma = 10.0\nfrom settings import sigma\n" + CALL.format("sigma"),
        "sigma = 10.0\nimport sigma.of.all\n" + CALL.format("sigma"),
        "sigma = 10.0\nfrom settings import *\n" + CALL.format("sigma"),
        "def other():\n    sigma = 10.0\ndef train():\n    " + CALL.format("sigma"),
        "class Other:\n    sigma = 10.0\n    def train(self):\n        " + CALL.format("sigma"),
        "sigma = 10.0\ndef change():\n    global sigma\n    sigma = 0.1\n" + CALL.format("sigma"),
        "sigma = 10.0\ndef sigma(): pass\n" + CALL.format("sigma"),
        "sigma = 10.0\nmatch load():\n    case {'a': sigma}: pass\n" + CALL.format("sigma"),
        "sigma = 10.0\nmatch load():\n    case {**sigma}: pass\n" + CALL.format("sigma"),
        "sigma = 10.0\ntry: pass\nexcept E as sigma: pass\n" + CALL.format("sigma"),
        "sigma = 10.0\nwith open(f) as sigma: pass\n" + CALL.format("sigma"),
        "sigma = 10.0\nif (sigma := 0.1): pass\n" + CALL.format("sigma"),
        "sigma = 10.0\nx = [(sigma := y) for y in noises]\n" + CALL.format("sigma"),
        "sigma = 10.0\nsigma /= 100\n" + CALL.format("sigma"),
        "sigma = 10.0\nfor sigma in noises: " + CALL.format("sigma"),
        "sigma = 10.0\n(a, [sigma, *b]) = noises\n" + CALL.format("sigma"),
        OPTION + "args.sigma = 0.1\n" + CALL.format("args.sigma"),
        OPTION + "setattr(args, 'sigma', 0.1)\n" + CALL.format("args.sigma"),
        OPTION + "p.set_defaults(sigma=0.1)\n" + CALL.format("args.sigma"),
        OPTION + "p.set_defaults(**more)\n" + CALL.format("args.sigma"),
        OPTION + "q.add_argument('--sigma', default=0.1)\n" + CALL.format("args.sigma"),
        OPTION + CALL.format("self.sigma"),
        OPTION + CALL.format("model.sigma"),
        OPTION + "def train(model):\n    " + CALL.format("model.sigma"),
        "p.add_argument('--sigma', default=10.0, dest='other')\nargs = p.parse_args()\n"
        + CALL.format("args.sigma"),
        "make_private(noise_multiplier=10.0, max_grad_norm=1)\n" + CALL.format("found()"),
    ],
)
def test_noise_that_may_be_another_is_asked_for(tmp_path, code):
    found = checked(tmp_path, code)
    assert found.settings[-1].readings[0].bounds is None
    assert not found.passes
    assert any(text.startswith("noise_multiplier: ") for text in found.settings[-1].missing)


@pytest.mark.parametrize(
    "code",
    [
        "sigma = 10.0\ndef train():\n    " + CALL.format("sigma"),
        "def other(sigma): pass\ndef train():\n    sigma = 10.0\n    " + CALL.format("sigma"),
        "def a():\n    sigma = 0.1\ndef b():\n    sigma = 10.0\n    " + CALL.format("sigma"),
        "def train():\n    global sigma\n    sigma = 10.0\n" + CALL.format("sigma"),
        "def f():\n    sigma = 10.0\n    def g():\n        " + CALL.format("sigma"),
        "from settings import *\nsigma = 10.0\n" + CALL.format("sigma"),
        OPTION + CALL.format("args.sigma"),
        OPTION + "def train(args):\n    " + CALL.format("args.sigma"),
        OPTION.replace("args =", "args, _ =") + CALL.format("args.sigma"),
        "p.add_argument('--noise', default=10.0, dest='sigma')\nargs = p.parse_args()\n"
        + CALL.format("args.sigma"),
    ],
)
def test_noise_that_nothing_else_can_be_is_read(tmp_path, code):
    (setting,) = checked(tmp_path, code).settings
    assert setting.read["noise_multiplier"].startswith("10.0 ")
    assert setting.passes


@pytest.mark.parametrize("given", ["*most", "**most", "*a, **b"])
def test_arguments_that_are_not_shown_may_be_any(tmp_path, given):
    code = f"engine.make_private({given}, noise_multiplier=10.0, max_grad_norm=1.0)"
    (setting,) = checked(tmp_path, code).settings
    assert not setting.passes
    assert setting.promised is None
    assert setting.missing[0].startswith("all arguments: some are behind a star")


def test_arguments_after_a_star_have_no_place(tmp_path):
    (setting,) = checked(tmp_path, "compute_dp_sgd_privacy(*sizes, 250, 1.1)").settings
    assert "noise_multiplier" not in setting.read


@pytest.mark.parametrize("loader", ["DataLoader(data, **more)", "DataLoader(data, batch_size=b())"])
def test_batches_of_a_loader_that_are_not_shown_are_not_those_of_another(tmp_path, loader):
    code = f"test = DataLoader(other, batch_size=1000)\ntrain = {loader}\n" + CALL.format(1.0)
    code = code.replace("max_grad", "data_loader=train, max_grad")
    (setting,) = checked(tmp_path, code, batch_size=None).settings
    assert setting.promised is None
    assert any(text.startswith("batch_size: ") for text in setting.missing)
    assert checked(tmp_path, code).settings[0].promised is not None


@pytest.mark.parametrize(
    "code", ["warm(epochs=1)\ntrain(epochs=n)\n", "warm(epochs=1)\nepochs = 50\nepochs = 70\n"]
)
def test_one_number_among_values_that_no_literal_gives_is_not_the_one(tmp_path, code):
    (setting,) = checked(tmp_path, code + CALL.format(1.0), epochs=None).settings
    assert setting.promised is None
    assert any(text.startswith("epochs: the file has several, 1 ") for text in setting.missing)


def test_keys_in_two_spellings_are_one_argument(tmp_path):
    table = {"noise_multiplier": 0.1, "noise-multiplier": 10, "max_grad_norm": 1}
    (setting,) = checked(tmp_path, json.dumps(table), "a.json").settings
    assert setting.promised is None
    assert any("in two spellings" in text for text in setting.missing)
    table["noise-multiplier"] = 0.1
    assert checked(tmp_path, json.dumps(table), "a.json").settings[0].promised is not None
