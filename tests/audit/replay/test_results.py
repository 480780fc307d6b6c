"""What a program returns: no difference hides in objects that both runs share, names or signs."""

import functools
from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse

from taut.audit import recorded, replay
from taut.audit._replay.equality import kept, where_different
from taut.noise import Box, optimal_laplace

NOISE = optimal_laplace(Box([100.0]), epsilon=1.0)
AGES = np.array([[34.0], [51.0], [28.0], [62.0]])
Pair = namedtuple("Pair", "sum other")


def found(function, data=AGES, neighbour=AGES[:-1]):
    return replay(lambda rows: (NOISE.release_sum(rows), function(rows))[1], data, neighbour)


class Holder:
    def __init__(self, value=None):
        self.value = value


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


@dataclass
class Both:
    one: object
    other: object


class Labelled(torch.nn.Linear):
    def __init__(self, mean):
        super().__init__(1, 1)
        torch.nn.init.ones_(self.weight)
        torch.nn.init.ones_(self.bias)
        self.mean = mean


def written_into(thing, write):
    def program(rows):
        write(thing, float(rows.sum()))
        return thing

    return program


def fill(tensor, number):
    with torch.no_grad():
        tensor.fill_(number)


@pytest.mark.parametrize(
    "program",
    [
        written_into({}, lambda thing, number: thing.update(a=number)),
        written_into([0.0], lambda thing, number: thing.__setitem__(0, number)),
        written_into(np.zeros(2), lambda thing, number: thing.fill(number)),
        written_into(torch.zeros(2), lambda thing, number: thing.fill_(number)),
        written_into(torch.nn.Linear(1, 1), lambda thing, number: fill(thing.weight, number)),
        written_into(Holder(), lambda thing, number: setattr(thing, "value", number)),
        written_into({"model": Holder()}, lambda t, number: setattr(t["model"], "value", number)),
        written_into(Both([1.0], 2.0), lambda thing, number: thing.one.append(number)),
        written_into(
            pd.DataFrame({"a": [1.0]}), lambda thing, number: thing.update({"a": [number]})
        ),
    ],
)
def test_object_of_both_runs_is_compared_as_the_first_one_left_it(program):
    result = found(program)
    assert not result.passed
    assert "the result depends on the data" in result.findings[0]


@pytest.mark.parametrize(
    "program",
    [
        lambda rows: pd.DataFrame([[1.0]], columns=[f"age {rows[-1, 0]:g}"]),
        lambda rows: pd.Series([1.0], index=[rows[-1, 0]]),
        lambda rows: np.ma.array([1.0, 2.0], mask=[len(rows) > 3, False]),
        lambda rows: np.array([0.0 if len(rows) > 3 else -0.0]),
        lambda rows: 0.0 if len(rows) > 3 else -0.0,
        lambda rows: complex(0.0, 0.0 if len(rows) > 3 else -0.0),
        lambda rows: np.array([None, rows[-1, 0]], dtype=object),
        lambda rows: sparse.csr_matrix([[0.0, rows.sum()]]),
        lambda rows: lambda x: x + len(rows),
        lambda rows: functools.partial(max, len(rows)),
        lambda rows: Holder(len(rows)).__init__,
        lambda rows: Slotted(len(rows)),
        lambda rows: Labelled(float(rows.mean())),
        lambda rows: torch.nn.Sequential(Labelled(float(rows.mean()))),
        lambda rows: Both(1, [len(rows)]),
    ],
)
def test_difference_beside_the_numbers_is_found(program):
    assert not found(program).passed


SHARED = np.array([1.0, np.nan])
TABLE = pd.DataFrame({"a": [1.0, np.nan], "b": ["x", "y"]}, index=["u", "v"])


@pytest.mark.parametrize(
    "program",
    [
        lambda _: SHARED,
        lambda _: {"bins": SHARED, "noise": NOISE},
        lambda _: Holder(NOISE),
        lambda _: TABLE,
        lambda _: TABLE.copy(),
        lambda _: np.array([np.nan, "a", None], dtype=object),
        lambda _: np.ma.array([1.0, 2.0], mask=[True, False]),
        lambda _: sparse.csr_matrix([[0.0, 2.0]]),
        lambda _: Labelled(1.0),
        lambda _: lambda x: x + SHARED,
        lambda _: functools.partial(max, 3),
        lambda _: Slotted(3.0),
        lambda _: Labelled(1.0).forward,
        lambda _: {1.0, 2.0},
        lambda _: range(3),
        lambda _: float,
        lambda _: Pair(1.0, SHARED),
        lambda _: 1.0 + 0.0 * 1j,
    ],
)
def test_results_that_are_alike_pass(program):
    assert found(program).findings == ()


def test_result_that_holds_itself_is_refused_soon():
    endless, other = [], []
    endless += [endless, endless]
    other += [other, other]
    with pytest.raises(ValueError, match="must not contain itself"):
        kept(endless)
    with pytest.raises(ValueError, match="must not contain itself"):
        list(where_different(endless, other))


def test_neighbour_that_is_a_part_of_the_data_is_not_changed_with_them():
    def program(rows):
        rows /= 100.0 if len(rows) > 3 else 1.0
        return NOISE.release_sum(rows)

    ages = AGES.copy()
    (release,) = replay(program, ages, ages[:-1], crafted=True).releases
    assert release.measured == pytest.approx((51 + 34 + 28 - 1.75) / 100, rel=1e-6)


def test_release_of_a_tuple_with_names_is_frozen():
    @recorded(sensitivity=100.0, scale=10.0)
    def noisy(value):
        return Pair(value + np.random.default_rng().laplace(), 1.0)

    assert replay(lambda rows: noisy(rows.sum()).sum, AGES, AGES[:-1]).passed
