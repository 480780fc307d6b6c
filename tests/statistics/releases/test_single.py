"""One statistic at a time, of tables and of arrays."""

import numpy as np
import pytest

from taut.audit import replay
from taut.noise import SeededForExperiments
from taut.statistics import (
    Categories,
    Intervals,
    count,
    covariance,
    estimate_bounds,
    histogram,
    mean,
    quantiles,
    total,
    variance,
)

pd = pytest.importorskip("pandas")
AGES = np.linspace(20, 60, 801)
FRAME = pd.DataFrame({"age": AGES, "kind": ["a", "b", "b"] * 267})
RANGE = (0, 100)


def seeded():
    return SeededForExperiments(seed=1)


CALLS = [
    (mean, {"bounds": RANGE}, 40.0),
    (total, {"bounds": RANGE}, 40.0 * 801),
    (variance, {"bounds": RANGE}, AGES.var()),
    (quantiles, {"bounds": RANGE, "shares": [0.25, 0.5, 0.75]}, [30, 40, 50]),
    (histogram, {"edges": [0, 30, 100]}, [200, 601]),
]


@pytest.mark.parametrize(("call", "arguments", "value"), CALLS)
def test_tables_and_arrays_give_the_same(call, arguments, value):
    arguments = {**arguments, "epsilon": 5.0}
    found = call(FRAME, "age", **arguments, generator=seeded())
    assert found.value == pytest.approx(value, rel=0.02)
    for data in (AGES, AGES.tolist(), tuple(AGES.tolist()), FRAME["age"]):
        again = call(data, **arguments, generator=seeded())
        assert np.array_equal(again.value, found.value)
        assert again.loss == found.loss


@pytest.mark.parametrize(("call", "arguments", "value"), CALLS)
def test_replaced_records_at_a_delta(call, arguments, value):
    arguments = {**arguments, "epsilon": 5.0, "delta": 1e-6}
    found = call(AGES, **arguments, adjacency="replace", records=801, generator=seeded())
    assert found.value == pytest.approx(value, rel=0.02)
    assert str(found.loss.adjacency) == "replace"


def test_counts_of_tables_and_arrays():
    for data in (FRAME, AGES, {"x": AGES}, AGES[:, None].ravel()):
        assert count(data, epsilon=5.0, generator=seeded()).value == pytest.approx(801, abs=3)


def test_labels_and_cells():
    by_label = histogram(FRAME, "kind", cells=["a", "b"], epsilon=5.0, generator=seeded())
    by_cells = histogram(FRAME, cells=Categories("kind", ["a", "b"]), epsilon=5.0)
    assert by_label.value == pytest.approx([267, 534], abs=4)
    assert by_cells.value == pytest.approx([267, 534], abs=4)
    joint = [Categories("kind", ["a", "b"]), Intervals("age", [0, 40, 100])]
    assert histogram(FRAME, cells=joint, epsilon=5.0).value.shape == (2, 2)
    assert histogram([1, 2, 2], cells=[1, 2, 3], epsilon=5.0).value.shape == (3,)


def test_a_covariance_matrix():
    table = {"x": AGES, "y": 100 - AGES}
    found = covariance(table, bounds={"x": RANGE, "y": RANGE}, epsilon=5.0, generator=seeded())
    v = AGES.var()
    assert found.value == pytest.approx(np.array([[v, -v], [-v, v]]), abs=10)
    assert np.linalg.eigvalsh(found.value).min() >= -1e-9
    free = {"bounds": {"x": RANGE, "y": RANGE}, "epsilon": 1e-3, "positive": False}
    lowest = [
        np.linalg.eigvalsh(covariance(table, **free, generator=SeededForExperiments(i)).value)[0]
        for i in range(5)
    ]
    assert min(lowest) < 0


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: mean(FRAME, bounds=RANGE, epsilon=1.0), "column must be named"),
        (lambda: mean(AGES, "age", bounds=RANGE, epsilon=1.0), "column must be left out"),
        (lambda: histogram(AGES, epsilon=1.0), "exactly one of cells and edges"),
        (lambda: histogram(AGES, cells=[1], edges=[0, 1], epsilon=1.0), "exactly one"),
        (lambda: mean(AGES, bounds=RANGE, epsilon=1.0, records=5), "records must be left out"),
        (lambda: estimate_bounds(AGES, epsilon=1.0, smallest=4, largest=2), "below largest"),
        (lambda: estimate_bounds(AGES, epsilon=1.0, largest=float("nan")), "largest"),
    ],
)
def test_what_is_refused(call, match):
    with pytest.raises(ValueError, match=match):
        call()


def test_what_is_neither_a_table_nor_an_array_is_not_said_to_have_columns():
    with pytest.raises(TypeError, match="data must be a table of"):
        mean((age for age in AGES), bounds=RANGE, epsilon=1.0)
    with pytest.raises(ValueError, match=r"Table.open\(matrix, columns="):
        mean(np.zeros((3, 2)), bounds=RANGE, epsilon=1.0)


class TestEstimatedBounds:
    def test_lie_around_the_bulk(self):
        rng = np.random.default_rng(0)
        values = np.concatenate([rng.uniform(-100, 700, 5000), [1e9, -np.inf, np.nan]])
        found = estimate_bounds(values, epsilon=1.0, generator=seeded())
        assert found.bounds == (-128.0, 1024.0)
        assert found.loss.epsilon(delta=0) == pytest.approx(1.0)
        assert str(found).startswith("bounds [-128, 1024]; epsilon <= 1")

    def test_of_zeros_are_narrow(self):
        assert estimate_bounds(np.zeros(500), epsilon=1.0).bounds == (-(2.0**-10), 2.0**-10)

    @pytest.mark.parametrize("values", [[], [5.0, 6.0]])
    def test_of_few_records_are_public(self, values):
        found = estimate_bounds(values, epsilon=0.01, largest=1000.0, generator=seeded())
        assert found.bounds == (-1024.0, 1024.0)

    def test_replay(self):
        def program(data):
            return estimate_bounds(data, epsilon=1.0).bounds

        values = AGES[:50].tolist()
        assert replay(program, [*values, 7e5], values).passed
        assert replay(program, [*values, float("nan")], values).passed

    def test_seldom_take_an_empty_cell(self):
        wrong = 0
        for seed in range(200):
            source = SeededForExperiments(seed)
            found = estimate_bounds(np.full(300, 3.0), epsilon=0.3, generator=source)
            wrong += found.bounds != (2.0, 4.0)
        assert wrong <= 8


def test_one_series_of_any_library():
    pl, pd = pytest.importorskip("polars"), pytest.importorskip("pandas")
    pa = pytest.importorskip("pyarrow")
    arrow = pa.array([1, 2, None]), pa.chunked_array([[1, 2], [None]])
    for series in (pl.Series([1, 2, None]), pd.Series([1, 2, None], dtype="Int64"), *arrow):
        assert 0 <= mean(series, bounds=(0, 5), epsilon=1.0).value <= 5
