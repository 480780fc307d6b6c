"""Tables: exact answers in any parts and orders, public refusals, nothing shown."""

import copy
import math
import pickle
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.errors import UnsoundConfiguration
from taut.statistics import Categories, ClippedColumn, Intervals, Table
from taut.statistics._tables.batch import Batch
from taut.statistics._tables.queries import Counts, Products, Sums
from taut.statistics._tables.scan import Scan
from taut.statistics._tables.table import check_queries, doubles, exact_answers

X = ClippedColumn("x", -1, 2)
Y = ClippedColumn("y", 0, 9)
REGION = Categories("region", ["north", "south"], other=True)
BANDS = Intervals("x", [-1, 0, 0.5])
NUMBER = Intervals("x", [-math.inf, 0, math.inf])
QUERIES = [
    Counts(),
    Counts((REGION, BANDS)),
    Counts((REGION, NUMBER)),
    Sums((X, Y)),
    Sums((X, Y), (BANDS,)),
    Products((X, Y)),
    Products((X, Y), (REGION,)),
]
HOSTILE = [math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, -0.0, 0.5, 2.0]


def hostile_columns(rows, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=rows)
    x[: len(HOSTILE)] = HOSTILE[:rows]
    y = rng.integers(-3, 12, rows)
    return {"x": x, "y": y, "region": rng.choice(["north", "south", "west"], rows)}


def by_brute_force(columns):
    """Return the answers to the queries, in Python integers, record by record."""
    answers = [np.zeros(query.empty()[0].shape, dtype=object) for query in QUERIES]
    for x, y, region in zip(*(columns[name].tolist() for name in columns), strict=True):
        r = {"north": 0, "south": 1}.get(region, 2)
        band = 0 if -1 <= x < 0 else 1 if 0 <= x <= 0.5 else None
        ints = [int(c.integers(np.array([float(v)]))[0]) for c, v in ((X, x), (Y, y))]
        answers[0] += 1
        if band is not None:
            answers[1][r, band] += 1
            answers[4][band] += ints
        if not math.isnan(x):
            answers[2][r, int(x >= 0)] += 1
        answers[3] += ints
        answers[5] += np.outer(np.array(ints, dtype=object), np.array(ints, dtype=object))
        answers[6][r] += np.outer(np.array(ints, dtype=object), np.array(ints, dtype=object))
    return [answer.tolist() for answer in answers]


def as_lists(answers):
    return [answer.tolist() for answer in answers]


def test_answers_are_those_of_python_integers():
    columns = hostile_columns(200)
    assert as_lists(exact_answers(Table.open(columns), QUERIES)) == by_brute_force(columns)


@given(st.permutations(range(40)), st.lists(st.integers(0, 40), max_size=5))
def test_neither_order_nor_parts_change_an_answer(order, cuts):
    columns = hostile_columns(40)
    scan = Scan(QUERIES)
    mixed = {name: column[order] for name, column in columns.items()}
    ends = [0, *sorted(cuts), 40]
    for start, stop in pairwise(ends):
        part = Scan(QUERIES)
        part.add(Batch.of_arrays({n: c[start:stop] for n, c in mixed.items()}, stop - start))
        scan.merge(part.parts())
    assert as_lists(scan.answers()) == as_lists(exact_answers(Table.open(columns), QUERIES))


def test_sums_do_not_overflow():
    rows = 3_000_000
    table = Table.open({"x": np.full(rows, 2.0), "y": np.broadcast_to(0.0, rows)})
    (found,) = exact_answers(table, [Products((X, Y))])
    ends = [X.reach, -Y.reach]
    assert found.tolist() == [[rows * a * b for b in ends] for a in ends]
    assert found[0, 0] > 2**63


def test_running_sums_are_settled_before_they_overflow(monkeypatch):
    monkeypatch.setattr("taut.statistics._tables.scan._LARGEST", 70 << 31)  # after 70 records
    columns = hostile_columns(60)
    scan = Scan(QUERIES)
    for _ in range(5):
        scan.add(Batch.of_arrays(columns, 60))
    expected = [np.asarray(5 * answer) for answer in exact_answers(Table.open(columns), QUERIES)]
    assert as_lists(scan.answers()) == as_lists(expected)


def test_empty_table_has_all_cells():
    table = Table.open({"x": np.empty(0), "y": np.empty(0), "region": np.empty(0, dtype=str)})
    for query, answer in zip(QUERIES, exact_answers(table, QUERIES), strict=True):
        assert answer.shape == query.empty()[0].shape
        assert not np.any(answer)


@pytest.mark.parametrize("dtype", ["float32", "int8", "uint64", "longdouble", "bool"])
def test_types_of_numbers_count_as_their_values(dtype):
    column = np.array([0, 1, 1, 0, 1]).astype(dtype)
    (found,) = exact_answers(Table.open({"x": column}), [Sums((X,))])
    assert found.tolist() == [sum(X.integers(np.array([0.0, 1, 1, 0, 1])).tolist())]


def test_large_integers_are_cut_without_a_wrap():
    table = Table.open({"x": np.array([2**64 - 1, 2**63], dtype=np.uint64)})
    assert exact_answers(table, [Sums((X,))])[0].tolist() == [2 * X.reach]


def test_lists_are_read_entry_by_entry():
    entries = [1, None, "2", Decimal("0.5"), Fraction(1, 4), 10**400, True, [1], Decimal("sNaN")]
    expected = [1, np.nan, np.nan, 0.5, 0.25, np.inf, 1, np.nan, np.nan]
    np.testing.assert_array_equal(doubles(Table.open({"x": entries}), "x"), expected)


class Tensor:
    """What a tensor of PyTorch has, whose entries are tensors without an axis."""

    def __init__(self, array):
        self.array, self.ndim, self.dtype = np.array(array), np.ndim(array), "torch.float32"

    def __len__(self):
        return len(self.array)

    def __getitem__(self, place):
        return Tensor(self.array[place])

    def item(self):
        return self.array.item()


@pytest.mark.parametrize("column", [Tensor([1.0, 2.0]), [Tensor(1.0), np.array(2.0)]])
def test_tensors_count_as_their_numbers(column):
    assert doubles(Table.open({"x": column}), "x").tolist() == [1.0, 2.0]


def test_tensors_of_several_axes_are_refused():
    with pytest.raises(ValueError, match="column 'x' must be a vector, got 2 axes"):
        Table.open({"x": Tensor([[1.0], [2.0]])})


@pytest.mark.parametrize("column", ["31", b"31", {0: 31.0, 1: 64.0}, {31.0, 64.0}])
def test_what_holds_no_entries_in_a_row_is_no_column(column):
    with pytest.raises(ValueError, match=f"vector or a list, got the type {type(column).__name__}"):
        Table.open({"x": column})


def test_masked_entries_are_missing():
    column = np.ma.array([1.0, 2.0], mask=[False, True])
    np.testing.assert_array_equal(doubles(Table.open({"x": column}), "x"), [1.0, np.nan])


def test_masked_entries_of_a_list_are_missing():
    # NumPy hands over a zero for each of them.
    masked = np.ma.array([1.0, 2.0, 3.0], mask=[False, True, False])
    table = Table.open({"x": list(masked), "y": [np.ma.array(5, mask=True), 5, np.float64(5)]})
    np.testing.assert_array_equal(doubles(table, "x"), [1.0, np.nan, 3.0])
    np.testing.assert_array_equal(doubles(table, "y"), [np.nan, 5.0, 5.0])


def test_matrix_has_the_columns_that_are_named():
    table = Table.open(np.array([[1.0, 2.0], [3.0, 4.0]]), columns=["x", "y"])
    assert doubles(table, "y").tolist() == [2.0, 4.0]
    assert Table.open(table) is table


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (Sums((ClippedColumn("agee", 0, 1),)), "no column 'agee'; did you mean 'age'"),
        (Sums((ClippedColumn("city", 0, 1),)), "column 'city' must hold numbers, got the type <U6"),
        (Sums((ClippedColumn("born", 0, 1),)), "must hold numbers, got the type datetime64"),
        (Counts((Intervals("city", [0, 1]),)), "must hold numbers"),
        (Counts((Categories("age", ["1"]),)), "must hold texts, as its labels are, got .* int64"),
        (Counts((Categories("city", [1]),)), "must hold numbers or booleans, as its labels are"),
    ],
)
def test_columns_are_refused_by_name_and_type(query, words):
    table = Table.open(
        {
            "age": np.array([31, 77]),
            "city": np.array(["Zürich", "Basel"]),
            "born": np.array(["1999-01-01", "1960-01-01"], dtype="datetime64[D]"),
        }
    )
    with pytest.raises(ValueError, match=words) as refusal:
        check_queries(table, [query])
    assert not {"31", "77", "Basel", "1999"} & set(str(refusal.value).replace("'", " ").split())


@pytest.mark.parametrize(
    "open_wrong",
    [
        lambda: Table.open({"x": [1.0] * 4321, "y": [1.0] * 4320}),
        lambda: Table.open({"x": np.zeros((4321, 2)), "y": np.zeros(4320)}),
        lambda: Table.open(np.zeros((4321, 2)), columns=["x"]),
        lambda: Table.open(np.zeros(4321), columns=["x"]),
        lambda: Table.open(np.zeros((4321, 2))),
    ],
)
def test_no_message_tells_how_many_records_there_are(open_wrong):
    with pytest.raises(ValueError, match="column") as refusal:
        open_wrong()
    assert "432" not in str(refusal.value)


@pytest.mark.parametrize(
    "data",
    [{}, {"x": [1.0], "y": [1.0, 2.0]}, {"x": np.ones((2, 2))}, {1: [1.0]}, np.ones((2, 2))],
)
def test_bad_shapes_and_names_are_refused(data):
    with pytest.raises(ValueError, match="column"):
        Table.open(data)


@pytest.mark.parametrize("columns", [["x"], ["x", "x"]])
def test_matrix_needs_a_name_for_every_column(columns):
    with pytest.raises(ValueError, match="a different name for every column"):
        Table.open(np.ones((2, 2)), columns=columns)


def test_anything_else_is_refused_by_its_type():
    with pytest.raises(TypeError, match="of the type int"):
        Table.open(12345)


def test_too_many_cells_are_refused():
    cells = tuple(Intervals.even("x", 0, 1, 1000) for _ in range(3))
    with pytest.raises(ValueError, match="wider cells"):
        exact_answers(Table.open({"x": [0.5]}), [Counts(cells)])


def test_table_shows_its_columns_and_no_record():
    table = Table.open({"x": [123456.0]})
    assert repr(table) == "Table(NumPy: 'x')"
    assert (table.columns, table.engine) == (("x",), "NumPy")
    assert not hasattr(table, "__dict__")


@pytest.mark.parametrize("leak", [pickle.dumps, copy.deepcopy, copy.copy])
def test_table_cannot_be_pickled_or_copied(leak):
    with pytest.raises(UnsoundConfiguration, match="records would go with it"):
        leak(Table.open({"x": [123456.0]}))
