"""Bugs that two runs find, each in less than a second; the program that was mended passes."""

import time

import pytest
from audit.zoo import budgets, dependence, sensitivities

from taut.audit import replay

BUGS = [*sensitivities.BUGS, *dependence.BUGS, *budgets.BUGS]


@pytest.mark.parametrize("bug", BUGS, ids=repr)
def test_bug_is_found_by_two_runs(bug):
    start = time.process_time()
    result = replay(bug.broken, bug.data, bug.neighbour, claim=bug.claim, crafted=True)
    assert any(bug.finding in text for text in result.findings), str(result)
    assert time.process_time() - start < 1.0


@pytest.mark.parametrize("bug", BUGS, ids=repr)
def test_mended_program_passes(bug):
    result = replay(bug.mended, bug.data, bug.neighbour, claim=bug.claim, crafted=True)
    assert result.passed, str(result)
    assert result.exercised
