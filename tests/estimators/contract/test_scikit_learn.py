"""scikit-learn's own checks, but for the failures that are listed with their reasons."""

import warnings

import pytest
import sklearn
from estimators.contract.examples import NAMES, SameEveryTime, example
from sklearn.utils import estimator_checks

from taut.estimators._contract.expected_failures import EXPECTED_FAILURES

VERSION = tuple(int(part) for part in sklearn.__version__.split(".")[:2])


def checks(estimator):
    """Return the checks that scikit-learn has for an estimator, each with its name."""
    if VERSION >= (1, 6):
        found = estimator_checks.estimator_checks_generator(estimator)
    else:
        found = estimator_checks.check_estimator(estimator, generate_only=True)
    return [(getattr(check, "func", check).__name__, one, check) for one, check in found]


def failures(estimator):
    """Return the names of the checks that fail, with what they say."""
    found = {}
    for name, one, check in checks(estimator):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                check(one)
            except Exception as failure:
                if type(failure).__name__ not in ("SkipTest", "Skipped"):
                    found[name] = repr(failure)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_no_check_fails_but_those_that_are_listed(name):
    found = failures(example(name, generator=SameEveryTime()))
    listed = EXPECTED_FAILURES.get(name, {})
    assert len(listed) <= 3
    assert {one: said for one, said in found.items() if one not in listed} == {}
    if VERSION >= (1, 6):
        assert set(listed) == set(found)


def test_listed_estimators_exist():
    assert set(EXPECTED_FAILURES) <= set(NAMES)
