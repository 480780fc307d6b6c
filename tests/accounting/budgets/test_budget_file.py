"""A budget in a file: what is spent stays spent, whoever spends it and however that ends."""

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import taut
from taut.accounting import BudgetFile, Ledger
from taut.errors import AdjacencyMismatch, BudgetExceeded, RunInUse

LOSS = taut.pure(0.25)


@pytest.fixture
def budget(tmp_path):
    return BudgetFile.create(tmp_path / "budget.json", epsilon=2.0, delta=1e-6)


def in_a_child(act):
    """Run a function in a process of its own, and return how that ended."""
    child = os.fork()
    if child == 0:
        try:
            act()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]


def test_it_is_a_ledger_that_another_one_reads(budget):
    assert isinstance(budget, Ledger)
    budget.spend(LOSS)
    left = BudgetFile(budget.path).remaining.fraction
    assert left == budget.remaining.fraction < 1
    held = taut.PrivacyFilter.from_dict(json.loads(budget.path.read_text()))
    assert (held.epsilon, held.delta, held.remaining.fraction) == (2.0, 1e-6, left)


def test_pure_losses_add_up_to_the_budget_at_least(budget):
    for _ in range(7):
        budget.spend(LOSS)
    assert budget.remaining.fraction > 0


def test_many_small_losses_cost_less_than_their_epsilons(tmp_path):
    budget = BudgetFile.create(tmp_path / "budget.json", epsilon=1.0, delta=1e-6)
    for _ in range(40):
        budget.spend(taut.pure(0.03))


def test_what_is_beyond_is_refused_with_what_remains(budget):
    for _ in range(7):
        budget.spend(LOSS)
    before = budget.path.read_bytes()
    with pytest.raises(BudgetExceeded, match=r"budget\.json: .* is left"):
        budget.spend(taut.pure(1.5))
    assert budget.path.read_bytes() == before


def test_another_relation_is_refused(budget):
    before = budget.path.read_bytes()
    with pytest.raises(AdjacencyMismatch):
        budget.spend(taut.pure(0.1, adjacency="replace"))
    assert budget.path.read_bytes() == before


def test_a_file_is_not_made_twice(budget):
    budget.spend(LOSS)
    with pytest.raises(FileExistsError, match="forgotten"):
        BudgetFile.create(budget.path, epsilon=2.0, delta=1e-6)
    assert budget.remaining.fraction < 1


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"schema": "taut.privacy-filter/1"}', "[" * 9]
)
def test_other_files_are_no_budgets(tmp_path, text):
    path = tmp_path / "budget.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="holds no budget"):
        BudgetFile(path)


def test_no_file_is_no_budget(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"BudgetFile\.create"):
        BudgetFile(tmp_path / "budget.json")


@pytest.mark.parametrize("promise", [(0.0, 1e-6), (1.0, 0.0), (float("nan"), 0.1), (1.0, 1.5)])
def test_promises_out_of_range_leave_no_file(tmp_path, promise):
    with pytest.raises((ValueError, taut.errors.InfeasibleBudget)):
        BudgetFile.create(tmp_path / "budget.json", epsilon=promise[0], delta=promise[1])
    assert not (tmp_path / "budget.json").exists()


def test_two_names_are_one_budget(budget, tmp_path):
    alias = tmp_path / "alias.json"
    alias.symlink_to(budget.path)
    BudgetFile(alias).spend(LOSS)
    assert alias.is_symlink()
    assert budget.remaining.fraction < 1


def test_a_second_name_that_spending_would_part_is_refused(budget, tmp_path):
    alias = tmp_path / "alias.json"
    alias.hardlink_to(budget.path)
    for path in (alias, budget.path):
        with pytest.raises(ValueError, match="several names"):
            BudgetFile(path).spend(LOSS)
    with pytest.raises(ValueError, match="several names"):
        budget.spend(LOSS)
    alias.unlink()
    budget.spend(LOSS)


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
def test_a_budget_of_a_group_can_be_spent_by_all_of_it(tmp_path):
    # The lock could be opened by those alone who had made it.
    usual = os.umask(0o002)
    try:
        budget = BudgetFile.create(tmp_path / "budget.json", epsilon=2.0, delta=1e-6)
        budget.spend(LOSS)
    finally:
        os.umask(usual)
    assert {one.stat().st_mode & 0o777 for one in tmp_path.iterdir()} == {0o664}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes are those of POSIX")
def test_pipes_and_directories_hold_no_budget(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", tmp_path):
        with pytest.raises(ValueError, match="holds no budget: it is no file"):
            BudgetFile(place)


def test_threads_with_files_of_their_own_spend_each_once(tmp_path):
    path = tmp_path / "budget.json"
    BudgetFile.create(path, epsilon=1.0, delta=1e-6)
    one = taut.PrivacyFilter.from_dict(json.loads(path.read_text()))
    loss = taut.pure(0.01)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: BudgetFile(path).spend(loss), range(24)))
    for _ in range(24):
        one.spend(loss)
    assert json.loads(path.read_text()) == one.to_dict()


def test_a_file_that_is_held_for_long_is_refused(budget, monkeypatch):
    monkeypatch.setattr("taut.accounting._budgets.budget_file._PATIENCE", 0.05)
    monkeypatch.setattr("taut.accounting._budgets.budget_file.lock", lambda _: False)
    with pytest.raises(RunInUse, match="in use elsewhere"):
        budget.spend(LOSS)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forked")
class TestProcesses:
    def test_two_processes_spend_from_one_file(self, budget):
        ends = [in_a_child(lambda: budget.spend(LOSS)) for _ in range(3)]
        assert ends == [0, 0, 0]
        expected = taut.PrivacyFilter.from_dict(
            {**json.loads(budget.path.read_text()), "spent": [0.0, 0.0]}
        )
        for _ in range(3):
            expected.spend(LOSS)
        assert json.loads(budget.path.read_text()) == expected.to_dict()

    def test_a_release_that_is_killed_has_been_paid(self, budget):
        def act():
            budget.spend(LOSS)
            os.kill(os.getpid(), signal.SIGKILL)

        assert os.WTERMSIG(in_a_child(act)) == signal.SIGKILL
        assert budget.remaining.fraction < 1

    def test_one_that_is_killed_before_it_was_paid_has_released_nothing(self, budget, monkeypatch):
        """The old file is whole, the lock is free, and `spend` has not come back."""
        before = budget.path.read_bytes()
        killed = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # noqa: E731
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", killed)
            assert os.WTERMSIG(in_a_child(lambda: budget.spend(LOSS))) == signal.SIGKILL
        assert budget.path.read_bytes() == before
        budget.spend(LOSS)
        assert budget.remaining.fraction < 1
