"""Every engine gives the same integers, for any split and order; refusals show no record."""

import math
import random
from decimal import Decimal

import numpy as np
import pytest

from taut.statistics import Categories, ClippedColumn, Intervals, Table
from taut.statistics._tables.engines.frames import _types
from taut.statistics._tables.engines.parts import SparkSource
from taut.statistics._tables.engines.source import silently
from taut.statistics._tables.queries import Counts, Products, Sums
from taut.statistics._tables.table import check_queries, doubles, exact_answers

nw = pytest.importorskip("narwhals")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
duckdb = pytest.importorskip("duckdb")
dd = pytest.importorskip("dask.dataframe")

X = ClippedColumn("x", -1, 2)
SIZE = ClippedColumn("size", 0, 9)
SMALL = ClippedColumn("small", -0.1, 0.3)
PRICE = ClippedColumn("price", 0, 5)
MEMBER = ClippedColumn("member", 0, 1)
REGION = Categories("region", ["north", "süd"], other=True)
KIND = Categories("kind", ["b", "a"])
MEMBERSHIP = Categories("member", [True, False], other=True)
SIZES = Categories("size", [3, 2**53 - 1, -2])
BANDS = Intervals("x", [-1, 0, 0.5, math.inf])
NUMBER = Intervals("x", [-math.inf, 0, math.inf])
ALL = (X, SIZE, SMALL, PRICE, MEMBER)
QUERIES = [
    Counts(),
    Counts((REGION, BANDS)),
    Counts((KIND, MEMBERSHIP)),
    Counts((SIZES,)),
    Counts((REGION, NUMBER)),
    Sums(ALL),
    Sums(ALL, (KIND, BANDS)),
    Products(ALL),
    Products(ALL, (REGION,)),
]
ROWS = 300


def records(order=None):
    """Return hostile columns as lists, with None where an entry is missing."""
    rng = random.Random(5)
    x = [rng.gauss(0, 1) for _ in range(ROWS)]
    x[:9] = [math.inf, -math.inf, 1e308, -1e308, 5e-324, -0.0, 0.5, 2.0, 1e-310]
    size = [rng.randrange(-3, 12) for _ in range(ROWS)]
    size[:6] = [2**53 + 1, 2**63 - 1, -(2**63), 2**53, 2**53 - 1, -(2**53) - 1]
    columns = {
        "x": x,
        "size": size,
        "small": [float(np.float32(rng.gauss(0, 0.2))) for _ in range(ROWS)],
        "price": [Decimal(rng.randrange(-100, 10**6)) / 10**5 for _ in range(ROWS)],
        "member": [rng.random() < 0.5 for _ in range(ROWS)],
        "region": [rng.choice(["north", "süd", "North", "", "北"]) for _ in range(ROWS)],
        "kind": [rng.choice(["a", "b", "c"]) for _ in range(ROWS)],
    }
    for name, column in columns.items():
        for i in rng.sample(range(20, ROWS), 30):
            column[i] = None
        columns[name] = column if order is None else [column[i] for i in order]
    return columns


def arrow():
    types = {
        "x": pa.float64(),
        "size": pa.int64(),
        "small": pa.float32(),
        "price": pa.decimal128(12, 5),
        "member": pa.bool_(),
        "region": pa.string(),
        "kind": pa.dictionary(pa.int8(), pa.string()),
    }
    rows = list(range(ROWS))
    random.Random(7).shuffle(rows)
    return pa.table({name: pa.array(c, types[name]) for name, c in records(rows).items()})


def pandas_with_numpy():
    columns = records()
    frame = pd.DataFrame(
        {
            "x": pd.Series(columns["x"], dtype="float64"),
            "size": pd.Series(columns["size"], dtype="Int64"),
            "small": pd.Series(columns["small"], dtype="float32"),
            "price": pd.Series(columns["price"], dtype=pd.ArrowDtype(pa.decimal128(12, 5))),
            "member": pd.Series(columns["member"], dtype="boolean"),
            "region": pd.Series(columns["region"], dtype=object),
            "kind": pd.Series(columns["kind"], dtype="category"),
        }
    )
    return frame.sample(frac=1, random_state=3)


def in_chunks(table):
    return pa.concat_tables([table.slice(a, n) for a, n in ((0, 7), (7, 0), (7, 93), (100, 200))])


def csv(path):
    file = path / "table.csv"
    # Files hold digits: those of a single are not those of the double that it is.
    plain = (pl.col("member").cast(pl.Int8), pl.col("small").cast(pl.Float64))
    frame = pl.from_arrow(arrow()).with_columns(*plain)
    frame.write_csv(file)
    return file


def parquet(path):
    pq.write_table(arrow(), path / "table.parquet", row_group_size=50)
    return str(path / "table.parquet")


def relation(_):
    table = arrow()  # found by its name
    assert table.num_rows
    return duckdb.connect().from_arrow(table)


ENGINES = {
    "lists": lambda _: records(),
    "pandas": lambda _: pandas_with_numpy(),
    "pandas on Arrow": lambda _: arrow().to_pandas(types_mapper=pd.ArrowDtype),
    "Polars": lambda _: pl.from_arrow(arrow()),
    "Polars, lazily": lambda _: pl.from_arrow(arrow()).lazy().filter(pl.lit(True)),
    "PyArrow": lambda _: in_chunks(arrow()),
    "DuckDB": relation,
    "Dask": lambda _: dd.from_pandas(pandas_with_numpy().reset_index(drop=True), npartitions=4),
    "CSV": csv,
    "Parquet": parquet,
}


def as_lists(answers):
    return [answer.tolist() for answer in answers]


@pytest.fixture(scope="module")
def expected():
    """Return the answers for arrays of NumPy, which test_table.py holds against brute force."""
    columns = records()
    arrays = {
        name: np.array([np.nan if v is None else float(v) for v in columns[name]])
        for name in ("x", "size", "small", "price", "member")
    }
    texts = {n: np.array(columns[n], dtype=object) for n in ("region", "kind")}
    return as_lists(exact_answers(Table.open(arrays | texts), QUERIES))


@pytest.mark.parametrize("engine", ENGINES)
def test_engines_give_the_same_integers(engine, expected, tmp_path):
    table = Table.open(ENGINES[engine](tmp_path))
    assert as_lists(exact_answers(table, QUERIES)) == expected
    assert as_lists(exact_answers(table, QUERIES[:1])) == [ROWS]


@pytest.mark.parametrize("engine", ENGINES)
def test_engines_give_the_same_doubles(engine, tmp_path):
    table = Table.open(ENGINES[engine](tmp_path))
    for name in ("x", "price"):
        wanted = [np.nan if v is None else float(v) for v in records()[name]]
        np.testing.assert_array_equal(np.sort(doubles(table, name)), np.sort(wanted))


@pytest.mark.parametrize("engine", ENGINES)
def test_table_shows_engine_and_columns_alone(engine, tmp_path):
    text = repr(Table.open(ENGINES[engine](tmp_path)))
    assert text.endswith(": 'x', 'size', 'small', 'price', 'member', 'region', 'kind')")


class SparkFrame:
    """What a frame of Spark does with a function for its parts, here in this process."""

    def __init__(self, parts):
        self.parts = parts

    def select(self, *names):
        # Spark looks for a field of a column behind the dot of a name without quotes.
        assert all(name[0] == name[-1] == "`" for name in names)
        plain = [name[1:-1].replace("``", "`") for name in names]
        return SparkFrame([part.select(plain) for part in self.parts])

    def toDF(self, *names):  # noqa: N802
        return SparkFrame([part.rename_columns(names) for part in self.parts])

    def toArrow(self):  # noqa: N802
        return pa.concat_tables(self.parts)

    def mapInArrow(self, function, schema):  # noqa: N802
        assert schema == "part string"
        # Spark hands columns over by their names, without quotes.
        assert all(name.isidentifier() for part in self.parts for name in part.column_names)
        done = [batch for part in self.parts for batch in function(iter(part.to_batches()))]
        return SparkFrame([pa.Table.from_batches([batch]) for batch in done])

    def collect(self):
        return self.toArrow().to_pylist()


def test_parts_on_workers_of_spark_add_up(expected):
    table = arrow()
    types = _types(nw.from_native(table))
    parts = [table.slice(a, n) for a, n in ((0, 7), (7, 93), (100, 200))]
    spark = Table(SparkSource(SparkFrame(parts), types))
    assert as_lists(exact_answers(spark, QUERIES)) == expected
    assert as_lists(exact_answers(spark, QUERIES[:1])) == [ROWS]
    np.testing.assert_array_equal(doubles(spark, "x"), doubles(Table.open(table), "x"))


def write(path, frame):
    getattr(frame, f"write_{path.suffix[1:]}")(path)
    return path


NAMED = {
    "pandas": lambda frame, _: frame.to_pandas(),
    "Polars": lambda frame, _: frame,
    "Polars, lazily": lambda frame, _: frame.lazy(),
    "PyArrow": lambda frame, _: frame.to_arrow(),
    "DuckDB": lambda frame, _: duckdb.connect().from_arrow(frame.to_arrow()),
    "Dask": lambda frame, _: dd.from_pandas(frame.to_pandas(), npartitions=2),
    "Spark": lambda frame, _: Table(
        SparkSource(SparkFrame([frame.to_arrow()]), _types(nw.from_native(frame)))
    ),
    "CSV": lambda frame, folder: write(folder / "t.csv", frame),
    "Parquet": lambda frame, folder: write(folder / "t.parquet", frame),
}


@pytest.mark.parametrize(
    "name", ["^a.*$", "a.b", 'a"b', "a`b", "a'; drop table t; --", "a,b", " ", "ä"]
)
@pytest.mark.parametrize("engine", NAMED)
def test_a_name_stands_for_its_column_alone(engine, name, tmp_path):
    frame = pl.DataFrame({"a": [7.0, 8.0], name: [1.0, None], "abc": [5.0, 6.0]})
    table = Table.open(NAMED[engine](frame, tmp_path))
    assert table.columns == ("a", name, "abc")
    np.testing.assert_array_equal(doubles(table, name), [1.0, np.nan])
    assert as_lists(exact_answers(table, [Counts((Intervals(name, [0, 2, 4]),)), Counts()])) == [
        [1, 0],
        2,
    ]


def test_a_csv_file_of_pandas_with_its_index_is_read(tmp_path):
    pd.DataFrame({"x": [1.0, 2.0]}).to_csv(tmp_path / "t.csv")
    assert doubles(Table.open(tmp_path / "t.csv"), "x").tolist() == [1.0, 2.0]


def test_a_path_stands_for_its_file_alone(tmp_path):
    (tmp_path / "x=5").mkdir()
    for name, x in (("t[1].parquet", 1.0), ("t1.parquet", 50.0), ("x=5/t.parquet", 2.0)):
        pl.DataFrame({"x": [x]}).write_parquet(tmp_path / name)
    assert doubles(Table.open(tmp_path / "t[1].parquet"), "x").tolist() == [1.0]
    assert doubles(Table.open(tmp_path / "x=5" / "t.parquet"), "x").tolist() == [2.0]


def test_long_lazy_tables_come_in_parts():
    rows = 600_000
    frame = pl.LazyFrame({"x": np.arange(rows) % 3 - 1.0}).with_columns(pl.col("x") + 0)
    (sums, squares) = exact_answers(Table.open(frame), [Sums((X,)), Products((X,))])
    whole = [int(v) for v in X.integers(np.array([-1.0, 0.0, 1.0]))]
    assert sums.tolist() == [rows // 3 * sum(whole)]
    assert squares.tolist() == [[rows // 3 * sum(v * v for v in whole)]]


@pytest.mark.parametrize("kind", ["hugeint", "uhugeint"])
def test_widest_integers_of_duckdb_keep_their_sign(kind):
    largest = 2**127 - 1 if kind == "hugeint" else 2**128 - 1
    relation = duckdb.connect().sql(
        f"select 3::{kind} as x union all select {largest}::{kind} union all select null"
    )
    found = exact_answers(Table.open(relation), [Sums((X,)), Counts()])
    expected = exact_answers(Table.open({"x": [3, largest, None]}), [Sums((X,)), Counts()])
    assert as_lists(found) == as_lists(expected)


def test_entries_of_a_csv_file_that_are_no_numbers_are_missing(tmp_path):
    (tmp_path / "t.csv").write_bytes(
        b'x,city\n1,"a"\n 2 ,b\nsecret,c\n,\n3,d,too,long\n4\n1e999,\xff\xfe\n1_0,e\n'
    )
    table = Table.open(tmp_path / "t.csv")
    missing = math.nan
    expected = [1.0, 2.0, missing, missing, 3.0, 4.0, math.inf, missing]
    np.testing.assert_array_equal(doubles(table, "x"), expected)
    cities = Categories("city", ["a", "d"], other=True)
    assert as_lists(exact_answers(table, [Counts((cities,))])) == [[1, 1, 6]]


@pytest.mark.parametrize("spelt", [str, str.lower, str.upper])
def test_booleans_of_a_csv_file_count_as_those_of_a_frame(tmp_path, spelt):
    (tmp_path / "t.csv").write_text(
        "smoker\n" + "\n".join(map(spelt, ["True", "False", "True"])) + "\nyes\n"
    )
    queries = [
        Counts((Categories("smoker", [True, False], other=True),)),
        Sums((ClippedColumn("smoker", 0, 1),)),
    ]
    frame = pl.DataFrame({"smoker": [True, False, True, None]})
    found = exact_answers(Table.open(tmp_path / "t.csv"), queries)
    assert as_lists(found) == as_lists(exact_answers(Table.open(frame), queries))
    assert found[0].tolist() == [2, 1, 1]


def test_quotes_that_stay_open_are_refused_without_the_text(tmp_path):
    (tmp_path / "t.csv").write_text('x,city\n1,a\n"secret\n')
    with pytest.raises(ValueError, match="could not read the table") as refusal:
        exact_answers(Table.open(tmp_path / "t.csv"), [Sums((X,))])
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize("engine", ["Polars", "DuckDB"])
def test_errors_of_an_engine_are_not_quoted(engine):
    def fail(series):
        raise RuntimeError(f"bad record {series.to_list()}")

    frame = pl.LazyFrame({"x": [987654.0]})
    broken = {
        "Polars": frame.with_columns(pl.col("x").map_batches(fail, return_dtype=pl.Float64)),
        "DuckDB": duckdb.connect().sql("select cast('secret' || 987654 as double) as x"),
    }
    table = Table.open(broken[engine])
    for ask in (lambda: exact_answers(table, [Sums((X,))]), lambda: doubles(table, "x")):
        with pytest.raises(ValueError, match="could not read the table") as refusal:
            ask()
        assert "987654" not in str(refusal.value)
        assert refusal.value.__cause__ is None
        assert refusal.value.__context__ is None


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 10**15 + 12345], pa.timestamp("s")),
        pa.Array.from_buffers(
            pa.string(), 1, [None, *map(pa.py_buffer, (b"\0" * 4 + b"\3\0\0\0", b"a\xffb"))]
        ),
        dd.from_pandas(pd.DataFrame({"x": ["1", "secret"]}), npartitions=1)["x"].map_partitions(
            lambda part: part.astype(float), meta=("x", float)
        ),
    ],
    ids=["of dates", "of texts", "of Dask"],
)
def test_errors_of_a_column_by_itself_are_not_quoted(column):
    with pytest.raises(ValueError, match=r"could not read the table \(") as caught:
        Table.open({"x": column})
    assert "secret" not in str(caught.value)
    assert "xff" not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_broken_file_is_refused_without_its_content(tmp_path, suffix):
    path = tmp_path / f"t{suffix}"
    path.write_bytes(b'"secret' if suffix == ".csv" else b"secret")
    with pytest.raises(ValueError, match="could not read the table") as refusal:
        Table.open(path)
    assert "secret" not in str(refusal.value)


def test_missing_files_and_other_kinds_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file"):
        Table.open(tmp_path / "t.csv")
    with pytest.raises(ValueError, match=r"a \.csv or a \.parquet file"):
        Table.open("table.xlsx")


@pytest.mark.parametrize(
    "data",
    [
        pd.DataFrame({"x": ["12", "34"]}),
        pd.DataFrame({"x": pd.Series(["12", 34], dtype=object)}),
        pl.DataFrame({"x": ["12", "34"]}),
        pl.LazyFrame({"x": ["12", "34"]}),
        pa.table({"x": ["12", "34"]}),
        pl.DataFrame({"x": [[12], [34]]}),
        pd.DataFrame({"x": pd.to_datetime(["2012-01-01"])}),
    ],
)
def test_texts_that_look_like_numbers_are_refused_by_type(data):
    with pytest.raises(ValueError, match="column 'x' must hold numbers, got the type") as refusal:
        exact_answers(Table.open(data), [Sums((X,))])
    assert "34" not in str(refusal.value)


def test_no_message_tells_what_a_column_of_objects_holds():
    told = set()
    for entries in (["a", "b"], ["a", 1], ["a", None]):
        table = pd.DataFrame({"x": pd.Series(entries, dtype=object)})
        with pytest.raises(ValueError, match="must hold numbers, got the type object") as refusal:
            exact_answers(Table.open(table), [Sums((X,))])
        told.add(str(refusal.value))
    assert len(told) == 1


@pytest.mark.parametrize("entries", [[True, False], [True, None], [1, 2], [1, None]])
@pytest.mark.parametrize("library", [pl, pd], ids=["polars", "pandas"])
def test_no_entry_decides_how_a_series_is_read(entries, library):
    nullable = {"dtype": "boolean" if entries[0] is True else "Int64"} if library is pd else {}
    series = library.Series(entries, **nullable)
    (found,) = exact_answers(Table.open({"x": series}), [Sums((X,))])
    (expected,) = exact_answers(Table.open({"x": entries}), [Sums((X,))])
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize(
    "make",
    [
        lambda _: pl.DataFrame({"x": [None, None]}),
        lambda _: pl.LazyFrame({"x": [None, None]}),
        lambda _: pa.table({"x": pa.nulls(2)}),
        lambda _: pa.table({"x": pa.nulls(2)}).to_pandas(types_mapper=pd.ArrowDtype),
        lambda _: duckdb.connect().sql("select null as x union all select null"),
        lambda folder: (
            pq.write_table(pa.table({"x": pa.nulls(2)}), folder / "t.parquet")
            or folder / "t.parquet"
        ),
    ],
)
def test_a_column_of_which_all_is_missing_is_read_as_any_other(make, tmp_path):
    table = Table.open(make(tmp_path))
    queries = [Counts(), Counts((NUMBER,)), Counts((Categories("x", ["a"], other=True),))]
    assert as_lists(exact_answers(table, queries)) == [2, [0, 0], [0, 2]]
    assert np.isnan(doubles(table, "x")).all()


def test_no_record_decides_how_a_part_of_dask_is_read():
    parts = [
        pd.DataFrame({"x": [1.0, 2.0], "kind": ["a", "b"]}),
        pd.DataFrame({"x": [None, "text"], "kind": [None, None]}),
        pd.DataFrame({"x": pd.array(["3", "text"], dtype="string"), "kind": [1.0, 2.0]}),
        pd.DataFrame({"x": pd.to_datetime(["2020-01-01", "2021-01-01"]), "kind": ["a", 3]}),
    ]
    meta = pd.DataFrame({"x": pd.Series(dtype=float), "kind": pd.Series(dtype="string")})
    table = Table.open(dd.from_map(lambda part: part, parts, meta=meta))
    queries = [Counts((NUMBER,)), Counts((Categories("kind", ["a", "b"], other=True),))]
    assert as_lists(exact_answers(table, queries)) == [[0, 2], [2, 1, 5]]


def test_columns_need_names():
    with pytest.raises(ValueError, match=r"must be a text, got 0; rename it, in pandas with"):
        Table.open(pd.DataFrame([[1.0]]))


def test_missing_libraries_are_named(monkeypatch, tmp_path):
    (tmp_path / "t.csv").write_text("x\n1\n")
    monkeypatch.setitem(__import__("sys").modules, "narwhals", None)
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    with pytest.raises(ModuleNotFoundError, match=r"Narwhals: pip install 'taut\[tables\]'"):
        Table.open(pd.DataFrame({"x": [1.0]}))
    with pytest.raises(ModuleNotFoundError, match=r"Polars: pip install 'taut\[tables\]'"):
        Table.open(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"age;income\n31;40\n", "'age;income': separate columns by commas"),
        (b"age\tincome\n31\t40\n", "separate columns by commas"),
        ("größe,income\n31,40\n".encode("latin-1"), "write the file in UTF-8"),
    ],
)
def test_files_of_other_formats_say_what_to_write(tmp_path, content, words):
    path = tmp_path / "people.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=words):
        check_queries(Table.open(path), [Sums((ClippedColumn("größe", 0, 1),))])


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf"])
def test_files_without_names_say_what_is_missing(tmp_path, content):
    path = tmp_path / "people.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="no first line: it must hold the names of columns"):
        Table.open(path)


def test_engines_with_workers_are_told_what_these_need():
    def fails():
        raise ModuleNotFoundError("No module named 'taut', in a row of SECRET")

    with pytest.raises(ValueError, match="must be installed where its workers run") as caught:
        silently("Spark", fails)
    assert "SECRET" not in str(caught.value)
