"""Losses as JSON: round trips, and a test per malformed text."""

import json

import pytest
from accounting.test_loss import RELEASES
from hypothesis import given
from hypothesis import strategies as st

import taut
from taut.errors import UnsoundConfiguration

SCHEMA = "taut.privacy-loss/1"
REPLACE = taut.laplace(2.0, adjacency="replace")
NESTED = [
    taut.gaussian(1.0).poisson(0.5).poisson(0.25),
    taut.finite([0.25, 0.75], [0.5, 0.5]).poisson(0.125),
    taut.from_profile({0.0: 0.1, 1.0: 1e-6}).poisson(0.1),
    REPLACE.fixed_size(5, 100),
    REPLACE.fixed_size(5, 100, adjacency="replace"),
    REPLACE.fixed_size(5, 100, adjacency="add"),
    taut.zero(),
    taut.zero(adjacency="replace"),
]


@pytest.mark.parametrize("loss", RELEASES + NESTED, ids=repr)
@pytest.mark.parametrize("count", [1, 10**9])
def test_round_trip(loss, count):
    again = taut.PrivacyLoss.from_json((count * loss).to_json())
    assert again == count * loss
    assert again.adjacency == loss.adjacency
    assert hash(again) == hash(count * loss)
    assert again.to_json() == (count * loss).to_json()


@given(st.lists(st.tuples(st.integers(0, 10**9), st.sampled_from(RELEASES)), max_size=6))
def test_round_trip_of_sums(terms):
    loss = sum((n * release for n, release in terms), taut.zero())
    assert taut.PrivacyLoss.from_dict(json.loads(json.dumps(loss.to_dict()))) == loss


@pytest.mark.parametrize("relation", list(taut.Adjacency))
def test_round_trip_of_the_adjacency(relation):
    loss = taut.PrivacyLoss.from_json(taut.pure(1.0, adjacency=relation).to_json())
    assert loss.adjacency is relation


def test_answers_survive():
    loss = 100 * taut.gaussian(1.0).poisson(0.01) + taut.laplace(20.0)
    assert taut.PrivacyLoss.from_json(loss.to_json()).epsilon(1e-5) == loss.epsilon(1e-5)


def test_text_names_schema_and_parameters():
    data = json.loads((3 * taut.gaussian(2.0).poisson(0.5)).to_json())
    assert data == {
        "schema": SCHEMA,
        "adjacency": "add_remove",
        "terms": [
            {
                "count": 3,
                "release": {
                    "kind": "poisson",
                    "base": {"kind": "gaussian", "sigma": 2.0, "sensitivity": 1.0},
                    "rate": 0.5,
                },
            }
        ],
    }


def one(release, adjacency="add_remove", count=1):
    terms = [{"count": count, "release": release}]
    return {"schema": SCHEMA, "adjacency": adjacency, "terms": terms}


PURE = {"kind": "pure", "epsilon": 1.0}

MALFORMED = {
    "other schema": ({"schema": "taut.privacy-loss/99", "adjacency": "add", "terms": []}, SCHEMA),
    "no schema": ({"adjacency": "add", "terms": []}, SCHEMA),
    "a list": ([], SCHEMA),
    "a number": (3, SCHEMA),
    "no adjacency": ({"schema": SCHEMA, "terms": []}, "adjacency"),
    "unknown adjacency": ({"schema": SCHEMA, "adjacency": "near", "terms": []}, "'near'"),
    "no terms": ({"schema": SCHEMA, "adjacency": "add"}, "terms"),
    "terms no list": ({"schema": SCHEMA, "adjacency": "add", "terms": 3}, "malformed"),
    "term without release": (
        {"schema": SCHEMA, "adjacency": "add", "terms": [{"count": 1}]},
        "release",
    ),
    "term without count": (
        {"schema": SCHEMA, "adjacency": "add", "terms": [{"release": PURE}]},
        "count",
    ),
    "release no object": (one("pure"), "malformed"),
    "unknown kind": (one({"kind": "magic"}), "unknown release kind 'magic'"),
    "no kind": (one({"epsilon": 1.0}), "kind"),
    "kind no text": (one({"kind": ["pure"]}), "malformed"),
    "missing parameter": (one({"kind": "pure"}), "epsilon"),
    "extra parameter": (one(PURE | {"colour": "red"}), "colour"),
    "parameter no number": (one({"kind": "pure", "epsilon": "1"}), "epsilon"),
    "parameter null": (one({"kind": "pure", "epsilon": None}), "epsilon"),
    "parameter out of range": (one({"kind": "pure", "epsilon": -1.0}), "epsilon"),
    "parameter nan": (one({"kind": "pure", "epsilon": float("nan")}), "epsilon"),
    "negative count": (one(PURE, count=-1), "count"),
    "fractional count": (one(PURE, count=1.5), "count"),
    "count true": (one(PURE, count=True), "count"),
    "base no object": (one({"kind": "poisson", "base": 3, "rate": 0.1}), "base"),
    "base unknown": (one({"kind": "poisson", "base": {"kind": "x"}, "rate": 0.1}), "'x'"),
    "base missing": (one({"kind": "poisson", "rate": 0.1}), "base"),
    "rate out of range": (one({"kind": "poisson", "base": PURE, "rate": 2.0}), "rate"),
    "batch larger than population": (
        one({"kind": "fixed_size", "base": PURE, "batch_size": 5, "population": 3}, "replace"),
        "batch_size",
    ),
    "everybody in the batch under add/remove": (
        one({"kind": "fixed_size", "base": PURE, "batch_size": 3, "population": 3}),
        "batch_size",
    ),
    "masses no list": (one({"kind": "finite", "p": 1.0, "q": [1.0]}), "p"),
    "masses no distribution": (one({"kind": "finite", "p": [0.5], "q": [1.0]}), "sum to 1"),
    "profile of unequal lengths": (
        one({"kind": "profile", "log_thresholds": [0.0], "deltas": [0.1, 0.0]}),
        "as many deltas",
    ),
    "profile out of order": (
        one({"kind": "profile", "log_thresholds": [1.0, 0.0], "deltas": [0.1, 0.2]}),
        "log_thresholds",
    ),
    "profile that is not convex": (
        one({"kind": "profile", "log_thresholds": [0.0, 1.0, 2.0], "deltas": [0.5, 0.49, 0.0]}),
        "convex",
    ),
    "profile below the possible": (
        one({"kind": "profile", "log_thresholds": [-5.0, 0.0], "deltas": [0.1, 0.0]}),
        "deltas",
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_description_is_a_value_error_that_says_what_is_wrong(name):
    data, word = MALFORMED[name]
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        taut.PrivacyLoss.from_dict(data)
    assert word in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "not json", "[1, 2", '{"schema": }'])
def test_text_that_is_no_json(text):
    with pytest.raises(ValueError, match="not valid JSON"):
        taut.PrivacyLoss.from_json(text)


def test_text_of_another_type():
    with pytest.raises((TypeError, ValueError)):
        taut.PrivacyLoss.from_json(3)


@pytest.mark.parametrize(
    ("release", "adjacency"),
    [
        ({"kind": "variance_pair", "sigma_p": 1.0, "sigma_q": 2.0}, "replace"),
        ({"kind": "poisson", "base": PURE, "rate": 0.1}, "replace"),
        ({"kind": "fixed_size", "base": PURE, "batch_size": 5, "population": 100}, "zero_out"),
    ],
)
def test_what_the_methods_refuse_is_refused_here_too(release, adjacency):
    with pytest.raises(UnsoundConfiguration):
        taut.PrivacyLoss.from_dict(one(release, adjacency))
