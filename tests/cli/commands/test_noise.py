"""``taut noise``."""

import json

import numpy as np
import pytest

from taut import noise
from taut.cli._profile_file import read_profile

BUDGET = "--epsilon 0.5 --delta 1e-6"


@pytest.fixture
def written(tmp_path):
    def write(text, name="profile.csv"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def test_is_the_library_answer(run_json, written):
    path = written("name,width\nage,1\nincome,4\n")
    answer = run_json(f"noise {path} {BUDGET}")
    expected = noise.recommend(noise.Box([1.0, 4.0]), 0.5, 1e-6).to_dict()
    assert answer == {**expected, "names": ["age", "income"]}


def test_page_names_options_reasons_and_scales(run, written):
    path = written("name,width\nage,1\nincome,400\n")
    page = run(f"noise {path} --epsilon 1").stdout
    for word in ("Laplace, pure", "pure, epsilon = 1", "least error", "x best"):
        assert word in page


def test_groups_and_their_budgets(run, run_json, written):
    path = written("name,width\nage,1\nincome,1\nzip,500\n")
    best = run_json(f"noise {path} --epsilon 1")["options"][0]
    assert best["name"] == "grouped l_inf"
    assert sorted(place for group in best["groups"] for place in group) == [0, 1, 2]
    assert 0.999 < sum(best["budgets"]) <= 1
    page = run(f"noise {path} --epsilon 1").stdout
    for word in ("income", "epsilon of the group", "Left out: Gaussian: needs a delta above 0."):
        assert word in page
    assert "Left out: staircase: sensitivity must have one or two dimensions, got 3." in page


def test_steps_of_a_staircase(run, run_json, written):
    path = written("1\n")
    best = run_json(f"noise {path} --epsilon 3")["options"][0]
    assert best["name"] == "staircase"
    assert best["gamma"] == pytest.approx(0.2, abs=0.2)
    assert best["scales"] == pytest.approx([1.0])
    assert f"gamma = {best['gamma']:.6g}" in run(f"noise {path} --epsilon 3").stdout


def test_replace_one_doubles_the_widths(run_json, written):
    path = written("1\n2\n")
    one, both = (run_json(f"noise {path} {BUDGET} {flag}") for flag in ("", "--replace-one"))
    assert both["adjacency"] == "replace"
    assert both["options"][0]["error"] == pytest.approx(4 * one["options"][0]["error"])


def test_plot(run, written, tmp_path):
    pytest.importorskip("matplotlib")
    path, picture = written("1\n2\n"), tmp_path / "noise.png"
    assert run(f"noise {path} {BUDGET} --plot {picture}").exit_code == 0
    assert picture.stat().st_size > 1_000


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ([1.0, 2.0], noise.Box([1.0, 2.0])),
        ({"widths": [1.0, 1.0], "l2": 1.0}, noise.Box([1.0, 1.0], l2=1.0)),
        ({"ranks": [2, 1], "l2": [1.0, 0.5]}, noise.Blocks([2, 1], l2=[1.0, 0.5])),
        ({"dimension": 3, "radii": {"2": 1.0}}, noise.LpIntersection(3, {2.0: 1.0})),
        ({"vectors": [[1.0, 0.0]]}, noise.FiniteSet([[1.0, 0.0]])),
        ({"cells": 50}, noise.Histogram(50)),
        ({"cells": ["a", "b"], "per_record": 2}, noise.Histogram(["a", "b"], 2)),
        ({"cells": 50, "adjacency": "replace"}, noise.Histogram(50).differences()),
        ({"widths": {"age": 100}}, noise.Box({"age": 100.0})),
        ({"ranges": [[18, 90], [0, 5]]}, noise.Ranges([(18, 90), (0, 5)])),
        ({"ranges": {"age": [18, 90]}}, noise.Ranges({"age": (18, 90)})),
        ({"ranges": {"age": [18, 90]}, "centred": True}, noise.Ranges({"age": (18, 90)}).centred()),
        (
            {"parts": [{"cells": 3}, {"dimension": 2, "radii": {"1": 1.0}}]},
            noise.Product(noise.Histogram(3), noise.LpIntersection(2, {1.0: 1.0})),
        ),
        (
            {"widths": [1.0], "adjacency": "zero_out", "source": "enforced_by_clipping"},
            noise.Box([1.0], adjacency="zero_out", source="enforced_by_clipping"),
        ),
    ],
)
def test_json_describes_any_set(written, data, expected):
    assert read_profile(written(json.dumps(data), "set.json")).sensitivity == expected


def test_ranges_have_a_lower_and_an_upper_column(written):
    profile = read_profile(written("name,lower,upper\nage,18,90\nvisits,0,10\n"))
    assert profile.sensitivity == noise.Ranges([(18, 90), (0, 10)])
    assert profile.names == ["age", "visits"]


def test_names_come_from_the_set_where_it_has_them(run_json, written):
    path = written('{"parts": [{"ranges": {"age": [18, 90]}}, {"cells": ["a", "b"]}]}', "a.json")
    answer = run_json(f"noise {path} --epsilon 1")
    assert answer["names"] == answer["columns"] == ["age", "a", "b"]


def test_a_histogram_says_so_and_a_box_says_what_one_would_need(run, run_json, written):
    cells, box = (
        written(text, name)
        for text, name in [('{"cells": 50}', "a.json"), ('{"widths": [1, 1], "l2": 1}', "b.json")]
    )
    assert run_json(f"noise {cells} --epsilon 1")["options"][0]["name"] == "integer Laplace"
    assert "Histogram(2) is the set" in run(f"noise {box} --epsilon 1").stdout.replace("\n", " ")


def test_columns_in_any_order_with_weights(written):
    profile = read_profile(written("weight, Width ,name\n2,1.5,a\n3,2.5,b\n\n"))
    np.testing.assert_array_equal(profile.sensitivity.reach(), [1.5, 2.5])
    assert profile.weights == [2.0, 3.0]
    assert profile.names == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("", "a.csv", "is empty"),
        ("a,b\n1,2\n", "a.csv", "needs a column 'width'"),
        ("width\n1\nx\n", "a.csv", "row 3: width must be a number, got 'x'"),
        ("name,width\na\n", "a.csv", "has 1 cells where 2 are needed"),
        ("width\n-1\n", "a.csv", "widths must be finite and not negative"),
        ("width\nnan\n", "a.csv", "widths must be finite and not negative"),
        ("{", "a.json", "is not JSON"),
        ("3", "a.json", "must hold a list of widths or an object"),
        ('{"width": [1]}', "a.json", "exactly one of the keys widths"),
        ('{"widths": [1], "weigths": [2]}', "a.json", "unknown key 'weigths'; did you mean 'we"),
        ('{"widths": [1], "names": ["a", "b"]}', "a.json", "2 names for 1 coordinates"),
        ('{"widths": [1, [2]]}', "a.json", "a.json: widths[1] must be a number, got [2]"),
        ('{"widths": ["1"]}', "a.json", "widths[0] must be a number, got '1'"),
        ('{"widths": [true]}', "a.json", "widths[0] must be a number, got True"),
        ('{"widths": [1], "weights": ["a"]}', "a.json", "weights[0] must be a number, got 'a'"),
        ('{"widths": 3}', "a.json", "widths must be a list that is not empty, got 3"),
        ('{"widths": [1], "l2": [1]}', "a.json", "l2 must be a number, got [1]"),
        ('{"widths": [1], "names": 3}', "a.json", "names must be a list, got 3"),
        ('{"vectors": [[1, 2], [3]]}', "a.json", "vectors[1] must have 2 numbers as the first"),
        ('{"ranks": [1.5], "l2": [1]}', "a.json", "a.json: rank must be an integer"),
        ('{"dimension": 2, "radii": {"x": 1}}', "a.json", "radii must have exponents as keys"),
        ('{"dimension": 2, "radii": {"2": "1"}}', "a.json", "radii['2'] must be a number"),
        ('{"radii": {"2": 1}}', "a.json", "dimension"),
        ("[1e160, 1]", "a.json", "count in other units"),
        ("[1e-200, 1e-200]", "a.json", "count in other units"),
        ('{"dimension": 2, "radii": 3}', "a.json", "radii must map exponents to bounds"),
        ("lower,upper\n2,1\n", "a.csv", "lower < upper, got (2.0, 1.0)"),
        ("lower\n2\n", "a.csv", "needs a column 'width', or 'lower' and 'upper'"),
        ("width,lower\n2,1\n", "a.csv", "leave one out"),
        ('{"ranges": {"age": [18, true]}}', "a.json", "must be a number, got True"),
        ('{"cells": 0}', "a.json", "a.json: cells must be at least 1"),
        ('{"parts": 3}', "a.json", "parts must be a list of objects"),
        ('{"parts": [{"cells": 3}, {"x": 1}]}', "a.json", "exactly one of the keys"),
        ('{"parts": []}', "a.json", "a.json: parts must be at least one set"),
    ],
)
def test_a_mistake_is_explained(refusal, written, text, name, message):
    assert message in refusal(f"noise {written(text, name)} {BUDGET}")


def test_a_missing_file_is_explained(refusal, tmp_path):
    assert "No such file" in refusal(f"noise {tmp_path / 'none.csv'} {BUDGET}")
