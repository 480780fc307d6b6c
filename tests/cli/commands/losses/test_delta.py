"""``taut delta``."""

import pytest

import taut


def test_run_is_the_library_answer(run_json):
    loss = 1000 * taut.gaussian(1.0).poisson(rate=0.01)
    lower, upper = loss.delta_bounds(2.0)
    answer = run_json("delta --sigma 1 --rate 0.01 --steps 1000 --epsilon 2")
    assert answer["delta"] == {"lower": lower, "upper": upper}
    assert answer["epsilon"] == 2.0
    assert answer["adjacency"] == "add_remove"
    assert answer["sampler"] == {"name": "poisson", "rate": 0.01}


def test_loss_from_a_file(run_json, tmp_path):
    loss = taut.gaussian(2.0) + taut.randomized_response(0.6)
    file = tmp_path / "loss.json"
    file.write_text(loss.to_json())
    answer = run_json(f"delta --loss {file} --epsilon 1")
    assert answer["delta"]["upper"] == loss.delta(1.0)


def test_page_names_bounds_adjacency_and_sampler(run):
    page = run("delta --sigma 1 --epsilon 2").stdout
    for expected in ("certified upper bound", "certified lower bound", "add_remove", "none"):
        assert expected in page


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("delta --epsilon 2", "--sigma"),
        ("delta --sigma 1 --epsilon nan", "epsilon=nan"),
        ("delta --sigma 1", "--epsilon"),
    ],
)
def test_mistake_is_explained(refusal, line, message):
    assert message in refusal(line)
