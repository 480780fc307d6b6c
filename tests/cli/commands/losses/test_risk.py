"""``taut risk``."""

import pytest

import taut


def test_run_is_the_library_answer(run_json):
    loss = 100 * taut.gaussian(1.0).poisson(rate=0.01)
    answer = run_json("risk --sigma 1 --rate 0.01 --steps 100 --delta 1e-5 --fpr 0.05 --prior 0.2")
    fit = loss.gdp(1e-5)
    assert answer["mu"] == {"lower": fit.mu.lower, "upper": fit.mu.upper}
    assert answer["regret"] == fit.regret
    assert answer["tpr"] == loss.tpr(0.05)
    assert answer["bayes_risk"] == loss.bayes_risk(0.2)
    assert answer["epsilon"]["upper"] == loss.epsilon(1e-5)
    assert answer["adjacency"] == "add_remove"


def test_page_says_what_is_certain(run):
    page = run("risk --sigma 1 --delta 1e-5").stdout
    for expected in ("mu", "1.0", "% at most", "% at least", "regret at most"):
        assert expected in page


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("risk --delta 1e-5", "--sigma"),
        ("risk --sigma 1", "--delta"),
        ("risk --sigma 1 --delta 1e-5 --fpr 2", "fpr"),
        ("risk --sigma 1 --delta 1e-5 --prior -1", "prior"),
    ],
)
def test_mistake_is_explained(refusal, line, message):
    assert message in refusal(line)
