"""The search: what it returns, what it refuses, and what it remembers after a kill."""

import contextlib
import json
import math
import os
import shutil
import signal
import stat
import threading
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

import taut
from taut.accounting import BudgetFile, PrivacyLoss, Trials, best_of
from taut.adaptive import Range, Trial, tune
from taut.audit import verify_statement
from taut.errors import BudgetExceeded, RunInUse, UnsoundConfiguration
from taut.noise import SeededForExperiments, default_generator

COST = taut.gaussian(sigma=2.0)
SPACE = {"rate": [0.1, 0.3, 1.0]}


def near(setting):
    return Trial(score=-abs(setting["rate"] - 0.3), loss=COST, output=setting["rate"])


def search(run=near, space=SPACE, **options):
    given = {
        "loss": COST,
        "trials": Trials.geometric(20),
        "delta": 1e-6,
        "score_is_public": True,
        "generator": SeededForExperiments(4),
    }
    return tune(run, space, **given | options)


def test_winner_comes_with_the_loss_of_the_search():
    found = search()
    assert found.setting == {"rate": 0.3}
    assert found.output == 0.3
    assert found.loss == best_of(COST, Trials.geometric(20))
    assert found.own_epsilon.upper < found.epsilon.upper
    assert "would hide the search" in str(found)


def test_statement_is_verified():
    found = search(generator=default_generator())
    text = json.dumps(found.statement)
    verification = verify_statement(text)
    assert verification.verdict == "certified"
    hidden = {**json.loads(text), "epsilon": found.own_epsilon.upper}
    assert verify_statement(hidden).verdict == "wrong"


def test_statement_of_a_seeded_search_is_no_promise():
    statement = search().statement
    assert statement["is_secure"] is False
    assert verify_statement(statement).verdict == "not certified"


def test_number_of_trials_follows_the_law():
    calls = []
    for seed in range(60):
        made = []
        search(
            lambda setting, made=made: made.append(1) or near(setting),
            trials=Trials.geometric(4),
            generator=SeededForExperiments(seed),
        )
        calls.append(len(made))
    assert sum(calls) / len(calls) == pytest.approx(4, abs=1.5)
    assert min(calls) == 1


def test_trials_that_fail_have_the_worst_score():
    def run(setting):
        if setting["rate"] == 0.3:
            raise RuntimeError("a secret of the data")
        score = math.nan if setting["rate"] == 0.1 else 1.0
        return Trial(score=score, loss=COST)

    assert search(run).setting == {"rate": 1.0}


@pytest.mark.parametrize("number", [np.array(0.5), Decimal("0.5"), np.float32(0.5)])
def test_score_may_be_any_one_number(number):
    assert search(lambda _: Trial(number, COST)).score == 0.5


@pytest.mark.parametrize("score", [None, "0.9", 10**400, np.zeros(3), 1j])
def test_score_that_is_no_number_is_the_worst(score):
    """No exception either, which would depend on the data and end the search."""
    assert search(lambda _: Trial(score, COST)).setting is None


def test_trial_cannot_change_settings_of_later_ones():
    """What one trial writes into its setting would tell the next about the data."""
    seen = []

    def careless(setting):
        seen.append(list(setting["widths"]))
        setting["widths"].append(99)
        return Trial(1.0, COST)

    space = {"widths": [[64, 10]]}
    assert search(careless, space).setting == {"widths": [64, 10]}
    assert len(seen) > 2
    assert all(widths == [64, 10] for widths in seen)
    assert space == {"widths": [[64, 10]]}


def test_search_without_a_score_is_spent_all_the_same():
    found = search(lambda _: Trial(score=math.nan, loss=COST))
    assert found.setting is None
    assert found.epsilon.upper > 0
    assert "no trial had a score" in str(found)


def test_no_trial_at_all_is_possible_under_a_poisson_law():
    found = search(trials=Trials.poisson(0.01), generator=SeededForExperiments(2))
    assert found.setting is None


def test_losses_that_differ_are_averaged():
    def loss(setting):
        return round(10 * setting["rate"]) * COST

    def run(setting):
        return Trial(score=setting["rate"], loss=loss(setting))

    found = search(run, loss=loss)
    assert found.loss == best_of([COST, 3 * COST, 10 * COST], Trials.geometric(20))
    assert found.own_epsilon.upper == pytest.approx((10 * COST).epsilon(1e-6))


def test_trial_that_costs_more_is_refused():
    with pytest.raises(UnsoundConfiguration, match="more than"):
        search(lambda _: Trial(score=1.0, loss=2 * COST))
    with pytest.raises(UnsoundConfiguration, match="something else than"):
        search(lambda _: Trial(score=1.0, loss=taut.gaussian(sigma=1.9)))


def test_trial_may_cost_less():
    assert search(lambda _: Trial(1.0, taut.zero())).score == 1.0


def test_private_scores_need_a_loss():
    with pytest.raises(UnsoundConfiguration, match="add noise to every score"):
        search(score_is_public=False)
    found = search(score_is_public=False, score_loss=taut.gaussian(10.0))
    assert found.loss == best_of(COST + taut.gaussian(10.0), Trials.geometric(20))


def test_search_on_public_data_is_free():
    free = taut.zero()
    found = search(lambda setting: Trial(setting["rate"], free), loss=free)
    assert found.is_free
    assert found.epsilon.upper == 0
    assert "public data alone" in str(found)
    free = taut.accounting.zero(adjacency="replace")
    assert search(lambda _: Trial(1.0, free), loss=free).is_free


def test_range_needs_one_loss():
    with pytest.raises(UnsoundConfiguration, match="no end of settings"):
        search(space={"rate": Range(0.1, 1.0)}, loss=lambda _: COST)
    found = search(space={"rate": Range(0.1, 1.0)})
    assert 0.1 <= found.setting["rate"] <= 1.0


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"delta": 2.0}, ValueError, "delta"),
        ({"score_is_public": "yes"}, TypeError, "True or False"),
        ({"score_loss": COST}, ValueError, "leave it out"),
        ({"trials": 10}, TypeError, "trials must be a law"),
        ({"loss": lambda _: 1.0}, TypeError, "PrivacyLoss for every setting"),
        ({"run": lambda _: 1.0}, TypeError, "must return a Trial"),
        ({"run": lambda _: Trial(1.0, 0.5)}, TypeError, "must return its loss"),
    ],
)
def test_refusals(options, error, message):
    with pytest.raises(error, match=message):
        search(**options)


# --- files ---------------------------------------------------------------------------------------


def test_finished_search_is_not_searched_again(tmp_path):
    first = search(directory=tmp_path / "s")
    again = search(lambda _: 1 / 0, directory=tmp_path / "s")
    assert again == first


def test_how_many_trials_there_were_is_forgotten(tmp_path):
    def run(setting):
        (setting.directory / "model").write_text(str(setting["rate"]))
        return near(setting)

    search(run, directory=tmp_path / "s")
    kept = sorted(path.name for path in (tmp_path / "s").iterdir())
    assert kept == ["lock", "search.json", "winner"]
    assert (tmp_path / "s" / "winner" / "model").read_text() == "0.3"
    assert "settings" not in json.loads((tmp_path / "s" / "search.json").read_text())
    if os.name == "posix":
        assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o700


def test_winner_has_no_number(tmp_path):
    search(directory=tmp_path / "s")
    known = json.loads((tmp_path / "s" / "search.json").read_text())
    assert set(known["winner"]) == {"setting", "score", "output"}


def test_outputs_with_paths_do_not_tell_which_trial_won(tmp_path):
    """The number of a trial in a path said that there were as many at least."""
    paths = set()

    def run(setting):
        paths.add(setting.directory)
        assert not list(setting.directory.iterdir())
        (setting.directory / "model").write_text(str(setting["rate"]))
        return replace(near(setting), output=str(setting.directory / "model"))

    found = search(run, directory=tmp_path / "s")
    assert len(paths) == 1
    assert not any(letter.isdigit() for letter in Path(found.output).parent.name)
    winner = tmp_path / "s" / "winner" / Path(found.output).name
    assert winner.read_text() == str(found.setting["rate"])


def killed_at(monkeypatch, time):
    """Interrupt when files are replaced or removed for the n-th time."""
    left = time

    def counted(real):
        def killed(*arguments):
            nonlocal left
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
            return real(*arguments)

        return killed

    monkeypatch.setattr("shutil.rmtree", counted(shutil.rmtree))
    monkeypatch.setattr(Path, "replace", counted(Path.replace))


@pytest.mark.parametrize("time", range(1, 15))
def test_files_are_those_of_the_winner_wherever_a_kill_falls(tmp_path, monkeypatch, time):
    def run(setting):
        assert not list(setting.directory.iterdir())
        (setting.directory / "model").write_text(str(setting["rate"]))
        return near(setting)

    space = {"rate": [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3]}
    with monkeypatch.context() as patch:
        killed_at(patch, time)
        with contextlib.suppress(KeyboardInterrupt):
            search(run, space, directory=tmp_path / "s")
    found = search(run, space, directory=tmp_path / "s")
    assert found == search(run, space, directory=tmp_path / "t")
    assert sorted(path.name for path in (tmp_path / "s").iterdir()) == [
        "lock",
        "search.json",
        "winner",
    ]
    assert (tmp_path / "s" / "winner" / "model").read_text() == str(found.setting["rate"])


@pytest.mark.parametrize("name", ["trial", "winner"])
def test_files_of_others_are_left_alone(tmp_path, name):
    (tmp_path / name).mkdir()
    (tmp_path / name / "thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match="a directory of its own"):
        search(directory=tmp_path)
    assert (tmp_path / name / "thesis.txt").exists()


def test_settings_are_the_same_before_and_after_a_kill(tmp_path):
    """JSON knows no tuples, so trials have none from the start."""
    kinds = []

    def seen(setting):
        kinds.append(type(setting["widths"]))
        if len(kinds) == 2:
            raise KeyboardInterrupt
        return Trial(1.0, COST)

    for _ in range(2):
        with contextlib.suppress(KeyboardInterrupt):
            search(seen, {"widths": [(64, 10)]}, directory=tmp_path / "s")
    assert len(kinds) > 2
    assert set(kinds) == {list}


def test_another_search_in_the_directory_is_refused(tmp_path):
    search(directory=tmp_path / "s")
    with pytest.raises(UnsoundConfiguration, match="another space, law or promise"):
        search(directory=tmp_path / "s", delta=1e-5)


def test_damaged_memory_is_refused(tmp_path):
    search(directory=tmp_path / "s")
    memory = tmp_path / "s" / "search.json"
    begun = {**json.loads(memory.read_text()), "settings": [SPACE]}
    for text in ("{", json.dumps(begun)):
        memory.write_text(text)
        with pytest.raises(ValueError, match="damaged"):
            search(directory=tmp_path / "s")


def test_outputs_must_be_plain_where_files_are_kept(tmp_path):
    with pytest.raises(TypeError, match="JSON can hold"):
        search(lambda _: Trial(1.0, COST, output=object()), directory=tmp_path / "s")
    plain = {"path": ["model.pt", 3, None, True]}
    found = search(lambda _: Trial(1.0, COST, output=plain), directory=tmp_path / "t")
    assert found.output == plain


def test_second_process_is_refused(tmp_path):
    def run(setting):
        with pytest.raises(RunInUse):
            search(directory=tmp_path / "s")
        return near(setting)

    assert search(run, directory=tmp_path / "s").score == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forked")
def test_killed_search_goes_on_with_the_same_draws(tmp_path):
    """Children die in the middle of one trial after the other; draws stay as they were."""
    place, seen = tmp_path / "s", tmp_path / "seen"

    def run(setting):
        with seen.open("a") as file:
            file.write(f"{setting.directory.name} {setting['rate']}\n")
        if not (setting.directory / "again").exists():
            (setting.directory / "again").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return near(setting)

    code = -signal.SIGKILL
    while code == -signal.SIGKILL:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                # A new generator in every child: numbers and settings must not be drawn again.
                search(run, directory=place, generator=SeededForExperiments(os.getpid()))
                code = 0
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if (place / "search.json").exists() and code:
            drawn = json.loads((place / "search.json").read_text())["settings"]
    assert code == 0
    lines = [line.split() for line in seen.read_text().splitlines()]
    tried = [float(rate) for _, rate in lines]
    assert tried == [setting["rate"] for setting in drawn for _ in range(2)]
    found = search(directory=place)
    assert found.setting["rate"] == min((s["rate"] for s in drawn), key=lambda r: abs(r - 0.3))
    assert isinstance(found.loss, PrivacyLoss)


def test_ledger_is_charged_before_the_first_trial_and_once(tmp_path):
    budget = BudgetFile.create(tmp_path / "budget.json", epsilon=8.0, delta=1e-6)
    expected = taut.PrivacyFilter.from_dict(json.loads(budget.path.read_text()))
    expected.spend(best_of(COST, Trials.geometric(20)))

    def interrupted(_):
        assert budget.remaining == expected.remaining
        raise KeyboardInterrupt

    options = {"directory": tmp_path / "s", "ledger": budget}
    with pytest.raises(KeyboardInterrupt):
        search(interrupted, **options)
    assert search(**options).setting == search(**options).setting
    assert budget.remaining == expected.remaining


def test_search_that_was_begun_without_a_ledger_is_charged_when_it_goes_on(tmp_path):
    def interrupted(_):
        raise KeyboardInterrupt

    expected = taut.PrivacyFilter(8.0, 1e-6, kind="renyi")
    expected.spend(best_of(COST, Trials.geometric(20)))
    with pytest.raises(KeyboardInterrupt):
        search(interrupted, directory=tmp_path / "s")
    poor = taut.PrivacyFilter(0.1, 1e-6, kind="renyi")
    with pytest.raises(BudgetExceeded):
        search(lambda _: pytest.fail("tried"), directory=tmp_path / "s", ledger=poor)
    budget = taut.PrivacyFilter(8.0, 1e-6, kind="renyi")
    for _ in range(2):
        search(directory=tmp_path / "s", ledger=budget)
        assert budget.remaining == expected.remaining


@pytest.mark.parametrize("is_interrupted", [True, False])
def test_filters_that_know_nothing_of_a_charged_search_are_charged(tmp_path, is_interrupted):
    """Filters live in memory: after a kill, a new one had its whole budget left."""

    def interrupted(_):
        raise KeyboardInterrupt

    run = interrupted if is_interrupted else near
    first, second = (taut.PrivacyFilter(8.0, 1e-6, kind="renyi") for _ in range(2))
    with contextlib.suppress(KeyboardInterrupt):
        search(run, directory=tmp_path / "s", ledger=first)
    for _ in range(2):
        search(directory=tmp_path / "s", ledger=second)
        assert second.remaining == first.remaining
    assert second.remaining.fraction < 1


def test_finished_search_without_a_ledger_is_charged_when_it_is_told(tmp_path):
    search(directory=tmp_path / "s")
    with pytest.raises(BudgetExceeded):
        search(directory=tmp_path / "s", ledger=taut.PrivacyFilter(0.1, 1e-6, kind="renyi"))


def test_seeded_search_stays_an_experiment_when_it_goes_on(tmp_path):
    def interrupted(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(interrupted, directory=tmp_path / "s")
    for _ in range(2):
        found = search(directory=tmp_path / "s", generator=default_generator())
        assert not found.is_secure
    assert verify_statement(found.statement).verdict == "not certified"


@pytest.mark.parametrize("values", [[np.int64(3)], [{1}], [object()]])
def test_values_that_files_cannot_hold_are_refused_before_anything_is_paid(tmp_path, values):
    budget = taut.PrivacyFilter(8.0, 1e-6, kind="renyi")
    with pytest.raises(TypeError, match="'width' must be ones that JSON can hold"):
        search(space={"width": values}, directory=tmp_path / "s", ledger=budget)
    assert budget.remaining.fraction == 1
    assert search(lambda _: Trial(1.0, COST), {"width": values}).score == 1.0


def test_values_that_cannot_be_copied_are_refused_before_anything_is_paid():
    budget = taut.PrivacyFilter(8.0, 1e-6, kind="renyi")
    with pytest.raises(TypeError, match="'lock' must be ones that can be copied"):
        search(space={"lock": [threading.Lock()]}, ledger=budget)
    assert budget.remaining.fraction == 1


def test_values_of_the_winner_are_those_of_the_space():
    value = object()
    found = search(lambda _: Trial(1.0, COST), {"kind": [value]})
    assert found.setting["kind"] is value


def test_losses_see_the_settings_that_trials_have(tmp_path):
    """A loss that knows tuples alone failed after the budget was spent."""
    budget = taut.PrivacyFilter(8.0, 1e-6, kind="renyi")
    losses = {(64, 10): COST}
    with pytest.raises(TypeError, match="unhashable"):
        search(
            space={"widths": [(64, 10)]},
            loss=lambda setting: losses[setting["widths"]],
            directory=tmp_path / "s",
            ledger=budget,
        )
    assert budget.remaining.fraction == 1


def test_search_beyond_the_budget_is_not_begun(tmp_path):
    budget = taut.PrivacyFilter(0.1, 1e-6, kind="renyi")
    with pytest.raises(BudgetExceeded):
        search(lambda _: pytest.fail("tried"), directory=tmp_path / "s", ledger=budget)
    assert not (tmp_path / "s" / "search.json").exists()
    assert budget.remaining.fraction == 1
    with pytest.raises(TypeError, match="ledger"):
        search(ledger=0.1)


def test_free_search_charges_nobody():
    budget = taut.PrivacyFilter(0.1, 1e-6, kind="renyi", adjacency="replace")
    free = taut.accounting.zero()
    found = search(lambda _: Trial(1.0, free), loss=free, ledger=budget)
    assert found.is_free
    assert budget.remaining.fraction == 1
