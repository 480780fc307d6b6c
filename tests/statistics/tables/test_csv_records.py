"""Records of CSV files end where they end, whatever quotes others hold."""

import csv
import math
import random

import pytest

from taut.statistics import Categories, Intervals, Table
from taut.statistics._tables.engines import csv_records
from taut.statistics._tables.queries import Counts
from taut.statistics._tables.table import exact_answers

ROWS = 1000
NUMBER = Intervals("x", [-math.inf, 0, math.inf])
TEXTS = ["a", '5" pipe', 'a"b"c', "a,b", "a\nb", "x\n1,2\n", "ab", '"', ' "a"']
PLAIN = ["a", "b", ""]
QUOTED = ['"a\nb"', '"a,b"', '"a""b"', '"x\n1,2\n"', '""""', '"\n"', '""']
STRAY = ['5" pipe', 'a"', 'a"b"c', '"a"b', 'a,"b"', 'a,5" pipe,z', '1,"z"z"', ' "a"', '"a""b"c,d']


def counted(file):
    """Return the numbers of records, of those with a number, and of those with some texts."""
    queries = [Counts(), Counts((NUMBER,)), Counts((Categories("city", TEXTS),))]
    together = exact_answers(Table.open(file), queries)
    alone = [exact_answers(Table.open(file), [query])[0] for query in queries]
    assert [one.tolist() for one in together] == [one.tolist() for one in alone]
    records, present, texts = (answer.tolist() for answer in together)
    return records, present, texts


@pytest.mark.parametrize("place", [0, 500, ROWS - 1])
@pytest.mark.parametrize("stray", STRAY)
def test_a_quote_in_one_record_hides_no_other(tmp_path, stray, place):
    rows = ["1,a"] * ROWS
    rows[place] = f"1,{stray}"
    (tmp_path / "t.csv").write_text("x,city\n" + "\n".join(rows) + "\n")
    records, present, texts = counted(tmp_path / "t.csv")
    assert records == ROWS
    assert present == [0, ROWS]
    assert ROWS - 1 <= texts[0] <= ROWS


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("block", [7, 64, 1 << 24])
@pytest.mark.parametrize("seed", range(5))
def test_records_are_those_of_the_standard_reader(tmp_path, monkeypatch, seed, block, ending):
    monkeypatch.setattr(csv_records, "_BYTES", block)
    rng = random.Random(seed)
    rows = [
        rng.choice([f"1,{rng.choice(rng.choice([PLAIN, QUOTED, STRAY]))},c", "1", "", ",", "2,3"])
        for _ in range(300 if block > 7 else 60)  # blocks of a few bytes take long
    ]
    text = f"x,city,z{ending}" + ending.join(rows) + rng.choice(["", ending])
    (tmp_path / "t.csv").write_text(text, newline="")
    with (tmp_path / "t.csv").open(newline="") as file:
        _, *expected = csv.reader(file)
    cities = [row[1] if len(row) > 1 else "" for row in expected]
    records, present, texts = counted(tmp_path / "t.csv")
    assert records == len(expected)
    assert present == [0, sum(bool(row and row[0]) for row in expected)]
    assert texts == [cities.count(label) for label in TEXTS]


def test_empty_lines_are_records_wherever_a_block_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_records, "_BYTES", 3)
    (tmp_path / "t.csv").write_text("\n\nx,city\n\n\n1,a\n\n\n\n1,b")
    assert counted(tmp_path / "t.csv")[:2] == (7, [0, 2])


def test_the_mark_of_a_file_belongs_to_no_name(tmp_path):
    (tmp_path / "t.csv").write_bytes(b'\xef\xbb\xbf"x",city\r\n1,a\r\n')
    assert Table.open(tmp_path / "t.csv").columns == ("x", "city")


def test_a_record_beyond_all_bounds_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_records, "_BYTES", 8)
    monkeypatch.setattr(csv_records, "_LONGEST", 32)
    (tmp_path / "t.csv").write_text('x,city\n1,"' + "secret" * 20 + '"\n')
    with pytest.raises(ValueError, match="begins with a quote and never ends") as refusal:
        exact_answers(Table.open(tmp_path / "t.csv"), [Counts()])
    assert "secret" not in str(refusal.value)


def test_names_with_an_open_quote_are_refused(tmp_path):
    (tmp_path / "t.csv").write_text('x,"city\n1,a\n')
    with pytest.raises(ValueError, match="never ends"):
        Table.open(tmp_path / "t.csv")


@pytest.mark.parametrize("text", ["x,city\r31,secret\r64,b\r", '"x\ry",city\r\n31,secret\r\n'])
def test_no_record_becomes_a_name_where_lines_end_with_carriage_returns(tmp_path, text):
    (tmp_path / "t.csv").write_text(text, newline="")
    with pytest.raises(ValueError, match="lines must end with a line feed") as refusal:
        Table.open(tmp_path / "t.csv")
    assert "secret" not in str(refusal.value)
