"""``taut compare``."""

import json

import numpy as np
import pytest
import torch

from taut.comparison import Settings, predict

torch.set_num_threads(1)

OPTIONS = "--epsilon 3 --delta 1e-3 --gradients 200 --batch-size 50"


@pytest.fixture
def arrays():
    draw = np.random.default_rng(0)
    found = {}
    for part, count in (("", 150), ("_test", 60)):
        found[f"x{part}"] = draw.normal(size=(count, 6))
        found[f"y{part}"] = (found[f"x{part}"][:, 0] > 0).astype(int)
    return found


@pytest.fixture
def written(tmp_path):
    def write(arrays):
        path = tmp_path / "data.npz"
        np.savez(path, **arrays)
        return path

    return write


def test_prediction_is_the_library_answer(run_json, written, arrays):
    path = written(arrays)
    answer = run_json(f"compare {path} {OPTIONS} --model linear --arms plain,group --predict-only")
    settings = Settings(examples=150, batch_size=50, gradients=200, epsilon=3, delta=1e-3)
    expected = predict(settings, {"1.weight": 12, "1.bias": 2}, arms=["plain", "group"])
    assert answer == expected.to_dict()


def test_prediction_names_what_is_left_out(run, written, arrays):
    page = run(f"compare {written(arrays)} {OPTIONS} --predict-only").stdout
    assert "| plain " in page
    assert "hybrid is left out: needs public examples" in page


def test_trains_writes_and_resumes(run, run_json, written, arrays, tmp_path):
    pytest.importorskip("matplotlib")
    line = (
        f"compare {written(arrays)} {OPTIONS} --arms plain,group --seeds 3 "
        f"--learning-rates 0.1,1 --out {tmp_path / 'out'}"
    )
    first = run(line)
    assert first.exit_code == 0
    assert "These are experiments" in first.stderr
    for word in ("| plain ", "noise of the mean", "verdict", "No arm beats"):
        assert word in first.stdout
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"comparison.json", "comparison.svg", "runs.csv", "runs.jsonl", "table.md"}
    before = (tmp_path / "out" / "runs.jsonl").read_bytes()
    answer = run_json(line)
    assert (tmp_path / "out" / "runs.jsonl").read_bytes() == before
    assert len(answer["runs"]) == 12
    assert answer["best"] == "plain"


def test_options_may_come_from_a_file(run_json, written, arrays, tmp_path):
    config = tmp_path / "compare.toml"
    config.write_text(
        f'data = "{written(arrays).as_posix()}"\nepsilon = 3\ndelta = 1e-3\ngradients = 200\n'
        'batch-size = 50\narms = ["plain", "normalised"]\npredict_only = true\n'
    )
    answer = run_json(f"compare --config {config} --epsilon 2")
    assert [row["arm"] for row in answer["arms"]] == ["plain", "normalised"]
    assert answer["settings"]["epsilon"] == 2


def test_two_seeds_are_undecided_and_learning_rates_extend(run_json, written, arrays):
    line = f"compare {written(arrays)} {OPTIONS} --arms plain,group --seeds 2"
    answer = run_json(f"{line} --learning-rates 0.1 --extend 3")
    assert answer["results"][1]["verdict"] == "undecided"
    assert answer["results"][1]["reason"] == "a verdict takes 3 seeds, got 2"
    assert answer["recommendation"].startswith("Undecided: a verdict takes 3 seeds at least, got 2")
    assert all(len(rates) >= 3 for rates in answer["tried"].values())


def test_regression_and_public_inputs_without_labels(run_json, written, arrays):
    public = {"x_public": np.ones((9, 6)) + np.eye(9, 6)}
    numbers = {name: value.astype(float) for name, value in arrays.items()}
    line = f"{OPTIONS} --model linear --arms plain,hybrid --predict-only"
    for found in (arrays, numbers):
        answer = run_json(f"compare {written({**found, **public})} {line}")
        assert [row["arm"] for row in answer["arms"]] == ["plain", "hybrid"]
    answer = run_json(f"compare {written(numbers)} {OPTIONS} --model linear --seeds 1")
    assert answer["metric"] == "loss"


def test_a_file_for_training_serves_a_comparison(run_json, written, arrays):
    line = f"{OPTIONS} --arms plain --seeds 1"
    expected = run_json(f"compare {written(arrays)} {line} --model linear")
    renamed = {{"x": "x_train", "y": "y_train"}.get(n, n): a for n, a in arrays.items()}
    beside = {"ids": np.arange(150)}
    answer = run_json(f"compare {written({**renamed, **beside})} {line} --model linear")
    assert answer["results"][0]["value"] == expected["results"][0]["value"]


def test_whole_numbers_are_taken_as_the_model_takes_them(run_json, written, arrays):
    line = f"{OPTIONS} --arms plain --seeds 1 --model mlp"
    whole = {n: np.round(3 * a).astype(int) if n[0] == "x" else a for n, a in arrays.items()}
    floats = {n: a.astype(float) if n[0] == "x" else a for n, a in whole.items()}
    answers = [run_json(f"compare {written(found)} {line}") for found in (whole, floats)]
    assert answers[0]["results"][0]["value"] == answers[1]["results"][0]["value"]


def test_model_of_a_module(run_json, written, arrays, tmp_path, monkeypatch):
    (tmp_path / "my_models.py").write_text(
        "import torch\ndef small():\n    return torch.nn.Linear(6, 2)\nnumber = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    path = written(arrays)
    answer = run_json(
        f"compare {path} {OPTIONS} --model my_models:small --arms plain --predict-only"
    )
    assert answer["arms"][0]["steps"] == 4


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"y_test": None}, "", "no array 'y_test'"),
        ({"x_vaildation": np.zeros(3)}, "", "did you mean 'x_validation'"),
        ({"y": np.zeros(3, dtype=int)}, "", "150 inputs, and targets of shape (3,)"),
        ({"y": np.array(list("ab") * 75)}, "", "must hold labels 0, 1, 2"),
        ({"y": np.full(150, -1)}, "", "must hold classes"),
        ({}, "--model best", "--model must be one of linear, FeatureCNN"),
        ({}, "--model tanh-cnn", "takes inputs of shape (channels, 28, 28)"),
        ({}, "--model no_such_module:make", "No module named 'no_such_module'"),
        ({}, "--model json:loud", "has no attribute 'loud'"),
        ({}, "--model math:pi", "must be a function"),
        ({}, "--arms plane", "name must be one of"),
        ({}, "--arms hybrid", "needs public examples"),
        ({}, "--learning-rates fast", "numbers separated by commas"),
        ({}, "--momentum 1", "momentum"),
        ({}, "--gradients 10", "gradients must pay for one step"),
        ({}, "--epsilon 0", "epsilon"),
        ({}, "--config missing.toml", "missing.toml"),
    ],
)
def test_mistakes_are_explained(run, written, arrays, changes, options, message):
    given = {name: value for name, value in {**arrays, **changes}.items() if value is not None}
    result = run(f"compare {written(given)} {OPTIONS} {options}")
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_files_that_are_none(refusal, tmp_path):
    path = tmp_path / "data.npz"
    assert "No such file" in refusal(f"compare {path} {OPTIONS}")
    path.write_text("x,y\n1,2\n")
    assert "is not a file of plain arrays" in refusal(f"compare {path} {OPTIONS}")
    config = tmp_path / "compare.toml"
    config.write_text("speed = 3\n")
    assert "sets 'speed'" in refusal(f"compare demo {OPTIONS} --config {config}")
    config.write_text("speed =\n")
    assert "Invalid value" in refusal(f"compare demo {OPTIONS} --config {config}")


def test_foreign_directory_is_refused(run, written, arrays, tmp_path):
    line = f"compare {written(arrays)} {OPTIONS} --arms plain --seeds 1 --out {tmp_path / 'out'}"
    assert run(line).exit_code == 0
    result = run(line.replace("--epsilon 3", "--epsilon 2"))
    assert result.exit_code == 2
    assert "of another comparison (with another settings.epsilon)" in result.stderr


def test_interruption_says_how_to_go_on(run, written, arrays, tmp_path, monkeypatch):
    from taut import comparison

    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(comparison, "compare", stopped)
    result = run(f"compare {written(arrays)} {OPTIONS} --arms plain --out {tmp_path / 'out'}")
    assert result.exit_code == 130
    assert "the same command goes on where it stopped" in result.stderr


def test_example_of_the_help_works(run):
    text = run("compare --help").stdout
    (example,) = [line.strip() for line in text.splitlines() if "Example:" in line]
    program, line = example.removeprefix("Example: ").split(maxsplit=1)
    assert program == "taut"
    result = run(f"{line} --predict-only")
    assert result.exit_code == 0
    assert "| hybrid " in result.stdout


def test_json_numbers(run_json, written, arrays):
    answer = run_json(f"compare {written(arrays)} {OPTIONS} --arms plain --seeds 1")
    assert answer["results"][0]["value"]["low"] is None
    assert json.dumps(answer, allow_nan=False)


def test_a_file_cannot_name_code_by_itself(run, refusal, written, arrays, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = tmp_path / "ran"
    (tmp_path / "compared_net.py").write_text(
        f"import pathlib\npathlib.Path({str(ran)!r}).touch()\nfrom torch import nn\n"
        "def make(): return nn.Linear(6, 2)\n"
    )
    options = tmp_path / "options.toml"
    line = f"compare {written(arrays)} {OPTIONS} --arms plain --predict-only --config {options}"
    options.write_text('model = "compared_net:make"\n')
    assert "add --allow-code compared_net" in refusal(line)
    options.write_text('model = "compared_net:make"\nallow_code = "compared_net"\n')
    assert "sets 'allow_code', which is no option" in refusal(line)
    options.write_text('model = "os:getcwd"\n')
    assert "cannot import 'os'" in refusal(f"{line} --allow-code os")
    assert not ran.exists()
    options.write_text('model = "compared_net:make"\n')
    assert run(f"{line} --allow-code compared_net").exit_code == 0
    assert run(f"{line.partition(' --config')[0]} --model compared_net:make").exit_code == 0
