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
        (
            {"widths": [1.0], "adjacency": "zero_out", "source": "enforced_by_clipping"},
            noise.Box([1.0], adjacency="zero_out", source="enforced_by_clipping"),
        ),
    ],
)
def test_json_describes_any_set(written, data, expected):
    assert read_profile(written(json.dumps(data), "set.json")).sensitivity == expected


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
        ('{"dimension": 2, "radii": 3}', "a.json", "radii must map exponents to bounds"),
    ],
)
def test_a_mistake_is_explained(refusal, written, text, name, message):
    assert message in refusal(f"noise {written(text, name)} {BUDGET}")


def test_a_missing_file_is_explained(refusal, tmp_path):
    assert "No such file" in refusal(f"noise {tmp_path / 'none.csv'} {BUDGET}")
