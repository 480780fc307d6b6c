"""What a program returns: no difference hides in objects that both runs share, names or signs."""

import functools
import io
import random
import threading
import types
from collections import namedtuple
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from scipy import sparse
from sklearn.tree import DecisionTreeClassifier

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


class Private:
    __slots__ = ("__value",)

    def __init__(self, value):
        self.__value = value


class Lenient:
    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return isinstance(other, Lenient)

    __hash__ = None


class Uncopied:
    def __init__(self, value):
        self.value = value

    def __reduce__(self):
        raise NotImplementedError("it holds a lock")


class Counted:
    """An object that remembers how often it was looked at, and holds nothing else."""

    @functools.cached_property
    def own(self):
        return object()


def with_note(thing, value, name="note"):
    setattr(thing, name, value)
    return thing


def with_buffer(module, value):
    module.register_buffer("mean_of_all", value, persistent=False)
    return module


def levels(rows):
    """Return one row's index; pandas keeps the levels of those that are gone."""
    made = pd.MultiIndex.from_arrays([["x", *map(str, rows[:, 0])], [0] * (len(rows) + 1)])
    return made[:1]


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
        written_into(set(), lambda thing, number: (thing.clear(), thing.add(number))),
        written_into(bytearray(8), lambda t, number: t.__setitem__(slice(None), b"%f" % number)),
        written_into(types.SimpleNamespace(), lambda t, number: setattr(t, "value", number)),
        written_into(io.StringIO(), lambda t, number: (t.truncate(0), t.write(str(number)))),
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
        lambda rows: with_note(Both(1, 2), len(rows)),
        lambda rows: Private(len(rows)),
        lambda rows: Lenient(len(rows)),
        lambda rows: types.SimpleNamespace(sums=np.array([len(rows), 1])),
        lambda rows: io.StringIO(str(len(rows))),
        lambda rows: io.BytesIO(bytes(len(rows))),
        lambda rows: ValueError(len(rows)),
        lambda rows: random.Random(len(rows)),
        lambda rows: np.random.default_rng(len(rows)),
        lambda rows: iter([len(rows)]),
        lambda rows: memoryview(bytes(len(rows))),
        lambda rows: {len(rows)},
        lambda rows: Decimal("1." + len(rows) * "0"),
        lambda rows: Decimal("0" if len(rows) > 3 else "-0"),
        lambda rows: np.array([(len(rows), np.nan)], dtype=[("a", "i4"), ("b", "f8")]),
        lambda rows: np.array([len(rows)], dtype="M8[D]"),
        lambda rows: with_note(pd.DataFrame({"a": [1.0]}), {"n": len(rows)}, "attrs"),
        lambda rows: pd.Series([1.0], name=f"of {len(rows)}"),
        lambda rows: pd.Series([1.0], index=pd.Index([1], name=f"of {len(rows)}")),
        lambda rows: pd.Series(["x"], dtype=pd.CategoricalDtype(["x", *map(str, rows[:, 0])])),
        lambda rows: pd.Categorical(["x"], categories=["x", *map(str, rows[:, 0])]),
        lambda rows: pd.DataFrame(
            {"a": np.ones(2, "i8" if len(rows) > 3 else "f8"), "b": [0.5, 2]}
        ),
        lambda rows: pd.Series([1], index=levels(rows)),
        lambda rows: pl.Series(f"of {len(rows)}", [1.0]),
        lambda rows: pl.Series("a", ["x"], dtype=pl.Enum(["x", *map(str, rows[:, 0])])),
        lambda rows: pa.array([str(len(rows))]).dictionary_encode(),
        lambda rows: torch.tensor([len(rows)], dtype=torch.bfloat16),
        lambda rows: (torch.eye(2) * len(rows)).to_sparse(),
        lambda rows: torch.sparse_coo_tensor(
            [range(len(rows))], [0.0] * len(rows), (9,), check_invariants=True
        ),
        lambda rows: torch.tensor([1.0 + len(rows) * 1j]).conj(),
        lambda rows: Labelled(torch.tensor(rows.mean())),
        lambda rows: Labelled(Both(rows.mean(), 1)),
        lambda rows: Labelled(types.SimpleNamespace(mean=rows.mean())),
        lambda rows: with_note(Labelled(1.0), len(rows), "_note"),
        lambda rows: with_buffer(Labelled(1.0), torch.tensor(rows.mean())),
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
        lambda _: types.SimpleNamespace(sums=SHARED.copy()),
        lambda _: io.StringIO("text"),
        lambda _: Uncopied(3),
        lambda _: ValueError("a", 1),
        lambda _: np.random.default_rng(1),
        lambda _: DecisionTreeClassifier(random_state=0).fit([[0.0], [1.0]], [0, 1]),
        lambda _: frozenset([1, "a"]),
        lambda _: Decimal("NaN"),
        lambda _: with_note(Both(1, 2), 3),
        lambda _: Private(3),
        lambda _: Lenient(3),
        lambda _: Counted(),
        lambda _: np.array(["NaT", "2020-01-01"], dtype="M8[D]"),
        lambda _: np.array([(1, np.nan)], dtype=[("a", "i4"), ("b", "f8")]),
        lambda _: pd.Series([pd.NaT, pd.Timestamp("2020-01-01")]),
        lambda _: pd.Series([pd.NA, 1], dtype="Int64", name="a"),
        lambda _: pd.Series(pd.Categorical(["a", None])),
        lambda _: pd.Series([1], index=levels(AGES)),
        lambda _: pl.DataFrame({"a": [1.0], "b": ["x"]}),
        lambda _: pa.table({"a": [1.0], "b": ["x"]}),
        lambda _: pa.chunked_array([["a", None]]).dictionary_encode(),
        lambda _: torch.tensor([1.0], dtype=torch.bfloat16),
        lambda _: torch.eye(2).to_sparse(),
        lambda _: torch.nn.LSTM(1, 1).to(torch.bfloat16).train(),
        lambda _: torch.optim.Adam(Labelled(1.0).parameters()),
    ],
)
def test_results_that_are_alike_pass(program):
    assert found(program).findings == ()


class Unordered:
    """An object that refuses to be compared, as those do that are computed later."""

    __slots__ = ()

    def __eq__(self, other):
        raise RuntimeError("compute it first")

    __hash__ = None


def test_results_that_refuse_to_be_compared_are_refused():
    with pytest.raises(TypeError, match="two results of type Unordered cannot be compared"):
        found(lambda _: Unordered())


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


@pytest.mark.parametrize(
    "pair",
    [
        lambda rows: (rows, rows[:-1]),
        lambda rows: (torch.from_numpy(rows), torch.from_numpy(rows)[:-1]),
        lambda rows: ((rows, "a"), (rows[:-1], "a")),
        lambda rows: ({"rows": rows}, {"rows": rows[:-1]}),
        lambda rows: ((every := list(rows)), every[:-1]),
    ],
)
def test_neighbour_that_shares_records_with_the_data_is_not_changed_with_them(pair):
    def program(data):
        rows = data[0] if isinstance(data, tuple) else data
        rows = rows["rows"] if isinstance(data, dict) else rows
        for row in rows:
            row += 10.0
        return NOISE.release([float(sum(min(row[0], 50.0) for row in rows))])

    data, neighbour = pair(AGES.copy())
    (release,) = replay(program, data, neighbour, crafted=True).releases
    assert release.measured == pytest.approx(0.5, rel=1e-6)


def test_neighbour_that_cannot_be_copied_is_taken_as_it_is():
    program = lambda data: NOISE.release_sum(data[0])  # noqa: E731
    lock = threading.Lock()
    assert replay(program, (AGES, lock), (AGES[:-1], lock)).passed


def test_release_of_a_tuple_with_names_is_frozen():
    @recorded(sensitivity=100.0, scale=10.0)
    def noisy(value):
        return Pair(value + np.random.default_rng().laplace(), 1.0)

    assert replay(lambda rows: noisy(rows.sum()).sum, AGES, AGES[:-1]).passed
