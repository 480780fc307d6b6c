"""A histogram of 10^8 rows against reading them, and the same integers from every engine.

    python benchmarks/tables_engines.py [rows]

Writes a column of doubles to a Parquet file and a .npy file in a temporary directory (0.8 GB each),
and measures, in CPU seconds of one run: reading the column with the engine alone, which sums it;
and the exact counts of 50 cells. Then all engines are asked for the same of a smaller table.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from taut.statistics import ClippedColumn, Intervals, Table
from taut.statistics._tables.queries import Counts, Products
from taut.statistics._tables.table import exact_answers

CELLS = Intervals.even("x", -3, 3, 50)
X = ClippedColumn("x", -3, 3)
PORTION = 1 << 20
SMALL = 1_000_000


def cpu(action):
    start = time.process_time()
    result = action()
    return time.process_time() - start, result


def write(folder, rows):
    rng = np.random.default_rng(0)
    column = np.lib.format.open_memmap(folder / "x.npy", "w+", np.float64, (rows,))
    schema = pl.DataFrame({"x": [0.0]}).to_arrow().schema
    with pq.ParquetWriter(folder / "x.parquet", schema, compression="snappy") as file:
        for start in range(0, rows, PORTION):
            portion = rng.normal(size=min(PORTION, rows - start))
            column[start : start + portion.size] = portion
            file.write_table(pl.DataFrame({"x": portion}).to_arrow().cast(schema))
    column.flush()


def read_parquet(path):
    return pl.scan_parquet(path).select(pl.col("x").sum()).collect(engine="streaming").item()


def read_npy(path):
    column = np.load(path, mmap_mode="r")
    return sum(float(column[i : i + PORTION].sum()) for i in range(0, len(column), PORTION))


def counts(table):
    return exact_answers(table, [Counts((CELLS,))])[0].tolist()


def numpy_histogram(path):
    column = np.load(path, mmap_mode="r")
    edges = np.linspace(-3, 3, 51)
    parts = (column[i : i + PORTION] for i in range(0, len(column), PORTION))
    return sum(np.histogram(part, edges)[0] for part in parts).tolist()


def large(folder, rows):
    parquet, npy = folder / "x.parquet", folder / "x.npy"
    ways = {
        "Parquet, read and summed by Polars": lambda: read_parquet(parquet),
        "Parquet, exact counts of 50 cells": lambda: counts(Table.open(parquet)),
        ".npy, read and summed by NumPy": lambda: read_npy(npy),
        ".npy, exact counts of 50 cells": lambda: counts(
            Table.open({"x": np.load(npy, mmap_mode="r")})
        ),
        ".npy, numpy.histogram": lambda: numpy_histogram(npy),
    }
    found = {}
    print(f"{rows:,} rows, CPU seconds")
    for name, action in ways.items():
        seconds, found[name] = cpu(action)
        print(f"{seconds:8.2f}  {name}", flush=True)
    histograms = [value for name, value in found.items() if "read" not in name]
    assert all(value == histograms[0] for value in histograms)


def engines(folder):
    import dask.dataframe as dd
    import duckdb
    import pandas as pd

    column = np.random.default_rng(1).normal(size=SMALL)
    frame = pl.DataFrame({"x": column})
    frame.write_parquet(folder / "small.parquet")
    frame.write_csv(folder / "small.csv")
    pandas = pd.DataFrame({"x": column})
    opened = {
        "NumPy": {"x": column},
        "pandas": pandas,
        "Polars": frame,
        "Polars, lazily": frame.lazy(),
        "PyArrow": frame.to_arrow(),
        "DuckDB": duckdb.connect().from_parquet(str(folder / "small.parquet")),
        "Dask": dd.from_pandas(pandas, npartitions=4),
        "Parquet": folder / "small.parquet",
        "CSV": folder / "small.csv",
    }
    print(f"\n{SMALL:,} rows, CPU milliseconds for counts of 50 cells and the sum of squares")
    answers = []
    for name, data in opened.items():
        queries = [Counts((CELLS,)), Products((X,))]
        seconds, found = cpu(lambda data=data, q=queries: exact_answers(Table.open(data), q))
        answers.append([answer.tolist() for answer in found])
        print(f"{1000 * seconds:8.0f}  {name}", flush=True)
    assert all(answer == answers[0] for answer in answers)
    print("all engines gave the same integers")


def main():
    rows = int(float(sys.argv[1])) if len(sys.argv) > 1 else 100_000_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, rows)
        large(folder, rows)
        engines(folder)


if __name__ == "__main__":
    main()
