"""Published statements: true ones pass, false ones do not, mistaken ones are told why."""

import json
import math
import os
import re
import time
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

import taut
from taut.audit import Verdict, verify_statement
from taut.audit._statements.described_run import shuffled_floor
from taut.training import (
    FixedSizeSampling,
    FlatClip,
    HybridClip,
    ModelMix,
    Plan,
    RunHistory,
    TrainingResult,
)

STATEMENTS = Path(__file__).parent
RUN = {
    "delta": 1e-5,
    "noise_multiplier": 1.0,
    "batch_size": 100,
    "examples": 10_000,
    "steps": 1_000,
    "sampler": "poisson",
}
POISSON = 1_000 * taut.gaussian(1.0).poisson(0.01)


def result(steps=40, is_secure=True, **changes):
    settings = {
        "examples": 1_000,
        "batch_size": 100,
        "steps": 50,
        "epsilon": 2.0,
        "delta": 1e-4,
        "clipping": FlatClip(1.0),
    }
    plan = Plan(**(settings | changes))
    history = RunHistory().begun(plan, 16).counted(steps)
    return TrainingResult.of(plan, history, steps=steps, is_secure=is_secure)


# --- results of training -------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{}, {"sampling": FixedSizeSampling(), "epsilon": 20.0}])
def test_true_result_is_certified(changes):
    truth = result(**changes)
    found = verify_statement(truth.to_json())
    assert found.verdict is Verdict.CERTIFIED
    assert found.holds
    assert found.epsilon == pytest.approx(truth.epsilon.upper)
    assert found.loss == truth.loss
    assert found.findings == ()


def lowered(data, by=0.99):
    """Lower every epsilon of a result, in its numbers and in its words."""
    above, below = data["epsilon"]["upper"], data["epsilon"]["lower"]
    words = data["statement"]
    for number, digits in ((above, "upper"), (below, "lower")):
        shown = (
            taut._base.rounding.round_up if digits == "upper" else taut._base.rounding.round_down
        )
        words = words.replace(shown(number, 6), shown(number * by, 6))
    data["epsilon"] = {"lower": below * by, "upper": above * by}
    data["statement"] = words
    return data


def test_result_lowered_by_one_per_cent_is_wrong():
    data = lowered(result().to_dict())
    found = verify_statement(data)
    assert found.verdict is Verdict.WRONG
    assert found.epsilon < found.bounds.lower


def test_result_lowered_together_with_its_plan_is_wrong():
    data = lowered(result(steps=50).to_dict(), by=0.9)
    data["plan"]["epsilon"] *= 0.9
    found = verify_statement(data)
    assert found.verdict is Verdict.WRONG
    assert any("its plan promises" in finding for finding in found.findings)


def test_result_raised_is_looser_than_needed():
    found = verify_statement(lowered(result().to_dict(), by=1.5))
    assert found.verdict is Verdict.WRONG  # its lower bound is above the truth
    data = lowered(result().to_dict(), by=1.5)
    below = result().epsilon.lower
    data["statement"] = data["statement"].replace(
        taut._base.rounding.round_down(data["epsilon"]["lower"], 6),
        taut._base.rounding.round_down(below, 6),
    )
    data["epsilon"]["lower"] = below
    found = verify_statement(data)
    assert found.verdict is Verdict.LOOSE
    assert "50% above" in found.findings[0]


@pytest.mark.parametrize(
    ("path", "value", "finding"),
    [
        (("delta",), 1e-5, "it says delta 1e-05, its plan 0.0001"),
        (("adjacency",), "replace", "it says adjacency 'replace'"),
        (("sampler",), "shuffle", "it says sampler 'shuffle', its plan 'poisson'"),
        (("steps",), 41, "the model had 41 updates, of which 40 were counted"),
        (("counted_steps",), 45, "its loss is not that of its plan after 45 steps"),
        (("counted_steps",), 39, "its words say '40' where its numbers give '39'"),
        (("plan", "noise_multiplier"), 1.0, "where its numbers give '1.'"),
        (("plan", "delta"), 1e-6, "it says delta 0.0001, its plan 1e-06"),
        (("epsilon", "upper"), 3.0, "where its numbers give '(3,'"),
        (("epsilon", "lower"), 0.5, "where its numbers give '0.5'"),
        (("stopped_at_budget",), False, "its words say 'Stopped at the budget after 40"),
        (("statement",), "Very private.", "its words say 'Very private.' where its numbers give"),
        (("statement",), "", "Trained by private"),
        (("statement",), ["epsilon 1"], "its statement is no text"),
    ],
)
def test_contradiction_is_named(path, value, finding):
    data = result().to_dict()
    *above, last = path
    part = data
    for key in above:
        part = part[key]
    assert part[last] != value
    part[last] = value
    found = verify_statement(data)
    assert found.verdict is Verdict.WRONG
    assert any(finding in text for text in found.findings)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("40 steps", "30 steps"),
        ("batch of 100", "batch of 10"),
        ("out of 1000", "out of 9000"),
        ("(poisson sampling)", "(shuffle sampling)"),
        ("under add_remove", "under zero_out"),
        ("delta=0.0001", "delta=1e-09"),
        ("FlatClip(norm=1.0)", "FlatClip(norm=0.1)"),
        ("after 40 of", "after 30 of"),
        ("of 50 planned", "of 40 planned"),
        ("for whoever sees every update", "even for groups of ten"),
        ("Trained", "trained"),
        (" steps", "  steps"),
    ],
)
def test_words_must_be_those_of_the_numbers(old, new):
    data = result().to_dict()
    assert old in data["statement"]
    data["statement"] = data["statement"].replace(old, new)
    found = verify_statement(data)
    assert found.verdict is Verdict.WRONG
    assert found.findings[0].startswith("its words ")


@pytest.mark.parametrize(
    "claim",
    [
        "epsilon = .5",
        "ε(δ=1e-4) = 0.1",
        "(0.1; 1e-4)-DP",
        "The epsilon is smaller than 0.1",
        "epsilon **0.1**",
        "epsilon_total=0.1",
        "\U0001d700 = 0.1",
        "Under replace-one adjacency the same epsilon holds",
        "batches were permuted every epoch",
        "In short: ε ≈ 1.",
        "It is (1.0, 1e-4)–differentially private.",
        "Nobody can learn anything about you.",
        ".",
        "",
        "\n",
    ],
)
def test_nothing_can_be_added_to_the_words(claim):
    truth = result().to_dict()
    words = truth["statement"]
    for text in (f"{words} {claim}", f"{claim} {words}", f"{words}{claim} "):
        assert verify_statement(truth | {"statement": text}).verdict is Verdict.WRONG


@pytest.mark.parametrize("path", sorted(STATEMENTS.glob("*.json")), ids=lambda path: path.stem)
def test_statements_that_were_published_still_hold(path):
    """Written by the version that introduced statements; they are never written again."""
    own = STATEMENTS / "subspaces.npz" if path.stem == "hybrid_in_a_file" else None
    found = verify_statement(path.read_text(), subspaces=own)
    if path.stem == "seeded":
        assert found.verdict is Verdict.NOT_CERTIFIED
        assert "came from a seed" in found.findings[0]
    else:
        assert found.verdict is Verdict.CERTIFIED
        assert found.findings == ()
    again = verify_statement(path.read_text().replace(". This is (", ". This was ("), subspaces=own)
    assert again.verdict is Verdict.WRONG


def test_recomputed_numbers_in_words_may_differ_by_arithmetic_alone():
    data = json.loads((STATEMENTS / "twice.json").read_text())
    words = data["statement"]
    assert "promises epsilon 1.368 instead" in words
    near = words.replace("promises epsilon 1.368 instead", "promises epsilon 1.3685 instead")
    assert verify_statement(data | {"statement": near}).holds
    far = words.replace("promises epsilon 1.368 instead", "promises epsilon 1.3 instead")
    assert verify_statement(data | {"statement": far}).verdict is Verdict.WRONG


def test_comparison_of_mixing_is_recomputed():
    data = json.loads((STATEMENTS / "mixed.json").read_text())
    data["mixing"]["epsilon_without_mixing"] = 0.01
    found = verify_statement(data)
    assert found.verdict is Verdict.WRONG
    assert "it says epsilon_without_mixing 0.01 of mixing" in found.findings[0]


def test_result_that_says_shuffled_is_told_what_that_costs():
    data = result().to_dict()
    data["sampler"] = "shuffle"
    data["statement"] = data["statement"].replace("(poisson", "(shuffle")
    found = verify_statement(data)
    assert found.verdict is Verdict.WRONG
    needed = (4 * taut.gaussian(result().plan.noise_multiplier)).epsilon(1e-4)
    assert found.findings[-1].startswith("sampler mismatch: the claim was computed for Poisson")
    assert taut._base.rounding.round_up(needed, 4) in found.findings[-1]


def test_cheaper_loss_than_that_of_the_plan_is_wrong():
    data = lowered(result().to_dict(), by=0.5)
    data["loss"] = (40 * taut.gaussian(20.0).poisson(0.1)).to_dict()
    found = verify_statement(data)
    assert found.verdict is Verdict.WRONG
    assert found.loss == result().loss


def test_dearer_loss_than_that_of_the_plan_counts():
    truth = result()
    dearer = TrainingResult.from_dict(
        {**truth.to_dict(), "loss": (truth.loss + taut.gaussian(10.0)).to_dict()}
    )
    found = verify_statement(dearer.to_json())
    assert found.verdict is Verdict.CERTIFIED
    assert "counts more than the steps" in found.findings[0]


def test_a_seed_is_no_promise():
    found = verify_statement(result(is_secure=False).to_json())
    assert found.verdict is Verdict.NOT_CERTIFIED
    assert "came from a seed" in found.findings[0]


# --- losses with a claim -------------------------------------------------------------------------


def test_loss_with_a_claim():
    upper = POISSON.epsilon(1e-5)
    claim = {"epsilon": upper, "delta": 1e-5, "loss": POISSON.to_dict()}
    assert verify_statement(claim).verdict is Verdict.CERTIFIED
    assert verify_statement(claim | {"epsilon": 0.99 * upper}).verdict is Verdict.WRONG
    assert verify_statement(claim | {"epsilon": 2 * upper}).verdict is Verdict.LOOSE
    assert verify_statement({**POISSON.to_dict(), "epsilon": upper, "delta": 1e-5}).holds
    found = verify_statement(claim | {"adjacency": "replace"})
    assert found.verdict is Verdict.WRONG
    assert "its loss is for add_remove" in found.findings[0]


def test_bounds_of_the_command_are_a_claim():
    lower, upper = POISSON.epsilon_bounds(1e-5)
    claim = {"epsilon": {"lower": lower, "upper": upper}, "delta": 1e-5, "loss": POISSON.to_dict()}
    assert verify_statement(json.dumps(claim)).verdict is Verdict.CERTIFIED


def test_infinite_claim_holds_for_a_loss_without_a_bound():
    loss = taut.gaussian(1.0).to_dict()
    assert verify_statement({"epsilon": "Infinity", "delta": 0.0, "loss": loss}).holds
    assert not verify_statement({"epsilon": 1e9, "delta": 0.0, "loss": loss}).holds


def test_what_cannot_be_decided_is_not_certified():
    """Between the bounds of a loss that is known by its Renyi divergences only."""
    loss = 100 * taut.from_rdp({2.0: 1e-3, 8.0: 4e-3})
    lower, upper = loss.epsilon_bounds(1e-5)
    claim = {"epsilon": (lower + upper) / 2, "delta": 1e-5, "loss": loss.to_dict()}
    assert verify_statement(claim).verdict is Verdict.NOT_CERTIFIED


# --- runs described by hand ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "loss"),
    [
        ({}, POISSON),
        ({"rate": 0.01, "batch_size": None, "examples": None}, POISSON),
        ({"steps": None, "epochs": 10}, POISSON),
        (
            {"adjacency": "replace", "steps": 5},
            5
            * taut.gaussian(1.0, sensitivity=2.0, adjacency="replace").poisson(
                0.01, removal=taut.gaussian(1.0)
            ),
        ),
        (
            {"sampler": "fixed_size"},
            1_000
            * taut.gaussian(1.0, sensitivity=2.0, adjacency="replace").fixed_size(
                100, 10_000, "replace"
            ),
        ),
        ({"sampler": "shuffle"}, 10 * taut.gaussian(1.0, adjacency="zero_out")),
        ({"sampler": "shuffle", "steps": 1_001}, 11 * taut.gaussian(1.0, adjacency="zero_out")),
        (
            {"sampler": "shuffle", "adjacency": "replace"},
            10 * taut.gaussian(1.0, sensitivity=2.0, adjacency="replace"),
        ),
        (
            {"mechanism": "gaussian", "sampler": None, "batch_size": None, "steps": 3},
            3 * taut.gaussian(1.0),
        ),
    ],
)
def test_described_run_is_the_loss_it_describes(changes, loss):
    data = {key: value for key, value in (RUN | changes).items() if value is not None}
    true = verify_statement(data | {"epsilon": loss.epsilon(1e-5)})
    assert true.loss == loss
    assert true.verdict is Verdict.CERTIFIED
    false = verify_statement(data | {"epsilon": 0.99 * loss.epsilon(1e-5)})
    assert not false.holds


def test_poisson_claim_for_shuffled_batches_is_named():
    claim = POISSON.epsilon(1e-5)
    found = verify_statement(RUN | {"sampler": "shuffle", "epsilon": round(claim, 2)})
    assert found.verdict is Verdict.WRONG
    (mismatch, needed) = found.findings
    assert mismatch.startswith("sampler mismatch: epsilon 1.83 is what Poisson batches")
    assert "17.86 is needed" in mismatch
    assert "17.8566 can be claimed for batches drawn by 'shuffle'" in needed


def test_claim_that_shuffling_may_keep_is_not_called_wrong():
    noisy = RUN | {"noise_multiplier": 4.0, "sampler": "shuffle", "steps": 100}
    claim = (100 * taut.gaussian(4.0).poisson(0.01)).epsilon(1e-5)
    found = verify_statement(noisy | {"epsilon": claim})
    assert found.verdict is Verdict.NOT_CERTIFIED
    assert "sampler mismatch" in found.findings[0]


@pytest.mark.parametrize("steps", [1, 99])
def test_less_than_an_epoch_of_shuffled_batches_has_no_floor(steps):
    """One step is a batch of fixed size, which costs less than an epoch surely does."""
    sizes = {"batch_size": 100, "examples": 10_000, "adjacency": "zero_out", "steps": steps}
    run = {"delta": 1e-5, "noise_multiplier": 2.0, **sizes}
    fixed = verify_statement(run | {"sampler": "fixed_size", "epsilon": 9.0}).bounds
    found = verify_statement(run | {"sampler": "shuffle", "epsilon": 0.2})
    assert found.verdict is Verdict.NOT_CERTIFIED
    assert found.bounds.lower <= fixed.upper
    whole = verify_statement(run | {"sampler": "shuffle", "epsilon": 0.2, "steps": 100})
    assert whole.verdict is Verdict.WRONG


def test_halved_sensitivity_of_fixed_size_is_named():
    step = taut.gaussian(1.0, sensitivity=1.0, adjacency="replace")
    claim = (1_000 * step.fixed_size(100, 10_000, "replace")).epsilon(1e-5)
    found = verify_statement(RUN | {"sampler": "fixed_size", "epsilon": claim})
    assert found.verdict is Verdict.WRONG
    assert "sampler mismatch" in found.findings[0]


def test_add_remove_with_shuffled_batches_has_no_theorem():
    found = verify_statement(
        RUN | {"sampler": "shuffle", "adjacency": "add_remove", "epsilon": 100.0}
    )
    assert found.verdict is Verdict.NOT_CERTIFIED
    assert "state the claim for zero_out or replace" in found.findings[0]


def test_free_words_are_not_certified():
    claims = (RUN | {"epsilon": 1.84}, {"epsilon": 1.84, "delta": 1e-5, "loss": POISSON.to_dict()})
    for claim in claims:
        assert verify_statement(claim).verdict is Verdict.CERTIFIED
        found = verify_statement(claim | {"statement": "This is (1.0, 1e-5)-DP."})
        assert found.verdict is Verdict.NOT_CERTIFIED
        assert found.findings[0].startswith("not checked: 'statement' is free text")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("{", "not valid JSON"),
        ("[]", "a statement is a JSON object, got list"),
        ('{"epsilon": 1, "epsilon": 2}', "the key 'epsilon' is given twice"),
        ({"schema": "taut.training-result/9"}, "knows taut.training-result/1"),
        ({"schema": "taut.training-result/1"}, "malformed statement: it has no 'plan'"),
        ({"schema": "other"}, "schema 'other' is no statement"),
        ({"loss": 3, "epsilon": 1, "delta": 0}, "not a privacy loss"),
        ({"loss": POISSON.to_dict(), "delta": 0}, "has no 'epsilon'"),
        (RUN, "has no 'epsilon'"),
        (RUN | {"epsilon": math.nan}, "epsilon must be finite and at least 0"),
        (RUN | {"epsilon": "small"}, "epsilon must be a real number"),
        (RUN | {"epsilon": 1.0, "delta": 2.0}, "delta must be in [0, 1)"),
        (RUN | {"epsilon": 1.0, "batchsize": 3}, "'batchsize'; did you mean 'batch_size'?"),
        (RUN | {"epsilon": 1.0, "sampler": "shuffled"}, "sampler must be one of poisson"),
        (RUN | {"epsilon": 1.0, "adjacency": "add"}, "adjacency must be one of add_remove"),
        (RUN | {"epsilon": 1.0, "mechanism": "pate"}, "mechanism must be 'dp-sgd' or 'gaussian'"),
        (RUN | {"epsilon": 1.0, "epochs": 3}, "either 'steps' or 'epochs'"),
        (RUN | {"epsilon": 1.0, "rate": 0.1}, "either 'rate', or 'batch_size' and 'examples'"),
        (RUN | {"epsilon": 1.0, "batch_size": 10_001}, "batch_size must be at most examples"),
        (RUN | {"epsilon": 1.0, "noise_multiplier": 0}, "noise_multiplier must be finite"),
        (RUN | {"epsilon": 1.0, "steps": 0}, "steps must be at least 1"),
        ({"epsilon": 1.0, "delta": 1e-5, "sampler": "poisson"}, "needs 'noise_multiplier'"),
        (
            {"epsilon": 1, "delta": 0, "noise_multiplier": 1, "rate": 0, "steps": 1}
            | {"sampler": "poisson"},
            "rate must be greater than 0",
        ),
        (
            {
                "epsilon": 1,
                "delta": 1e-5,
                "noise_multiplier": 1,
                "rate": 0.1,
                "steps": 1,
                "sampler": "fixed_size",
            },
            "needs 'batch_size' and 'examples', not a rate",
        ),
    ],
)
def test_what_is_no_statement_is_refused(data, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011  the message is compared below
        verify_statement(data)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("[" * 100_000, "nested too deeply"),
        (RUN | {"epsilon": 1.0, "sampler": ["poisson"]}, "sampler must be one of"),
        ({**RUN, "epsilon": 1.0, "sampler": None}, "needs 'sampler'"),
        ({key: RUN[key] for key in RUN if key != "delta"} | {"epsilon": 1.0}, "has no 'delta'"),
        (
            {"epsilon": 1.0, "delta": 1e-5, "noise_multiplier": 1, "sampler": "poisson"}
            | {"rate": 5e-324, "steps": 1},
            "rate must be greater than 0",
        ),
        (result().to_dict() | {"is_secure": "no"}, "is_secure must be true or false"),
        (result().to_dict() | {"plan": None}, "malformed statement"),
    ],
)
def test_hostile_files_are_refused(data, message):
    with pytest.raises(ValueError, match=message) as caught:
        verify_statement(data)
    for word in ("WrongType", "convert it", "TypeError"):
        assert word not in str(caught.value)


def test_epsilons_of_comparisons_in_mixed_runs_are_no_claims():
    mixed = result(mixing=ModelMix(1.0), epsilon=None, noise_multiplier=2.0, steps=3)
    assert verify_statement(mixed.to_json()).verdict is Verdict.CERTIFIED


def test_more_updates_than_planned_are_a_contradiction():
    data = result(steps=50).to_dict()
    data["plan"]["steps"] = 49
    found = verify_statement(data)
    assert "the model had 50 updates, its plan has 49" in found.findings


def test_what_was_not_checked_is_named():
    found = verify_statement(result().to_dict() | {"unit": "user"})
    assert found.holds
    assert found.findings == ("not checked: 'unit'",)


def test_loss_and_description_in_one_statement_are_refused():
    claim = RUN | {"epsilon": 0.0, "loss": taut.PrivacyLoss().to_dict()}
    with pytest.raises(ValueError, match="both a loss and"):
        verify_statement(claim)


@pytest.mark.parametrize(
    "sampler",
    ["shuffle", "Shuffled", "none", "fixed-size", "random permutation", "sequential", "poison", 3],
)
def test_loss_under_another_sampler_is_named(sampler):
    claim = {"epsilon": 1.84, "delta": 1e-5, "loss": POISSON.to_dict()}
    for same in ("poisson", {"name": "poisson", "rate": 0.01}, POISSON.terms[0][0].kind):
        assert verify_statement(claim | {"sampler": same}).verdict is Verdict.CERTIFIED
    found = verify_statement(claim | {"sampler": sampler})
    assert found.verdict is Verdict.WRONG
    assert found.findings[0].startswith("sampler mismatch")


def test_infinities_have_words():
    none = verify_statement(RUN | {"epsilon": 1.0, "delta": 0.0})
    assert any("no finite epsilon at delta 0.0 can be claimed" in text for text in none.findings)
    much = verify_statement(RUN | {"epsilon": "Infinity"})
    assert "inf%" not in " ".join(much.findings)


# --- hostile statements --------------------------------------------------------------------------


def naming(path, **changes):
    """Return a true statement whose clipping names a file."""
    data = json.loads((STATEMENTS / "hybrid_in_a_file.json").read_text())
    data["plan"]["clipping"] |= {"subspaces": str(path)} | changes
    return data


def test_no_file_that_a_statement_names_is_opened(tmp_path, monkeypatch):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def refuse(*arguments, **_):
        raise AssertionError(f"a file was opened: {arguments}")

    monkeypatch.setattr(np, "load", refuse)
    for path in (pipe, STATEMENTS / "subspaces.npz", "/dev/zero", "missing.npz"):
        found = verify_statement(naming(path))
        assert found.verdict is Verdict.NOT_CERTIFIED
        assert found.findings[0].startswith("not checked: the subspaces of its clipping")
        assert repr(str(path)) in found.findings[0]
        lowered_claim = lowered(naming(path), by=0.9)
        assert verify_statement(lowered_claim).verdict is Verdict.WRONG


def test_words_around_an_unread_clipping_are_compared():
    data = naming("elsewhere.npz")
    data["statement"] += " epsilon = .5"
    assert verify_statement(data).verdict is Verdict.WRONG
    data["statement"] = "ε = 0.1"
    assert verify_statement(data).verdict is Verdict.WRONG


@pytest.mark.parametrize("bounds", [[], [1.0] * 10_000, [1.0, -1.0], "x", None])
def test_bounds_of_an_unread_clipping_are_read(bounds):
    with pytest.raises(ValueError, match=r"bounds|statement"):
        verify_statement(naming("elsewhere.npz", bounds=bounds))


def test_readers_look_into_a_file_of_their_own(tmp_path):
    data = naming("elsewhere.npz")
    assert verify_statement(data, subspaces=STATEMENTS / "subspaces.npz").holds
    other = HybridClip.from_public(
        np.random.default_rng(1).normal(size=(40, 12)), [2], 1.0, provenance="public"
    ).saved(tmp_path / "other.npz")
    assert other.digest != data["plan"]["clipping"]["sha256"]
    with pytest.raises(taut.errors.UnsoundConfiguration, match="not those that were written"):
        verify_statement(data, subspaces=tmp_path / "other.npz")
    with pytest.raises(ValueError, match="names no file of subspaces"):
        verify_statement(result().to_dict(), subspaces=STATEMENTS / "subspaces.npz")


@pytest.mark.parametrize("adjacency", ["add", "remove"])
def test_one_direction_of_add_remove_is_certified_only_if_asked_for(adjacency):
    loss = 1_000 * taut.gaussian(1.0, adjacency=adjacency).poisson(0.01)
    claim = {"epsilon": loss.epsilon(1e-5), "delta": 1e-5, "loss": loss.to_dict()}
    found = verify_statement(claim)
    assert found.verdict is Verdict.NOT_CERTIFIED
    assert "one direction of add_remove, which costs 1.829" in found.findings[0]
    asked = verify_statement(claim, adjacency=adjacency)
    assert asked.verdict is Verdict.CERTIFIED
    assert asked.passes
    assert not verify_statement(claim, adjacency="add_remove").passes


@pytest.mark.parametrize(
    ("delta", "is_found"), [(0.5, True), (1e-3, True), (1e-4, True), (9e-5, False), (1e-5, False)]
)
def test_delta_must_be_below_one_over_the_records(delta, is_found):
    claims = [RUN | {"epsilon": 100.0, "delta": delta}]
    fixed = taut.gaussian(1.0, sensitivity=2.0, adjacency="replace").fixed_size(100, 10_000)
    claims.append({"epsilon": 100.0, "delta": delta, "loss": fixed.to_dict()})
    for claim in claims:
        found = verify_statement(claim)
        rule = [f for f in found.findings if "well below 1 / records" in f]
        assert bool(rule) == is_found
        if rule:
            assert "10000 records" in rule[0]


def test_delta_without_a_number_of_records():
    claim = {"epsilon": 100.0, "loss": POISSON.to_dict()}
    for delta, is_found in ((0.5, True), (1e-3, False)):
        found = verify_statement(claim | {"delta": delta})
        assert any("well below 1 / records" in f for f in found.findings) == is_found


@pytest.mark.parametrize(
    ("path", "key", "finding"),
    [
        (("plan",), "mixng", "its plan has the unknown key 'mixng'; did you mean 'mixing'?"),
        (("plan",), "public", "its plan has the unknown key 'public', which was not checked"),
        (("loss",), "adjacancy", "its loss has the unknown key 'adjacancy'; did you mean"),
        (("loss", "terms", 0), "cuont", "term 1 of its loss has the unknown key 'cuont'; did you"),
        ((), "adjacancy", "it has the unknown key 'adjacancy'; did you mean 'adjacency'?"),
    ],
)
def test_unknown_keys_are_not_dropped(path, key, finding):
    data = json.loads(result().to_json())
    part = data
    for step in path:
        part = part[step]
    part[key] = 3
    found = verify_statement(data)
    assert found.verdict is Verdict.NOT_CERTIFIED
    assert any(text.startswith(finding) for text in found.findings)


def test_versions_and_the_date_of_a_run_are_no_part_of_the_claim():
    recorded = {"versions": {"taut": "0.1.0", "python": "3.12"}, "finished": "2026-01-01"}
    assert verify_statement(result().to_dict() | recorded).findings == ()


def of_releases(releases):
    """Return the JSON of a loss with many releases, which sums would be slow to make."""
    terms = [{"count": 1, "release": release} for release in releases]
    return {"schema": "taut.privacy-loss/1", "adjacency": "add_remove", "terms": terms}


@pytest.mark.parametrize(
    ("releases", "message"),
    [
        (
            [{"kind": "gaussian", "sigma": 1 + n / 1e3, "sensitivity": 1.0} for n in range(3_000)],
            "3000 distinct releases, and statements are recomputed up to 250",
        ),
        (
            [
                {
                    "kind": "selected",
                    "bases": [{"kind": "pure", "epsilon": 1 + n / 1e3} for n in range(300)],
                    "weights": [1] * 300,
                    "law": "negative_binomial",
                    "parameter": 0.1,
                    "shape": 1.0,
                }
            ],
            "301 distinct releases, and statements are recomputed up to 250",
        ),
        (
            [
                {
                    "kind": "rdp",
                    "orders": [1.0 + n for n in range(1, 4_000)],
                    "divergences": [1.0] * 3_999,
                }
            ],
            "lists of 7998 numbers, and statements are recomputed up to 5000",
        ),
    ],
)
def test_work_is_bounded(releases, message):
    start = time.process_time()
    with pytest.raises(ValueError, match=message):
        verify_statement({"epsilon": 1.0, "delta": 1e-5, "loss": of_releases(releases)})
    assert time.process_time() - start < 5


def nested(depth):
    release = taut.gaussian(1.0).to_dict()["terms"][0]["release"]
    for _ in range(depth):
        release = {"kind": "poisson", "base": release, "rate": 0.9}
    return of_releases([release])


@pytest.mark.parametrize("depth", [100, 900, 5_000])
def test_nested_samplers_are_refused(depth):
    claim = {"epsilon": 1.0, "delta": 1e-5, "loss": nested(depth)}
    with pytest.raises(ValueError, match="nested too deeply"):
        verify_statement(claim)


def test_nested_samplers_have_no_loss():
    with pytest.raises(ValueError, match="nested too deeply"):
        taut.PrivacyLoss.from_dict(nested(5_000))


def test_endless_text_is_refused():
    with pytest.raises(ValueError, match="more than 16777216"):
        verify_statement(" " * (1 << 25))


# --- what a reader accepts -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gate", "passes"),
    [
        ({}, True),
        ({"max_epsilon": 1.84, "max_delta": 1e-5, "adjacency": "add_remove"}, True),
        ({"max_epsilon": 1.83}, False),
        ({"max_delta": 9e-6}, False),
        ({"adjacency": "replace"}, False),
    ],
)
def test_a_true_claim_may_be_more_than_is_accepted(gate, passes):
    found = verify_statement(RUN | {"epsilon": 1.84}, **gate)
    assert found.holds
    assert found.passes == passes
    assert bool(found.refusals) != passes
    assert found.to_dict()["passes"] == passes


def test_a_false_claim_passes_no_gate():
    assert not verify_statement(RUN | {"epsilon": 0.5}, max_epsilon=1.0).passes


def test_a_loose_claim_is_told_what_would_pass():
    (refusal,) = verify_statement(RUN | {"epsilon": 8.0}, max_epsilon=3.0).refusals
    assert refusal.endswith("; the run costs 1.82864: claim that")


@pytest.mark.parametrize(
    ("gate", "message"),
    [
        ({"max_epsilon": math.nan}, "max_epsilon"),
        ({"max_epsilon": -1.0}, "max_epsilon"),
        ({"max_delta": 1.0}, "max_delta"),
        ({"adjacency": "user"}, "adjacency"),
    ],
)
def test_a_gate_that_is_none_is_refused(gate, message):
    with pytest.raises(ValueError, match=message):
        verify_statement(RUN | {"epsilon": 1.84}, **gate)


def test_what_no_computation_shows_is_said():
    found = verify_statement(RUN | {"epsilon": 1.84})
    for text in (str(found), found.to_dict()["not_shown"]):
        assert "that this run took place" in text
        assert "no signature" in text


@pytest.mark.parametrize("factor", [1.0, 1 - 1e-12, 1 + 1e-12, 1 + 1e-7, 0.999, 1.2])
def test_recomputed_numbers_are_shown_on_their_side_of_the_claim(factor):
    upper = POISSON.epsilon(1e-5)
    found = verify_statement(RUN | {"epsilon": factor * upper})
    shown = float(found.recomputed[1])
    assert (shown <= found.epsilon) == (found.bounds.upper <= found.epsilon)
    assert shown >= found.bounds.upper


# --- what one epoch of shuffled batches surely costs ---------------------------------------------


@pytest.mark.parametrize(("shift", "sensitivity"), [(1.0, 1.0), (2.0, 2.0)])
def test_one_batch_is_the_gaussian_mechanism(shift, sensitivity):
    exact = taut.gaussian(1.0, sensitivity=sensitivity).epsilon_bounds(1e-5, 1e-6).upper
    floor = shuffled_floor(1.0, 1, shift, 1e-5)
    assert exact * 0.999 <= floor <= exact


@pytest.mark.parametrize("batches", [2, 10, 100])
@pytest.mark.parametrize("sigma", [0.4, 1.0])
def test_floor_is_below_the_bound_without_amplification(sigma, batches):
    floor = shuffled_floor(sigma, batches, 1.0, 1e-5)
    assert 0 < floor <= taut.gaussian(sigma).epsilon(1e-5)


def test_floor_is_attained_by_an_attack():
    """The event of the bound, drawn: its frequencies allow the epsilon that is claimed."""
    sigma, batches, delta, draws = 0.8, 10, 1e-2, 400_000
    bits = np.random.default_rng(1)
    noise = sigma * bits.normal(size=(draws, batches))
    place = bits.integers(batches, size=draws)
    rows = np.arange(draws)
    best = 0.0
    highest = {}
    for shift in (2.0, 1.0):
        moved = noise.copy()
        moved[rows, place] += shift
        highest[shift] = np.sort(moved.max(1))
    for threshold in np.linspace(2.0, 4.0, 41):
        p, q = (1 - np.searchsorted(highest[s], threshold) / draws for s in (2.0, 1.0))
        exact_p = 1 - norm.cdf((threshold - 2) / sigma) * norm.cdf(threshold / sigma) ** 9
        assert p == pytest.approx(exact_p, abs=5e-3)
        if p > delta:
            best = max(best, math.log((p - delta) / q))
    assert shuffled_floor(sigma, batches, 1.0, delta) == pytest.approx(best, rel=0.02)


# --- what stands beside a claim -------------------------------------------------------------------

ANOTHER_CLAIM = "epsilon = 0.1 at delta = 1e-9"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("title", ANOTHER_CLAIM),
        ("owner", ANOTHER_CLAIM),
        ("dataset", ANOTHER_CLAIM),
        ("directory", ANOTHER_CLAIM),
        ("held_out", {"epsilon": 0.1}),
        ("versions", {"taut": ANOTHER_CLAIM}),
        ("versions", {"epsilon": "0.1"}),
        ("versions", ANOTHER_CLAIM),
        ("finished", ANOTHER_CLAIM),
    ],
)
def test_free_text_on_record_is_named(key, value):
    found = verify_statement(result().to_dict() | {key: value})
    assert found.findings == (f"on record, not checked, and no part of the claim: {key!r}",)


@pytest.mark.parametrize("statement", ["result", "loss", "description"])
def test_nothing_stands_beside_the_bounds_of_epsilon(statement):
    data = {
        "result": result().to_dict(),
        "loss": {"epsilon": {"upper": 1.84}, "delta": 1e-5, "loss": POISSON.to_dict()},
        "description": RUN | {"epsilon": {"upper": 1.84}},
    }[statement]
    data["epsilon"] = data["epsilon"] | {"certified": 0.1}
    found = verify_statement(data)
    assert found.verdict is Verdict.NOT_CERTIFIED
    assert "its epsilon has the unknown key 'certified', which was not checked" in found.findings


@pytest.mark.parametrize(
    "claim", [RUN, {"delta": 1e-5, "loss": POISSON.to_dict()}], ids=["description", "loss"]
)
def test_a_lower_bound_above_the_truth_is_wrong(claim):
    for lower, verdict in ((1.8, Verdict.CERTIFIED), (1.83, Verdict.WRONG)):
        found = verify_statement(claim | {"epsilon": {"lower": lower, "upper": 1.84}})
        assert found.verdict is verdict
    with pytest.raises(ValueError, match=r"epsilon\.lower must be a real number"):
        verify_statement(claim | {"epsilon": {"lower": "0.1", "upper": 1.84}})


FIXED = 10 * taut.gaussian(4.0, 2.0, adjacency="replace").fixed_size(100, 1_000)


@pytest.mark.parametrize(
    ("loss", "beside", "finding"),
    [
        (POISSON, {"sigma": 100.0}, "it says sigma 100.0, which its loss does not have"),
        (POISSON, {"sampler": {"name": "poisson", "rate": 1e-4}}, "its sampler has rate 0.0001"),
        (
            POISSON,
            {"sampler": {"name": "poisson", "batch_size": 1, "examples": 10_000}},
            "its sampler has batch_size / examples 0.0001",
        ),
        (
            FIXED,
            {"sampler": {"name": "fixed_size", "batch_size": 1_000, "examples": 10_000}},
            "its sampler has examples 10000",
        ),
        (POISSON, {"sampler": {"name": "poisson", "secrecy": 1}}, "its sampler has 'secrecy'"),
    ],
)
def test_noise_and_sizes_beside_a_loss_are_its_own(loss, beside, finding):
    claim = {"epsilon": 50.0, "delta": 1e-5, "loss": loss.to_dict()}
    own = {
        POISSON: {"sigma": 1.0, "sampler": {"name": "poisson", "batch_size": 3, "examples": 300}},
        FIXED: {"sampler": {"name": "fixed_size", "batch_size": 100, "examples": 1_000}},
    }[loss]
    assert verify_statement(claim | own).holds
    found = verify_statement(claim | beside)
    assert found.verdict is Verdict.WRONG
    assert any(text.startswith(finding) for text in found.findings)


def test_words_that_a_loss_says_nothing_about_are_named():
    claim = {"epsilon": 4.38, "delta": 1e-5, "loss": taut.gaussian(1.0).to_dict()}
    for known in ({"taut": "0.2.0.dev1"}, {"sampler": "none"}, {"sampler": "gaussian"}):
        assert verify_statement(claim | known).findings == ()
    for key in ("taut", "sampler"):
        found = verify_statement(claim | {key: ANOTHER_CLAIM})
        assert len(found.findings) == 1
        assert found.findings[0].startswith(f"not checked: {key!r}")


def test_examples_of_a_sampler_limit_delta():
    sampler = {"name": "poisson", "batch_size": 100, "examples": 10_000}
    claim = {"epsilon": 1.84, "delta": 1e-3, "loss": POISSON.to_dict()}
    assert not any("not small" in text for text in verify_statement(claim).findings)
    found = verify_statement(claim | {"sampler": sampler})
    assert any("1 / (10000 records)" in text for text in found.findings)


def test_a_promise_of_a_plan_without_a_lower_bound_is_not_taken_on_trust():
    data = json.loads((STATEMENTS / "mixed.json").read_text())
    assert verify_statement(data).findings == ()
    data["plan"]["epsilon"] = 0.0
    found = verify_statement(data)
    assert found.verdict is Verdict.NOT_CERTIFIED
    assert found.findings[0].startswith("its plan promises epsilon 0.0;")


def test_nothing_is_hidden_among_subspaces():
    data = json.loads((STATEMENTS / "hybrid.json").read_text())
    data["plan"]["clipping"]["subspaces"]["remark"] = ANOTHER_CLAIM
    found = verify_statement(data)
    assert found.verdict is Verdict.NOT_CERTIFIED
    assert found.findings == ("its basis has the unknown key 'remark', which was not checked",)


class TestOtherWords:
    """What a statement says beside epsilon: mu, true alarms, wrong guesses."""

    def test_are_bounds_of_the_loss(self):
        found = result()
        stated = re.search(
            r"mu = (\S+) would; .* 1 % of false alarms about an example has at most (\S+) % of "
            r"true ones; of guesses at even odds at least (\S+) % are wrong\.",
            found.statement,
        )
        mu, true_alarms, wrong = map(float, stated.groups())
        # The definitions, at other epsilons than those that the fit looked at.
        for epsilon in (0.0, 0.37, 1.1, 2.3):
            least = found.loss.delta_bounds(epsilon).lower
            assert taut.gaussian(1 / mu).delta(epsilon) + found.delta >= least
        assert 1 - found.loss.tradeoff(0.01) <= true_alarms / 100
        assert wrong / 100 <= (1 - found.loss.delta_bounds(0.0).lower) / 2
        assert verify_statement(found.to_dict()).verdict is Verdict.CERTIFIED

    @pytest.mark.parametrize("number", [r"mu = (\S+)", r"most (\S+) %", r"least (\S+) %"])
    def test_must_be_true(self, number):
        data = result().to_dict()
        words = data["statement"]
        start, end = re.search(number, words).span(1)
        data["statement"] = f"{words[:start]}{1.01 * float(words[start:end]):.4g}{words[end:]}"
        assert verify_statement(data).verdict is Verdict.WRONG

    def test_may_be_left_out_as_by_older_versions(self):
        data = result().to_dict()
        data["statement"] = re.sub(r" In other words: .*? are wrong\.", "", data["statement"])
        assert "mu =" not in data["statement"]
        assert TrainingResult.from_dict(data).statement == data["statement"]
        assert verify_statement(data).verdict is Verdict.CERTIFIED
