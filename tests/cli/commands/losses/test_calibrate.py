"""``taut calibrate``."""

import pytest

import taut


def test_poisson_run_is_the_library_answer(run_json):
    found = taut.calibrate(
        lambda sigma: 1000 * taut.gaussian(sigma).poisson(rate=0.01), epsilon=3.0, delta=1e-5
    )
    answer = run_json("calibrate --epsilon 3 --rate 0.01 --steps 1000 --delta 1e-5")
    assert answer["sigma"] == found.value
    assert answer["epsilon"] == {"lower": found.epsilon.lower, "upper": found.epsilon.upper}
    assert answer["epsilon"]["upper"] <= 3.0
    assert answer["adjacency"] == "add_remove"
    assert answer["sampler"] == {"name": "poisson", "rate": 0.01}


def test_fixed_size_needs_more_noise(run_json):
    question = "calibrate --epsilon 3 --steps 100 --delta 1e-5"
    poisson = run_json(f"{question} --rate 0.01")
    fixed = run_json(f"{question} --sampler fixed-size --batch-size 10 --population 1000")
    assert fixed["epsilon"]["upper"] <= 3.0
    assert fixed["sigma"] > 1.5 * poisson["sigma"]


def test_sigma_printed_for_people_keeps_the_promise(run):
    page = run("calibrate --epsilon 3 --steps 10 --delta 1e-5").stdout
    sigma = float(page.split()[1])
    assert (10 * taut.gaussian(sigma)).epsilon(1e-5) <= 3.0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("calibrate --epsilon -1 --delta 1e-5", "epsilon=-1.0"),
        ("calibrate --epsilon 1 --delta 1.5", "delta=1.5"),
        ("calibrate --epsilon 1 --delta 1e-5 --rate nan", "rate=nan"),
        ("calibrate --epsilon 1 --delta 1e-5 --sampler fixed-size --rate 0.1", "--batch-size"),
    ],
)
def test_mistake_is_explained(refusal, line, message):
    assert message in refusal(line)
