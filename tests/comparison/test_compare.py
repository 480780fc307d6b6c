"""Comparisons that train: resumed, extended, refused."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from comparison.tasks import SETTINGS, data, model, run, task
from torch import nn
from torch.utils.data import Subset

from taut.comparison import Settings, _compare, compare
from taut.errors import UnsoundConfiguration

ARMS = ["plain", "group"]
CHOICES = {"arms": ARMS, "seeds": 2, "learning_rates": [0.2, 1.0]}


@pytest.fixture
def trained(monkeypatch):
    """Count what is trained; with `stop_after`, be killed instead of training more."""

    counter = SimpleNamespace(keys=[], stop_after=None)
    train = _compare._Bench._train

    def counting(self, arm, learning_rate, seed, bar):
        if counter.stop_after is not None and len(counter.keys) >= counter.stop_after:
            raise KeyboardInterrupt
        counter.keys.append((arm.label, learning_rate, seed))
        return train(self, arm, learning_rate, seed, bar)

    monkeypatch.setattr(_compare._Bench, "_train", counting)
    return counter


def without_times(found):
    return [{**run, "seconds": 0, "cpu_seconds": 0} for run in found.to_dict()["runs"]]


def test_every_arm_gets_every_learning_rate_and_seed(trained):
    found = compare(task(), SETTINGS, **CHOICES)
    wanted = {(arm, rate, seed) for arm in ARMS for rate in (0.2, 1.0) for seed in (0, 1)}
    assert set(trained.keys) == wanted
    assert len(trained.keys) == len(wanted)
    assert all(run.epsilon <= SETTINGS.epsilon and run.steps == 5 for run in found.runs)
    assert all(0.99 * SETTINGS.epsilon < run.epsilon for run in found.runs)
    assert found.metric == "accuracy"
    assert found.seeds == (0, 1)


def test_all_arms_train():
    found = compare(task(), SETTINGS, seeds=1)
    assert [row.arm for row in found.results] == [row.arm for row in found.prediction.arms]
    assert all(run.steps == SETTINGS.steps for run in found.runs)


def test_killed_comparison_goes_on_where_it_stopped(trained, tmp_path):
    whole = compare(task(), SETTINGS, **CHOICES, out_dir=tmp_path / "whole")
    trained.keys.clear()
    trained.stop_after = 3
    with pytest.raises(KeyboardInterrupt):
        compare(task(), SETTINGS, **CHOICES, out_dir=tmp_path / "killed")
    path = tmp_path / "killed" / "runs.jsonl"
    with path.open("ab") as file:  # as if power had failed while the next run was written
        file.write(b'{"arm": "gro')
    trained.stop_after = None
    found = compare(task(), SETTINGS, **CHOICES, out_dir=tmp_path / "killed")
    assert len(trained.keys) == len(set(trained.keys)) == 8
    assert without_times(found) == without_times(whole)
    assert [row.value for row in found.results] == [row.value for row in whole.results]
    assert len(path.read_text().splitlines()) == 9


def test_finished_comparison_trains_nothing_and_writes_all(trained, tmp_path):
    first = compare(task(), SETTINGS, **CHOICES, out_dir=tmp_path)
    trained.keys.clear()
    again = compare(task(), SETTINGS, **CHOICES, out_dir=tmp_path)
    assert not trained.keys
    assert again.to_dict() == first.to_dict()
    assert (tmp_path / "table.md").read_text() == f"{first}\n"
    assert (tmp_path / "runs.csv").read_text() == first.to_csv()
    assert json.loads((tmp_path / "comparison.json").read_text()) == first.to_dict()


def test_seeds_and_arms_may_be_added(trained, tmp_path):
    compare(task(), SETTINGS, arms=["plain"], seeds=1, out_dir=tmp_path)
    compare(task(), SETTINGS, arms=["plain", "group"], seeds=[0, 7], out_dir=tmp_path)
    assert trained.keys == [
        ("plain", 0.5, 0),
        ("group", 0.5, 0),
        ("plain", 0.5, 7),
        ("group", 0.5, 7),
    ]


def test_few_seeds_may_choose_the_learning_rate(trained):
    found = compare(
        task(), SETTINGS, arms=["plain"], seeds=3, learning_rates=[1e-9, 1.0], tuning_seeds=1
    )
    assert trained.keys == [
        ("plain", 1e-9, 0),
        ("plain", 1.0, 0),
        ("plain", found.chosen["plain"], 1),
        ("plain", found.chosen["plain"], 2),
    ]
    assert found.results[0].value.count == 3


def curve(monkeypatch, best):
    """Make accuracies fall with the distance to each arm's best learning rate, untrained."""

    def judged(_, arm, learning_rate, seed, __):
        distance = abs(math.log2(learning_rate / best[arm.label]))
        return run(arm.label, 1 - distance / 100, seed, learning_rate)

    monkeypatch.setattr(_compare._Bench, "_train", judged)


def test_every_arm_extends_its_learning_rates_until_the_best_is_inside(monkeypatch):
    curve(monkeypatch, {"plain": 1.0, "group": 8.0})
    found = compare(task(), SETTINGS, arms=ARMS, seeds=2, learning_rates=[1.0], extend=6)
    assert found.tried == {"plain": (0.5, 1.0, 2.0), "group": (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)}
    assert found.chosen == {"plain": 1.0, "group": 8.0}
    assert not any(row.is_at_edge for row in found.results)
    assert "edge" not in found.recommendation
    assert found.to_dict()["tried"]["plain"] == [0.5, 1.0, 2.0]
    wanted = {("group", rate, seed) for rate in found.tried["group"] for seed in (0, 1)}
    assert {run.key for run in found.runs if run.arm == "group"} == wanted


def test_extensions_end_and_the_edge_is_said(monkeypatch):
    curve(monkeypatch, {"plain": 1.0, "group": 0.01})
    found = compare(task(), SETTINGS, arms=ARMS, seeds=1, learning_rates=[1.0, 2.0], extend=2)
    assert found.tried == {"plain": (0.5, 1.0, 2.0), "group": (0.25, 0.5, 1.0, 2.0)}
    assert [row.is_at_edge for row in found.results] == [False, True]
    assert "edge of those tried for group:" in found.recommendation


@pytest.mark.parametrize("rates", [[0.5], [0.5, 1.0]])
def test_edge_is_said_for_any_number_of_learning_rates(monkeypatch, rates):
    curve(monkeypatch, {"plain": 1.0, "group": 4.0})
    found = compare(task(), SETTINGS, arms=ARMS, seeds=1, learning_rates=rates)
    assert all(row.is_at_edge for row in found.results)
    assert "edge of those tried for plain, group:" in found.recommendation


def test_extended_comparison_goes_on_where_it_stopped(monkeypatch, tmp_path):
    curve(monkeypatch, {"plain": 1.0, "group": 8.0})
    choices = {"arms": ARMS, "seeds": 2, "learning_rates": [1.0], "extend": 6}
    first = compare(task(), SETTINGS, **choices, out_dir=tmp_path)
    monkeypatch.setattr(_compare._Bench, "_train", None)
    assert compare(task(), SETTINGS, **choices, out_dir=tmp_path).to_dict() == first.to_dict()


def test_runs_record_processor_time(monkeypatch):
    clock = iter([3.0, 8.5])
    monkeypatch.setattr(_compare.time, "process_time", lambda: next(clock))
    found = compare(task(), SETTINGS, arms=["plain"], seeds=1)
    assert [run.cpu_seconds for run in found.runs] == [5.5]
    assert found.results[0].cpu_seconds == 5.5
    header, _, line = found.table().splitlines()
    assert header.endswith("| CPU s/run |")
    assert line.endswith("|       5.5 |")
    assert "cpu_seconds" in found.to_csv().splitlines()[0]


def test_group_is_left_out_where_it_is_plain(trained):
    linear = task(model=lambda: nn.Linear(5, 2))
    found = compare(linear, SETTINGS, arms=ARMS, seeds=1, learning_rates={"plain": 0.5})
    assert trained.keys == [("plain", 0.5, 0)]
    assert "group was left out: the model is one group" in str(found)


def test_learning_rates_that_were_chosen_before(trained):
    rates = {"plain": 0.3, "group": 0.7, "other": 1.0}
    found = compare(task(), SETTINGS, arms=ARMS, seeds=1, learning_rates=rates)
    assert trained.keys == [("plain", 0.3, 0), ("group", 0.7, 0)]
    assert found.chosen == {"plain": 0.3, "group": 0.7}
    assert found.learning_rates == ()
    assert not any(row.is_at_edge for row in found.results)
    with pytest.raises(ValueError, match="none for 'group'"):
        compare(task(), SETTINGS, arms=ARMS, learning_rates={"plain": 0.3})


def test_validation_examples_choose():
    inverted = data(100, 3)
    inverted.tensors[1].copy_(1 - inverted.tensors[1])
    rates = [1e-9, 2.0]
    honest = compare(task(), SETTINGS, arms=["plain"], seeds=2, learning_rates=rates)
    misled = compare(
        task(validation=inverted), SETTINGS, arms=["plain"], seeds=2, learning_rates=rates
    )
    assert honest.chosen == {"plain": 2.0}
    assert misled.chosen == {"plain": 1e-9}
    assert not misled.tuned_on_test


OTHERS = {
    "settings.epsilon": ({}, {"epsilon": 2.0}),
    "task.model": ({"model": lambda: nn.Linear(5, 2)}, {}),
    "task.data.train": ({"train": data(300, 9)}, {}),
    "task.data.test": ({"test": Subset(data(200, 1), range(100))}, {}),
    "task.data.public": ({"public": None}, {}),
    "task.optimizer": ({"optimizer": lambda p, lr: torch.optim.Adam(p, lr=lr)}, {}),
    "task.loss_fn": ({"loss_fn": nn.CrossEntropyLoss(label_smoothing=0.1)}, {}),
    "task.trainer.ema": ({"trainer": {"ema": 0.9}}, {}),
}


@pytest.mark.parametrize("what", OTHERS)
def test_directory_of_another_comparison_is_refused(what, tmp_path, trained):
    compare(task(), SETTINGS, arms=["plain"], seeds=1, out_dir=tmp_path)
    before = (tmp_path / "runs.jsonl").read_bytes()
    changes, settings = OTHERS[what]
    given = {"examples": 300, "batch_size": 60, "gradients": 300, "epsilon": 3, "delta": 1e-3}
    other = Settings(**{**given, **settings})
    with pytest.raises(UnsoundConfiguration, match=f"another comparison .*another {what}"):
        compare(task(**changes), other, arms=["plain"], seeds=1, out_dir=tmp_path)
    assert (tmp_path / "runs.jsonl").read_bytes() == before
    assert len(trained.keys) == 1


def test_foreign_and_damaged_files_are_refused(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text('{"schema": "other"}\n')
    with pytest.raises(UnsoundConfiguration, match="of another format"):
        compare(task(), SETTINGS, arms=["plain"], seeds=1, out_dir=tmp_path)
    path.write_text("{}\nnot JSON\n")
    with pytest.raises(ValueError, match="is damaged"):
        compare(task(), SETTINGS, arms=["plain"], seeds=1, out_dir=tmp_path)


def test_two_processes_do_not_share_a_directory(tmp_path, trained):
    def also(*_):
        with pytest.raises(UnsoundConfiguration, match="another process"):
            compare(task(), SETTINGS, arms=["plain"], seeds=1, out_dir=tmp_path)

    wrapped = task(model=lambda: (also() if trained.keys else None, model())[1])
    compare(wrapped, SETTINGS, arms=["plain"], seeds=1, out_dir=tmp_path)


def test_torch_keeps_its_own_randomness():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    compare(task(), SETTINGS, arms=["plain"], seeds=1)
    assert torch.equal(torch.rand(2), expected)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"seeds": []}, "seeds"),
        ({"seeds": [1, 1]}, "seeds"),
        ({"seeds": 0}, "seeds"),
        ({"learning_rates": []}, "learning_rates"),
        ({"learning_rates": [0.1, 0.1]}, "learning_rates"),
        ({"learning_rates": [-1.0]}, "learning_rates"),
        ({"tuning_seeds": 0}, "tuning_seeds"),
        ({"extend": -1}, "extend"),
        ({"extend": 1.5}, "extend"),
        ({"confidence": 1.0}, "confidence"),
        ({"arms": ["best"]}, "name must be one of"),
    ],
)
def test_choices_that_make_no_sense(choices, message):
    with pytest.raises(ValueError, match=message):
        compare(task(), SETTINGS, **choices)


def test_settings_for_other_data_are_refused():
    with pytest.raises(UnsoundConfiguration, match="train holds 200"):
        compare(task(train=data(200, 0)), SETTINGS)


SCRIPT = """
import sys
import torch
torch.set_num_threads(1)
sys.path.insert(0, {tests!r})
from comparison.tasks import SETTINGS, task
from taut.comparison import compare
compare(task(), SETTINGS, arms=["plain", "group"], seeds=40, out_dir={out!r})
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="kills by signal")
def test_survives_a_signal_that_cannot_be_caught(tmp_path):
    tests = str(Path(__file__).parents[1])
    code = SCRIPT.format(tests=tests, out=str(tmp_path))
    process = subprocess.Popen([sys.executable, "-c", code])
    path, began = tmp_path / "runs.jsonl", time.monotonic()
    while not path.exists() or path.read_bytes().count(b"\n") < 4:
        assert process.poll() is None
        assert time.monotonic() - began < 60
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    lines = path.read_bytes().count(b"\n")
    assert lines < 81
    found = compare(task(), SETTINGS, arms=ARMS, seeds=2, out_dir=tmp_path)
    direct = compare(task(), SETTINGS, arms=ARMS, seeds=2)
    assert without_times(found) == without_times(direct)
