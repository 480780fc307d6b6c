"""Quantiles of tables beyond memory: what is drawn is what would be drawn in memory."""

import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from taut.accounting import Adjacency
from taut.audit import replay
from taut.noise import SeededForExperiments
from taut.statistics import Mean, Quantiles, release
from taut.statistics._mechanisms.fine_points import fine_grid
from taut.statistics._mechanisms.quantile_tree import QuantileTree
from taut.statistics._mechanisms.sorted_points import SortedPoints
from taut.statistics._releases import counted_points
from taut.statistics._releases.counted_points import CountedPoints
from taut.statistics._tables.batch import Batch
from taut.statistics._tables.scan import Scan

ANY = st.floats(allow_nan=True, allow_infinity=True) | st.integers(0, 9).map(float)
DECILES = tuple(Fraction(i, 10) for i in range(1, 10))


@pytest.fixture(autouse=True)
def few_counts(monkeypatch):
    """Let a pass have few counts: it takes more of them, and less time."""
    monkeypatch.setattr(counted_points, "_COUNT_BITS", 12)


class Passes:
    """Goes over values in chunks, and notes how often."""

    def __init__(self, values, chunk=100):
        self.values, self.chunk, self.made = np.asarray(values, dtype=float), chunk, 0

    def __call__(self, query):
        self.made += 1
        scan = Scan([query])
        for start in range(0, max(self.values.size, 1), self.chunk):
            part = self.values[start : start + self.chunk]
            scan.add(Batch.of_arrays({"x": part}, part.size))
        return scan.answers()[0]


def counted(values, grid, chunk=100):
    passes = Passes(values, chunk)
    points = CountedPoints("x", grid, passes)
    points.take(passes(points.first_query))
    return points, passes


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(ANY, max_size=40), step=st.sampled_from([1.0, 2.0**-20]), data=st.data())
def test_ranks_and_points_are_those_in_memory(values, step, data):
    grid = fine_grid(0, 8, step)
    points, _ = counted(values, grid, 7)
    memory = SortedPoints(grid.points(np.array(values, dtype=float)))
    assert points.size == memory.size
    place = st.integers(0, grid.places)
    places = [*data.draw(st.lists(place, min_size=1, max_size=4)), 0, grid.places]
    assert points.ranks(places).tolist() == memory.ranks(places).tolist()
    end = st.integers(0, len(values))
    spans = data.draw(st.lists(st.tuples(end, end).map(sorted).map(tuple), max_size=3))
    for mine, theirs in zip(points.between(spans, 120), memory.between(spans, 120), strict=True):
        assert mine.tolist() == theirs.tolist()


@pytest.mark.parametrize("count", [0, 1, 5, (1 << 20) - 1, 1 << 20, 3 * (1 << 20) + 77])
def test_points_of_a_cell_that_many_share(count):
    grid = fine_grid(0, 4, step=1)
    points = grid.points(np.full(count, 2.0))
    ends = [
        (0, min(count, 9)),
        (count // 2, min(count, count // 2 + 9)),
        (max(count - 9, 0), count),
    ]
    for first, last in ends:
        assert grid.points_of(2, count, first, last).tolist() == points[first:last].tolist()
    for place in (2 << 20, (2 << 20) + 12345, (3 << 20) - 1):
        assert grid.rank_in(place, count) == np.searchsorted(points, place)


@pytest.mark.parametrize("is_tree", [True, False])
@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE])
@pytest.mark.parametrize("epsilon", [0.02, 1.0, 200.0])
def test_same_seed_same_draws(is_tree, adjacency, epsilon):
    """Also where ranks within reach are all of them, and where draws fall between records."""
    rng = np.random.default_rng(0)
    tree = QuantileTree(DECILES, epsilon, adjacency, is_tree)
    grid = fine_grid(0, 100)
    many = np.concatenate([np.zeros(300), rng.normal(50, 20, 700), [np.nan, np.inf, -np.inf]])
    for values in (many, many[:3], [], [7.0] * 50):
        memory = SortedPoints(grid.points(np.array(values, dtype=float)))
        points, _ = counted(values, grid, 400)
        for seed in range(2):
            expected = tree.places(memory, grid, SeededForExperiments(seed))
            assert tree.places(points, grid, SeededForExperiments(seed)) == expected


def test_passes_depend_on_nothing_private():
    tree = QuantileTree(DECILES, 1.0, Adjacency.ADD_REMOVE, True)
    grid = fine_grid(0, 100)
    made = set()
    for values in ([3.0] * 500, np.linspace(0, 100, 500), np.random.default_rng(0).normal(size=9)):
        points, passes = counted(values, grid, 1000)
        tree.places(points, grid, SeededForExperiments(seed=1))
        made.add(passes.made)
    assert len(made) == 1


def test_coarse_grids_need_one_pass():
    tree = QuantileTree(DECILES, 1.0, Adjacency.ADD_REMOVE, True)
    grid = fine_grid(0, 100, step=2.0**-5)
    points, passes = counted(np.linspace(0, 100, 500), grid)
    tree.places(points, grid, SeededForExperiments(seed=1))
    assert passes.made == 1


def test_tables_that_change_are_refused():
    grid = fine_grid(0, 100)
    points, passes = counted(np.linspace(0, 100, 500), grid, 1000)
    passes.values = passes.values[:-200]
    with pytest.raises(ValueError, match="the table changed while it was read"):
        points.between([(450, 500)], 50)


class TestEngines:
    """The same numbers from memory and from what is read in parts."""

    WANTED = (
        Mean("x", (0, 100)),
        Quantiles("x", [0.1, 0.5, 0.9], (0, 100)),
        Quantiles("y", [0.5], (-1, 1), step=2.0**-8),
    )

    @pytest.fixture
    def columns(self):
        rng = np.random.default_rng(3)
        return {"x": rng.normal(50, 20, 900), "y": rng.normal(size=900)}

    @staticmethod
    def values(table, wanted=WANTED, **promise):
        found = release(
            table, wanted, epsilon=1.0, generator=SeededForExperiments(seed=7), **promise
        )
        return [np.ravel(one.value).tolist() for one in found.estimates]

    def test_files_and_lazy_frames(self, columns, tmp_path):
        pl = pytest.importorskip("polars")
        frame = pl.DataFrame(columns)
        frame.write_parquet(tmp_path / "table.parquet", row_group_size=100)
        frame.write_csv(tmp_path / "table.csv")
        expected = self.values(columns)
        for table in (frame, frame.lazy(), tmp_path / "table.parquet", tmp_path / "table.csv"):
            assert self.values(table) == expected
        public = {"adjacency": "replace", "records": 900}
        assert self.values(frame.lazy(), **public) == self.values(columns, **public)

    def test_duckdb(self, columns, tmp_path):
        duckdb = pytest.importorskip("duckdb")
        pl = pytest.importorskip("polars")
        pl.DataFrame(columns).write_parquet(tmp_path / "table.parquet")
        relation = duckdb.sql(f"select * from '{tmp_path}/table.parquet'")
        assert self.values(relation) == self.values(columns)

    def test_dask(self, columns):
        dd = pytest.importorskip("dask.dataframe")
        pd = pytest.importorskip("pandas")
        table = dd.from_pandas(pd.DataFrame(columns), npartitions=3)
        assert self.values(table) == self.values(columns)

    def test_budgets_too_small_to_count_read_the_column(self, columns):
        pl = pytest.importorskip("polars")
        wanted = [Quantiles("x", [0.5], (0, 100))]
        one, other = (
            release(table, wanted, epsilon=1e-4, generator=SeededForExperiments(seed=1))
            for table in (columns, pl.DataFrame(columns).lazy())
        )
        assert one.estimates[0].value == other.estimates[0].value

    def test_replay(self, columns):
        pl = pytest.importorskip("polars")

        def program(rows):
            table = pl.DataFrame({"x": [row[0] for row in rows]}).lazy()
            found = release(table, [Quantiles("x", [0.25, 0.5, 0.75], (0, 100))], epsilon=1.0)
            return found.to_dict()

        rows = [(x,) for x in columns["x"][:8].tolist()]
        found = replay(program, [*rows, (1e308,)], rows)
        assert found.passed, found.findings
        assert found.exercised


def test_counts_of_a_pass_are_as_many_as_by_default(monkeypatch):
    """The draws above, once more with the counts that everybody gets."""
    monkeypatch.undo()
    assert counted_points._COUNT_BITS == 20
    values = np.random.default_rng(0).normal(50, 20, 3000)
    grid = fine_grid(0, 100)
    points, passes = counted(values, grid, 5000)
    tree = QuantileTree(DECILES[4:5], 1.0, Adjacency.ADD_REMOVE, False)
    memory = SortedPoints(grid.points(values))
    source = SeededForExperiments(seed=1)
    assert tree.places(points, grid, source) == tree.places(
        memory, grid, SeededForExperiments(seed=1)
    )
    assert passes.made == 2


def test_memory_does_not_grow_with_the_table():
    """What is held at once is the same for two million values as for two hundred thousand."""
    tree = QuantileTree((Fraction(1, 2),), 1.0, Adjacency.ADD_REMOVE, False)
    grid = fine_grid(0, 1)

    def peak(n):
        values = np.random.default_rng(0).random(n)
        tracemalloc.start()
        points, _ = counted(values, grid, 50_000)
        tree.places(points, grid, SeededForExperiments(seed=1))
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    assert peak(400_000) < 1.05 * peak(50_000)
