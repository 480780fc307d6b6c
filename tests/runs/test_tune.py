"""Searches from a file: one promise for all trials, kept across kills."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from runs.configs import write_points

from taut.accounting import best_of
from taut.audit import verify_statement
from taut.errors import InfeasibleBudget, UnsoundConfiguration
from taut.runs import (
    RunConfig,
    TuneConfig,
    TuneSection,
    prepare,
    prepare_tuning,
    resume,
    tune_run,
    tuning_options,
)
from taut.runs._tune import _score
from taut.training import Evaluation

SCRIPT = Path(__file__).with_name("killed_search.py")
SPACE = {"training.learning_rate": [0.1, 0.5], "plan.clipping.norm": [0.5, 1.0]}


@pytest.fixture
def tuned(configured):
    """Write a search with changes to it, and return its configuration."""

    def made(space=None, **changes):
        tune = {"space": space or SPACE, "validation": "public", "trials": 2.0}
        tune |= changes.pop("tune", {})
        return TuneConfig.from_toml(configured(tune=tune, **changes))

    return made


def test_search_keeps_the_promise_of_its_plan(tuned, folder):
    config = tuned(training={"seed": 3})
    outcome = tune_run(config)
    found = outcome.tuned
    assert found.own_epsilon.upper < found.epsilon.upper <= 3.0
    assert found.epsilon.upper > 2.9
    assert set(found.setting) == set(SPACE)
    assert not outcome.is_secure
    weights = torch.load(folder / "run" / "model.pt", weights_only=True)
    assert all(torch.isfinite(value).all() for value in weights.values())
    summary = json.loads((folder / "run" / "tuning.json").read_text())
    assert summary["hidden_by_the_winner_alone"] == found.own_epsilon.upper
    public = {path.name for path in (folder / "run").iterdir()}
    assert public == {
        "model.pt",
        "private",
        "statement.json",
        "tuning.json",
        "tuning.toml",
        "winner.toml",
    }
    winner = RunConfig.from_toml(folder / "run" / "winner.toml")
    assert winner.data_path.resolve() == folder / "points.npz"
    assert winner.training.learning_rate == found.setting["training.learning_rate"]


def test_statement_is_certified_and_the_winner_alone_is_wrong(tuned, folder):
    found = tune_run(tuned()).tuned
    statement = json.loads((folder / "run" / "statement.json").read_text())
    assert verify_statement(statement).verdict == "certified"
    assert verify_statement(statement | {"is_secure": False}).verdict == "not certified"
    assert statement == found.statement | {"is_secure": True}
    claim = {**statement, "epsilon": found.own_epsilon.upper}
    assert not verify_statement(claim).holds


@pytest.mark.slow
def test_search_is_no_run_that_could_go_on(tuned, folder):
    tune_run(tuned(training={"seed": 3}))
    with pytest.raises(ValueError, match="no run was begun"):
        resume(folder / "run")


@pytest.mark.slow
def test_finished_search_is_only_told_again(tuned):
    config = tuned(training={"seed": 3})
    assert tune_run(config).tuned == tune_run(config).tuned


def test_another_search_in_the_directory_is_refused(tuned):
    tune_run(tuned(training={"seed": 3}))
    with pytest.raises(ValueError, match="another file"):
        tune_run(tuned(training={"seed": 3}, tune={"trials": 3.0}))


def test_statement_of_a_search_outlives_other_data(tuned, folder):
    """With more examples trials would cost less than those that chose the model did."""
    config = tuned({"plan.noise_multiplier": [1.5]}, plan={"epsilon": 9.0}, training={"seed": 3})
    tune_run(config)
    published = (folder / "run" / "statement.json").read_text()
    write_points(folder, examples=1000)
    with pytest.raises(UnsoundConfiguration, match="another space, law or promise"):
        tune_run(config)
    assert (folder / "run" / "statement.json").read_text() == published


def test_statement_is_written_before_the_first_trial(tuned, folder, monkeypatch):
    def killed(*_, **__):
        assert verify_statement((folder / "run" / "statement.json").read_text()).holds
        raise KeyboardInterrupt

    monkeypatch.setattr("taut.runs._tune.train", killed)
    with pytest.raises(KeyboardInterrupt):
        tune_run(tuned())


def test_no_trial_is_made_without_a_statement(tuned, folder, monkeypatch):
    def full(path, *_):
        if path.name == "statement.json":
            raise OSError("no space left")
        path.write_text(tuned().text)

    monkeypatch.setattr("taut.runs._tune.train", lambda *_, **__: pytest.fail("trained"))
    monkeypatch.setattr("taut.runs._tune.write_atomically", full)
    with pytest.raises(UnsoundConfiguration, match="cannot be written"):
        tune_run(tuned())
    assert not (folder / "run" / "model.pt").exists()


@pytest.mark.parametrize("lost", ["private", "private/search.json"])
def test_search_whose_memory_is_lost_is_not_made_again(tuned, folder, monkeypatch, lost):
    """Its statement would then be that of one search, and the models those of two."""

    def killed(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("taut.runs._tune.train", killed)
    with pytest.raises(KeyboardInterrupt):
        tune_run(tuned())
    place = folder / "run" / lost
    place.unlink() if place.is_file() else shutil.rmtree(place)
    with pytest.raises(UnsoundConfiguration, match="is gone"):
        tune_run(tuned())


def test_trials_have_their_own_loss_where_plans_differ(tuned):
    config = tuned({"plan.steps": [4, 8], "plan.noise_multiplier": [2.0]}, plan={"epsilon": 9.0})
    search = prepare_tuning(config)
    assert len(search.losses) == 2
    assert search.loss == best_of(search.losses.values(), config.tune.number)


def test_noise_that_is_too_little_is_refused(tuned):
    config = tuned({"plan.noise_multiplier": [0.3, 0.5]})
    with pytest.raises(InfeasibleBudget, match="expected trials"):
        prepare_tuning(config)


def test_samplers_of_different_neighbours_are_refused(tuned):
    config = tuned({"plan.sampling": ["poisson", "fixed_size"]})
    with pytest.raises(UnsoundConfiguration, match="different neighbours"):
        prepare_tuning(config)


def test_scores_on_private_examples_cost_something(tuned):
    private = tuned(tune={"validation": "private", "score_noise": 8.0}, training={"seed": 3})
    public = tuned()
    assert prepare_tuning(private).trial_epsilon < prepare_tuning(public).trial_epsilon
    assert "discrete_gaussian" in repr(tune_run(private).tuned.loss)


def test_trials_are_scored_on_a_file_of_their_own(tuned, folder):
    # All labels are the same there, so that a score is the share of one class.
    inputs = np.random.default_rng(1).normal(size=(40, 3))
    np.savez(folder / "open.npz", x_validation=inputs, y_validation=np.ones(40, dtype=np.int64))
    config = tuned(data={"validation": "open.npz"}, training={"seed": 3})
    assert config.scores == "on public examples (open.npz), which is free"
    outcome = tune_run(config)
    model = prepare(config.trial(outcome.tuned.setting, 2.0)).model
    model.load_state_dict(torch.load(folder / "run" / "model.pt", weights_only=True))
    with torch.no_grad():
        right = (model(torch.tensor(inputs, dtype=torch.float32)).argmax(1) == 1).double().mean()
    assert outcome.tuned.score == pytest.approx(float(right))
    summary = json.loads((folder / "run" / "tuning.json").read_text())
    assert summary["scores"] == outcome.scores == config.scores
    # The search costs what it costs without such a file.
    assert outcome.tuned.loss == prepare_tuning(tuned()).loss


def test_scores_on_private_examples_are_told(tuned):
    private = tuned(tune={"validation": "private", "score_noise": 8.0})
    assert "noise of deviation 8 on right answers, paid for in every trial" in private.scores


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x_test": np.ones((4, 3)), "y_test": np.ones(4, dtype=int)}, "no array 'x_validation'"),
        (
            {"x_validation": np.ones((4, 2)), "y_validation": np.ones(4, dtype=int)},
            r"one x_validation of shape \[2\], but one x_train of shape \[3\]",
        ),
    ],
)
def test_validation_files_that_do_not_fit_are_refused(tuned, folder, arrays, message):
    np.savez(folder / "open.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        prepare_tuning(tuned(data={"validation": "open.npz"}))
    with pytest.raises(FileNotFoundError, match=r"no file .*missing\.npz"):
        prepare_tuning(tuned(data={"validation": "missing.npz"}))


@pytest.mark.slow
def test_more_trials_leave_less_to_each(tuned):
    rows = tuning_options(tuned())
    shares = [epsilon for _, epsilon, _ in rows]
    assert shares == sorted(shares, reverse=True)
    assert all(0 < tried <= 1 for _, _, tried in rows)


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_one_trial_is_not_said_to_cost_more_than_the_search(tuned, epsilon):
    config = tuned(tune={"trials": 1.0}, plan={"epsilon": epsilon})
    search = prepare_tuning(config)
    assert search.trial_epsilon <= epsilon
    assert search.loss.epsilon(config.base.plan.delta) == pytest.approx(epsilon, rel=0.005)


def test_bounds_are_a_range(tuned):
    config = tuned({"training.learning_rate": {"low": 0.1, "high": 1.0, "log": True}})
    assert config.tune.axes.size is None
    assert 0.1 <= tune_run(config).tuned.setting["training.learning_rate"] <= 1.0


def test_bounds_beside_losses_that_differ_are_refused_before_anything_is_written(tuned, folder):
    space = {"training.learning_rate": {"low": 0.1, "high": 1.0}, "plan.steps": [3, 6]}
    with pytest.raises(UnsoundConfiguration, match="list values instead of bounds"):
        prepare_tuning(tuned(space))
    assert not (folder / "run").exists()


@pytest.mark.parametrize("right", [0, 1, 7, 33, 49])
@pytest.mark.parametrize("labels", [1, 2, 3, 7])
def test_one_private_example_changes_a_count_by_one(monkeypatch, right, labels):
    """Also where an example has several labels, and its share of a count is no whole number."""
    monkeypatch.setattr("taut.runs._tune.discrete_gaussian_noise", lambda _: [0])
    examples = 50

    def score(count):
        accuracy = count / (labels * examples)
        return _score(SimpleNamespace(evaluation=Evaluation(0.0, accuracy, examples)), 1.0)

    for start in range(right * labels, (right + 1) * labels):
        changed = [round(score(start + more) * examples) for more in range(labels + 1)]
        assert max(changed) - min(changed) <= 1
    assert score(right * labels) == right / examples


@pytest.mark.parametrize(
    ("space", "changes", "message"),
    [
        ({"learning_rate": [0.1]}, {}, "keys are those of"),
        ({"training": {"learning_rate": [0.1]}}, {}, "in quotes if there is a dot"),
        ({"data.path": ["other.npz"]}, {}, "keys are those of"),
        ({"training.learning_rate": []}, {}, "must not be empty"),
        ({"training.learning_rate": 0.1}, {}, r"must be a list of values or.*\{low = "),
        ({"training.learning_rate": "slow"}, {}, "must be a list of values"),
        ({"training.learning_rat": [0.1]}, {}, "did you mean 'learning_rate'"),
        ({"training.learning_rate": [-1.0]}, {}, "learning_rate must be"),
        ({"training.learning_rate.x": [1.0]}, {}, "is no table"),
        ({"plan.rate": {"low": 0.1, "high": 0.2}}, {}, "bounds are for"),
        ({"plan.epsilon": [1.0, 100.0]}, {}, "the promise for all trials"),
        ({"plan.delta": [1e-3, 0.4]}, {}, "the promise for all trials"),
        ({"training.seed": [1, 2, 3]}, {}, "tells all of its noise"),
        (
            {"training.loss": ["mse", "cross_entropy"]},
            {"tune": {"validation": "private", "score_noise": 3.0}},
            "score_noise is for classes",
        ),
        ({"training.loss": ["mse", "cross_entropy"]}, {}, "'cross_entropy', 'mse', whose scores"),
        (SPACE, {"tune": {"validation": "mine"}}, "must be one of public, private"),
        (SPACE, {"tune": {"validation": "private"}}, "needs score_noise"),
        (SPACE, {"tune": {"score_noise": 1.0}}, "leave it out"),
        (SPACE, {"tune": {"trials": 0.5}}, "always one trial"),
        (SPACE, {"tune": {"trials": 0}}, r"\[tune\] trials must be finite and greater than 0"),
        (SPACE, {"tune": {"trials": "3"}}, "trials must be a number, got '3'; write it without"),
        (SPACE, {"tune": {"validation": None}}, "needs the key 'validation': 'public' or"),
        (SPACE, {"plan": {"epsilon": None, "noise_multiplier": 1.0}}, "needs epsilon and delta"),
        ({"training.learning_rate": [0.001 * i for i in range(1, 500)]}, {}, "400 settings"),
    ],
)
def test_refusals(tuned, space, changes, message):
    with pytest.raises(ValueError, match=message):
        tuned(space, **changes)


def test_empty_space_says_what_to_list():
    with pytest.raises(ValueError, match="space is empty: list what is tried"):
        TuneSection(space={}, validation="public")


def test_file_without_a_search_is_refused(configured):
    with pytest.raises(ValueError, match=r"\[tune\] is missing; add it with validation"):
        TuneConfig.from_toml(configured())


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes are those of POSIX")
@pytest.mark.parametrize("kind", [TuneConfig, RunConfig])
def test_pipes_are_refused_rather_than_waited_for(tmp_path, kind):
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", tmp_path):
        with pytest.raises(ValueError, match="not a file; write what to"):
            kind.from_toml(place)


@pytest.mark.slow  # tests/adaptive kills a search of the library
@pytest.mark.skipif(os.name != "posix", reason="processes are killed")
def test_killed_search_goes_on_with_the_same_draws(tuned, folder):
    tuned(tune={"trials": 3.0, "cap": 3, "law": "poisson"}, training={"seed": 5})
    command = [sys.executable, str(SCRIPT), str(folder / "config.toml"), "8"]
    draws, code, kills = set(), -signal.SIGKILL, 0
    while code == -signal.SIGKILL:
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        code = ended.returncode
        kills += code == -signal.SIGKILL
        memory = json.loads((folder / "run" / "private" / "search.json").read_text())
        if "settings" in memory:
            draws.add(json.dumps(memory["settings"]))
    assert code == 0, ended.stderr
    assert kills >= 1
    assert len(draws) == 1
    answer = json.loads(ended.stdout)
    assert answer["winner"] in json.loads(draws.pop())
    statement = json.loads((folder / "run" / "statement.json").read_text())
    assert not verify_statement(statement).holds
    assert verify_statement(statement | {"is_secure": True}).holds
    assert "private" not in ended.stderr
