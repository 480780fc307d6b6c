"""Releases from a file: what it may say, clear refusals, results that are written once."""

import json
import os
from pathlib import Path

import pytest

from taut.audit import verify_statement
from taut.runs import ReleaseConfig
from taut.statistics import (
    Categories,
    CellCounts,
    Count,
    Covariance,
    GroupMeans,
    GroupTotals,
    Intervals,
    Mean,
    Quantiles,
    Total,
    Variance,
)

TEXT = """
[promise]
epsilon = 1
[bounds]
age = [18, 90]
income = [0, 150.5]
[cells]
region = ["north", "south"]
grade = {labels = [1, 2], other = true}
band = {column = "age", edges = [18, 40, inf]}
"""
REGION = Categories("region", ["north", "south"])
BAND = Intervals("age", [18, 40, float("inf")])
AGE, INCOME = (18.0, 90.0), (0.0, 150.5)
TABLE = {"age": [20.0, 50.0] * 50, "income": [10.0] * 100, "region": ["north", "south"] * 50}


@pytest.fixture
def config(tmp_path):
    def read(statistics, text=TEXT):
        path = tmp_path / "release.toml"
        path.write_text(text + "".join(f"[[statistics]]\n{one}\n" for one in statistics))
        return ReleaseConfig.from_toml(path)

    return read


def test_statistics_are_those_of_the_library(config):
    read = config(
        [
            'what = "count"',
            'what = "total"\nof = "income"\nname = "all income"\nweight = 2',
            'what = "mean"\nof = "age"',
            'what = "variance"\nof = "age"',
            'what = "covariance"\nof = ["age", "income"]',
            'what = "counts"\nby = "region"',
            'what = "counts"\nby = ["region", "band"]',
            'what = "quantiles"\nof = "income"\nshares = [0.25, 0.5]',
            'what = "mean"\nof = "income"\nby = "region"',
            'what = "total"\nof = "income"\nby = ["region", "band"]',
        ]
    )
    assert read.statistics == (
        Count(),
        Total("income", INCOME, name="all income", weight=2.0),
        Mean("age", AGE),
        Variance("age", AGE),
        Covariance({"age": AGE, "income": INCOME}),
        CellCounts([REGION]),
        CellCounts([REGION, BAND]),
        Quantiles("income", [0.25, 0.5], INCOME),
        GroupMeans("income", INCOME, by=[REGION]),
        GroupTotals("income", INCOME, by=[REGION, BAND]),
    )
    assert read.arguments["epsilon"] == 1.0
    assert read.arguments["records"] is None


def test_public_number_of_records(config):
    text = TEXT.replace("epsilon = 1", 'epsilon = 1\nadjacency = "replace"\nrecords = 100')
    found = config(['what = "mean"\nof = "age"'], text).release(TABLE)
    assert str(found.loss.adjacency) == "replace"


MEAN = 'what = "mean"\nof = "age"'


@pytest.mark.parametrize(
    ("statistics", "words"),
    [
        (['what = "meen"\nof = "age"'], "number 1: what must be one of.*did you mean 'mean'"),
        (['what = "median"\nof = "age"'], r"no 'median'; write what = 'quantiles' with shares"),
        ([MEAN, 'what = "mean"\nof = "agee"'], "number 2: column 'agee' has no bounds; did you"),
        (['what = "mean"\nof = "height"'], r"add height = \[lower, upper\] to \[bounds\], from"),
        (['what = "mean"'], r"the name of a column, got None; \[bounds\] has 'age', 'income'"),
        (['what = "mean"\nof = ["age"]'], r"of must be the name of a column, got \['age'\]"),
        (['what = "covariance"\nof = [1]'], "of must be the name of a column, got 1"),
        (['what = "covariance"\nof = ["age", "age"]'], "of must name every column once"),
        (['what = "count"\nof = "age"'], "count has no key 'of'; leave it out"),
        (['what = "variance"\nof = "age"\nby = "region"'], "variance has no key 'by'"),
        (['what = "counts"'], r"by must name cells, got None; \[cells\] has 'region', "),
        (['what = "mean"\nof = "age"\nby = [[1]]'], r"no cells \[1\]"),
        (['what = "mean"\nof = "age"\nweight = 1' + "0" * 400], "within the range of floats"),
        (['what = "counts"\nby = "regoin"'], "no cells 'regoin'; did you mean 'region'"),
        (['what = "quantiles"\nof = "age"'], r"needs shares, such as shares = \[0.25"),
        (['what = "quantiles"\nof = "age"\nshares = [1.5]'], "numbers between 0 and 1"),
        (['what = "mean"\nof = "age"\nweight = -1'], "weight must be finite and greater than 0"),
        (['what = "mean"\nshare = [1]'], "unknown key 'share'; did you mean 'shares'"),
        ([], "the file wants nothing"),
    ],
)
def test_bad_statistics_are_refused(config, statistics, words):
    with pytest.raises(ValueError, match=words):
        config(statistics)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[promise]\nepsilon = 1", "", r"section \[promise\] is missing"),
        ("epsilon = 1", "epsilon = 0", r"\[promise\] epsilon must be finite and greater"),
        ("epsilon = 1", "epsilon = nan", "epsilon must be finite"),
        ("epsilon = 1", 'epsilon = "1"', "epsilon must be a number, got '1'; write it without quo"),
        ("[18, 90]", '["18", "90"]', "lower of column 'age' must be a real number"),
        ("epsilon = 1", "epsilon = 1\ndelta = 1", "delta must be in"),
        ("epsilon = 1", 'epsilon = 1\nadjacency = "replace"', "needs records"),
        ("epsilon = 1", "epsilon = 1\nrecords = 5", "for adjacency = 'replace' alone"),
        ("epsilon = 1", 'epsilon = 1\nadjacency = "replac"', "did you mean 'replace'"),
        ("[bounds]", "[bound]", "unknown key 'bound'; did you mean 'bounds'"),
        ("[18, 90]", "[90, 18]", r"\[bounds\] lower of column 'age' must be below upper"),
        ("[18, 90]", "18", r"\[bounds\] age must be \[lower, upper\], got 18"),
        ("[18, 90]", '["a", 90]', r"\[bounds\] lower of column 'age' must be a real number"),
        ('["north", "south"]', "3", r"\[cells\] region must be a list of labels"),
        ('["north", "south"]', '["north", 1]', r"\[cells\] labels of column 'region'"),
        ("other = true", "other = 1", r"\[cells\] grade other must be true or false"),
        ("other = true", "edges = [1]", r"\[cells\] grade must be a list of labels"),
        ("other = true", "others = true", "unknown key 'others'; did you mean 'other'"),
        ("[18, 40, inf]", "[18]", "two or more increasing numbers"),
        ("epsilon = 1", "epsilon = ", "not valid TOML"),
    ],
)
def test_bad_files_are_refused(config, old, new, words):
    assert old in TEXT
    with pytest.raises(ValueError, match=words):
        config([MEAN], TEXT.replace(old, new))


def test_file_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "release.toml"
    path.write_bytes(b"\xff")
    with pytest.raises(ValueError, match="not a text in UTF-8"):
        ReleaseConfig.from_toml(path)


def test_results_are_written_with_a_statement(config, tmp_path):
    read = config([MEAN, 'what = "mean"\nof = "income"\nby = "region"'])
    found = read.release(TABLE, tmp_path / "result.json")
    text = (tmp_path / "result.json").read_text()
    assert json.loads(text) == read.to_dict(found)
    assert json.loads(text)["statistics"][1]["labels"] == [["north", "south"]]
    assert verify_statement(text, max_epsilon=1.0).passes


def test_file_is_not_overwritten_and_nothing_is_spent(config, tmp_path, monkeypatch):
    taken = tmp_path / "result.json"
    taken.write_text("mine")
    monkeypatch.setattr("taut.runs._release_file.release", None)  # is not called
    with pytest.raises(FileExistsError, match="not overwritten; name a new file"):
        config([MEAN]).release(TABLE, taken)
    assert taken.read_text() == "mine"


def test_refused_release_leaves_no_file(config, tmp_path):
    with pytest.raises(ValueError, match="no column 'age'"):
        config([MEAN]).release({"income": [1.0]}, tmp_path / "result.json")
    assert not Path(tmp_path / "result.json").exists()


def test_columns_are_checked_by_name(config):
    config([MEAN]).check(TABLE)
    with pytest.raises(ValueError, match="no column 'age'"):
        config([MEAN]).check({"income": [1.0]})


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes are those of POSIX")
def test_a_pipe_is_refused_rather_than_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", tmp_path):
        with pytest.raises(ValueError, match="not a file; write what to release"):
            ReleaseConfig.from_toml(place)
