"""The privacy report: its numbers, its words, and what is not in it."""

import csv
import json
import math
import re
import shutil
import sys
from dataclasses import replace
from hashlib import sha256

import pytest

import taut
from taut._base.rounding import round_down, round_up
from taut.accounting import group_poisson
from taut.audit import Exposure
from taut.errors import UnsoundConfiguration
from taut.report import privacy_report
from taut.report._document.blocks import inline_html, plain, unmarked
from taut.report._privacy.evidence import evidence_of
from taut.report._privacy.number_sections import _beside_mixing
from taut.report._privacy.other_accounts import _fixed_grid
from taut.report._privacy.sections import _released
from taut.report._privacy.wording import assumptions, attack_sentence

torch = pytest.importorskip("torch")
from taut.training import (  # noqa: E402
    FixedSizeSampling,
    FlatClip,
    Logs,
    ModelMix,
    Owners,
    Plan,
    PrivateTrainer,
    QuantileClip,
    RunLedger,
    TrainingResult,
)

PLAN = Plan(
    examples=300, batch_size=30, steps=20, noise_multiplier=1.0, delta=1e-3, clipping=FlatClip(1.0)
)

CHEAP = Plan(
    examples=300, rate=1.0, steps=3, noise_multiplier=5.0, delta=1e-3, clipping=FlatClip(1.0)
)


def result_of(plan, *, is_secure=True, **changes):
    loss = plan.loss_at(plan.steps)
    return TrainingResult(
        plan=plan,
        steps=plan.steps,
        counted_steps=plan.steps,
        stopped_at_budget=False,
        epsilon=loss.epsilon_bounds(plan.delta),
        loss=loss,
        is_secure=is_secure,
        **changes,
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run directory, with a log of private losses in it."""
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(300, 3), torch.randint(0, 2, (300,)))
    place = tmp_path_factory.mktemp("run") / "run"
    PrivateTrainer(
        torch.nn.Linear(3, 2),
        torch.nn.CrossEntropyLoss(),
        PLAN,
        run_dir=place,
        logs=Logs(private_metrics=True, progress=False),
    ).fit(data)
    return place


@pytest.fixture(scope="module")
def report(run):
    return privacy_report(run, unit="patient")


@pytest.fixture(scope="module")
def data(report):
    return json.loads(report.to_json())


def outputs(report):
    return [report.to_html(), report.to_markdown(), report.to_json(), report.to_model_card()]


# --- numbers --------------------------------------------------------------------------------------


def test_bounds_are_those_of_the_loss(report, data):
    assert report.epsilon == PLAN.loss.epsilon_bounds(PLAN.delta)
    assert data["epsilon"] == {"lower": report.epsilon.lower, "upper": report.epsilon.upper}
    assert (data["delta"], data["adjacency"]) == (1e-3, "add_remove")


def test_attacker_is_that_of_the_tradeoff(data):
    for point in data["attack"]["curve"]:
        assert point["found"] == 1 - PLAN.loss.tradeoff(point["false_alarms"])
    assert data["attack"]["advantage"] == PLAN.loss.delta(0.0)
    assert "5 % false alarms" in data["attack"]["sentence"]


def test_profile_and_other_deltas_are_those_of_the_loss(data):
    for point in data["profile"][::6]:
        bounds = PLAN.loss.delta_bounds(point["epsilon"])
        assert point["delta"] == {"lower": bounds.lower, "upper": bounds.upper}
    for point in data["other_deltas"]:
        assert point["epsilon"]["upper"] == PLAN.loss.epsilon(point["delta"])
    assert PLAN.delta in [point["delta"] for point in data["other_deltas"]]


def test_course_grows_to_the_promise(data):
    steps, epsilons = zip(*((p["steps"], p["epsilon"]) for p in data["course"]), strict=True)
    assert list(steps) == list(range(1, 21))
    assert list(epsilons) == sorted(epsilons)
    assert epsilons[-1] == data["epsilon"]["upper"]
    assert epsilons[6] == PLAN.loss_at(7).epsilon(PLAN.delta)


def test_groups_cost_what_the_group_loss_does(data):
    found = {group["examples"]: group["epsilon"]["upper"] for group in data["groups"]}
    pair = 20 * group_poisson(1.0, 0.1, 2)
    assert found[2] == pair.epsilon(1e-3, tolerance=1e-2)
    assert data["epsilon"]["upper"] < found[2] < found[3] < found[10]


def test_curve_of_the_picture_is_a_bound_close_to_the_tradeoff(report):
    import numpy as np

    for rate in (0.003, 0.07, 0.4):
        bound = float(report._findings.found_by_profile(np.array([rate]))[0])
        exact = 1 - PLAN.loss.tradeoff(rate)
        assert exact - 1e-9 <= bound <= exact * 1.03


def test_other_accounts(data):
    found = {a["method"]: a for a in data["other_accounts"]}
    upper = data["epsilon"]["upper"]
    classic = found["Rényi, usual orders, classic conversion"]
    improved = found["Rényi, usual orders, improved conversion"]
    best = found["Rényi, all orders, improved conversion"]
    assert upper < best["epsilon"] <= improved["epsilon"] < classic["epsilon"]
    assert all(account["is_bound"] for account in (classic, improved, best))
    curve = taut.renyi.poisson(taut.renyi.gaussian(1.0), 0.1)
    same = taut.renyi.epsilon_from_rdp(lambda a: 20 * curve(a), 1e-3, conversion="classic")
    assert classic["epsilon"] == pytest.approx(same.value, rel=1e-2)
    grid = found["Loss distribution on a fixed grid"]
    assert not grid["is_bound"]
    assert data["epsilon"]["lower"] <= grid["epsilon"] < upper * 1.01 + 20 * 1e-4
    limit = found["Gaussian limit for many steps"]
    assert not limit["is_bound"]
    mu = 0.1 * math.sqrt(20 * math.expm1(1.0))
    assert limit["epsilon"] == pytest.approx(taut.gaussian(1 / mu).epsilon(1e-3))
    assert ("too low" in limit["note"]) == (limit["epsilon"] < data["epsilon"]["lower"])


def test_alternatives_keep_the_promise_and_agree_with_the_samplers(data):
    runs = taut.compare_samplers(1.0, batch_size=30, examples=300, steps=20, delta=1e-3)
    names = {
        "poisson": "Poisson, replace",
        "allocation": "allocation",
        "fixed_size": "fixed size, replace",
        "shuffle": "shuffled",
    }
    assert {a["name"] for a in data["alternatives"]["samplers"]} == set(names)
    for found in data["alternatives"]["samplers"]:
        same = runs[names[found["name"]]]
        assert found["adjacency"] == same.adjacency
        assert same.epsilon.lower <= found["epsilon"] <= same.epsilon.upper * 1.02
    for found in data["alternatives"]["batches"]:
        step = taut.gaussian(found["noise_multiplier"]).poisson(found["batch_size"] / 300)
        epsilon = (found["steps"] * step).epsilon(1e-3)
        assert 0.95 * data["epsilon"]["upper"] < epsilon <= data["epsilon"]["upper"]
        assert found["steps"] * found["batch_size"] == pytest.approx(600, rel=0.1)


def test_all_outputs_state_the_same_rounded_numbers(report):
    shown = round_up(report.epsilon.upper, 4)
    assert report.epsilon.upper <= float(shown) <= report.epsilon.upper * 1.001
    for text in outputs(report):
        assert shown in text


def test_model_card_is_a_section(report):
    card = report.to_model_card()
    assert card.startswith("## Differential privacy\n")
    assert "| δ | 0.001 |" in card
    assert "What was not promised" in card


# --- what is not in it ----------------------------------------------------------------------------


def test_mixed_weights_release_states_and_no_gradients():
    mixed = Plan(
        examples=300,
        rate=1.0,
        steps=3,
        noise_multiplier=5.0,
        delta=1e-3,
        clipping=FlatClip(1.0),
        mixing=ModelMix(5.0),
    )
    for plan, published in ((CHEAP, True), (mixed, False)):
        evidence = evidence_of(result_of(plan), delta=None, description=None, files=())
        text = str(_released(evidence))
        assert ("noisy mean gradient of every step" in text) is published
        assert ("ModelMix(width=5.0" in text) is not published
        assert bool(_beside_mixing(evidence)) is not published


def test_nothing_depends_on_how_many_examples_were_dropped():
    few, many = (
        privacy_report(replace(result_of(CHEAP), dropped_examples=count)) for count in (0, 918273)
    )
    assert outputs(few) == outputs(many)
    assert "dropped" not in "".join(outputs(many))


def test_nothing_depends_on_private_losses(run, report):
    log = run / "private.csv"
    before = log.read_text()
    rows = list(csv.DictReader(before.splitlines()))
    numbers = [row["private_loss"] for row in rows if row["private_loss"]]
    assert len(numbers) > 10
    texts = outputs(report)
    assert not [number for number in numbers if any(number[:8] in text for text in texts)]
    log.write_text("step,loss\n1,0.918273\n")
    try:
        assert outputs(privacy_report(run, unit="patient")) == texts
    finally:
        log.write_text(before)


def test_json_has_these_fields_and_no_others(data):
    assert set(data) == {
        *("date", "owner", "dataset", "run", "exposures", "simulated_attack"),
        *("schema", "title", "unit", "statement", "plain_words", "not_promised", "warnings"),
        *("description", "epsilon", "delta", "adjacency", "engine", "is_secure", "attack"),
        *("profile", "other_deltas", "course", "groups", "other_accounts", "alternatives"),
        *("assumptions", "checks", "files", "versions", "steps", "plan", "loss"),
    }


# --- where it comes from --------------------------------------------------------------------------


def test_write_and_recompute(report, tmp_path):
    pytest.importorskip("matplotlib")
    page = report.write(tmp_path / "new" / "place")
    names = {path.name for path in page.parent.iterdir()}
    assert names == {"index.html", "report.md", "report.json", "model_card.md", "statement.json"}
    again = TrainingResult.from_json((page.parent / "statement.json").read_text())
    assert again.epsilon == report.epsilon
    loss = taut.PrivacyLoss.from_dict(json.loads((page.parent / "report.json").read_text())["loss"])
    assert loss.epsilon_bounds(1e-3) == report.epsilon


def test_hashes_are_those_of_the_files(run, tmp_path, data):
    assert set(data["files"]) == {"plan.json", "ledger.jsonl", "result.json", "checkpoint.pt"}
    for name, digest in data["files"].items():
        assert digest == sha256((run / name).read_bytes()).hexdigest()
    weights = tmp_path / "weights.bin"
    weights.write_bytes(b"weights")
    found = privacy_report(taut.pure(1.0), delta=0, description="a vote", files=[weights])
    assert found.to_dict()["files"] == {"weights.bin": sha256(b"weights").hexdigest()}


def copied(run, place, *, without=()):
    place.mkdir()
    for path in run.iterdir():
        if path.name not in without:
            (place / path.name).write_bytes(path.read_bytes())
    return place


def test_ledger_that_went_on_is_what_counts(run, tmp_path):
    place = copied(run, tmp_path / "run")
    with RunLedger(place / "ledger.jsonl", PLAN) as ledger:
        ledger.record(20)
    found = privacy_report(place)
    assert found.epsilon == PLAN.loss_at(21).epsilon_bounds(PLAN.delta)
    assert found._evidence.result.counted_steps == 21
    assert "the ledger is reported" in " ".join(found._evidence.checks)


def test_run_without_result_says_what_it_does_not_know(tmp_path):
    place = tmp_path / "run"
    place.mkdir()
    (place / "plan.json").write_text(PLAN.to_json())
    with RunLedger(place / "ledger.jsonl", PLAN) as ledger:
        for step in range(5):
            ledger.record(step)
    found = privacy_report(place)
    assert found.epsilon == PLAN.loss_at(5).epsilon_bounds(PLAN.delta)
    card = found.to_model_card()
    assert "| randomness | not recorded |" in card
    assert "5 of 20 planned updates" in card
    assert f"whole plan instead: {round_up(PLAN.epsilon, 4)}" in card


def test_steps_that_count_twice_are_named():
    again = replace(result_of(PLAN), steps=17, stopped_at_budget=True)
    card = privacy_report(again).to_model_card()
    assert "17 of 20 planned updates: 3 steps were taken twice" in card
    assert "interrupted or killed" in card
    assert "crash" not in card
    assert "whole plan instead" not in card


def test_damaged_runs_are_refused(run, tmp_path):
    with pytest.raises(ValueError, match="no run was begun"):
        privacy_report(tmp_path)
    place = copied(run, tmp_path / "spent", without=("ledger.jsonl", "result.json"))
    with pytest.raises(UnsoundConfiguration, match=r"restore ledger\.jsonl"):
        privacy_report(place)
    place = copied(run, tmp_path / "cut")
    lines = (place / "ledger.jsonl").read_text().splitlines(keepends=True)
    (place / "ledger.jsonl").write_text("".join(lines[:2]))
    with pytest.raises(UnsoundConfiguration, match="was cut off"):
        privacy_report(place)
    place = copied(run, tmp_path / "edited")
    text = json.loads((place / "result.json").read_text())
    text["epsilon"]["upper"] = 0.1
    (place / "result.json").write_text(json.dumps(text))
    with pytest.raises(UnsoundConfiguration, match="changed by hand"):
        privacy_report(place)
    place = copied(run, tmp_path / "other")
    other = replace_steps(PLAN, 21)
    (place / "plan.json").write_text(other.to_json())
    with pytest.raises(UnsoundConfiguration, match="another plan"):
        privacy_report(place)


def replace_steps(plan, steps):
    return Plan(
        examples=plan.examples,
        batch_size=30,
        steps=steps,
        noise_multiplier=1.0,
        delta=1e-3,
        clipping=FlatClip(1.0),
    )


def test_arguments_are_checked():
    loss = taut.gaussian(2.0)
    with pytest.raises(ValueError, match="delta must be given"):
        privacy_report(loss, description="a sum")
    with pytest.raises(ValueError, match="description must say"):
        privacy_report(loss, delta=1e-6)
    with pytest.raises(ValueError, match="cannot be chosen again"):
        privacy_report(result_of(PLAN), delta=1e-6)
    with pytest.raises(ValueError, match="nothing was released"):
        privacy_report(taut.zero(), delta=1e-6, description="nothing")
    with pytest.raises(ValueError, match="got int"):
        privacy_report(3)
    with pytest.raises(ValueError, match="unit must be a name"):
        privacy_report(loss, unit=" ", delta=1e-6, description="a sum")
    with pytest.raises(UnsoundConfiguration, match="no finite epsilon"):
        privacy_report(loss, delta=0, description="a sum")


def test_clipping_that_releases_more_is_named():
    plan = Plan(
        examples=300,
        rate=1.0,
        steps=2,
        noise_multiplier=3.0,
        delta=1e-3,
        clipping=QuantileClip(1.0),
    )
    assert "The clipping publishes more" in privacy_report(result_of(plan)).to_markdown()


def test_mixed_weights_are_what_is_seen():
    plan = Plan(
        examples=300,
        rate=1.0,
        steps=3,
        noise_multiplier=5.0,
        delta=1e-3,
        clipping=FlatClip(1.0),
        mixing=ModelMix(5.0),
    )
    found = privacy_report(result_of(plan))
    assert found.epsilon == plan.loss.epsilon_bounds(1e-3)
    assert found.statement.endswith(
        "even for someone who sees every released state of the weights."
    )
    claims = [a.claim for a in assumptions(found._evidence, found._findings, "example")]
    assert "random numbers of the mixing stay secret" in " ".join(claims)
    assert found._findings.groups == ()


# --- words ----------------------------------------------------------------------------------------


def test_unit_is_not_more_than_what_is_proved(report):
    assert "one patient with a single training example more or less" in report.statement
    assert "if every patient has at most one of them" in report.to_markdown()
    assert "one example more or less" in privacy_report(result_of(PLAN)).statement


def test_seeds_are_no_promise():
    found = privacy_report(result_of(CHEAP, is_secure=False))
    for text in outputs(found):
        assert "As an experiment only" in text
        assert "came from a seed" in text
    status = {a["claim"]: a["status"] for a in found.to_dict()["assumptions"]}
    assert status["Noise and batches come from a secure generator."] == "does not hold"


def test_other_relations_have_their_own_words():
    plan = Plan(
        examples=300,
        batch_size=30,
        steps=5,
        noise_multiplier=3.0,
        delta=1e-3,
        clipping=FlatClip(1.0),
        sampling=FixedSizeSampling(),
    )
    found = privacy_report(result_of(plan))
    assert "replace-one adjacency: one example in the training data exchanged" in found.statement
    assert "with which of two versions it took part" in found.to_model_card()
    assert "which of two candidates" in attack_sentence(found._findings)
    assert found._findings.groups == ()
    names = [a.name for a in found._alternatives.samplers]
    assert names == ["poisson", "poisson", "allocation", "shuffle"]


def test_report_of_a_plan_that_allocates():
    plan = Plan(
        examples=300, batch_size=70, steps=6, noise_multiplier=2.0, delta=1e-3,
        clipping=FlatClip(1.0), sampling="allocation",
    )  # fmt: skip
    found = privacy_report(result_of(plan))
    assert plan.sampling.epoch_steps == 4
    assert "allocation sampling, afresh in every epoch" in found.to_markdown()
    names = [a.name for a in found._alternatives.samplers]
    assert names == ["poisson", "poisson", "fixed_size", "shuffle"]
    assert found._findings.groups == ()  # no theorem for several records of a person


@pytest.mark.parametrize(
    ("sampling", "drawn"),
    [
        ("fixed_order", "one public order | seen, and counted"),
        ("balls_in_bins", "in which steps of all epochs an example takes part | hidden"),
        ("cyclic_allocation", "in which steps of its public group an example takes part | hidden"),
    ],
)
def test_report_says_what_is_seen_and_hidden_of_correlated_noise(sampling, drawn):
    plan = Plan(
        examples=300, batch_size=75, steps=8, noise_multiplier=3.0, delta=1e-3,
        clipping=FlatClip(1.0), sampling=sampling, noise="banded",
    )  # fmt: skip
    page = privacy_report(result_of(plan)).to_markdown()
    assert "## Correlated noise: what is seen, what is hidden" in page
    assert drawn in page
    assert "spent with the first one" in page
    assert "Correlated noise: what" not in privacy_report(result_of(PLAN)).to_markdown()


@pytest.mark.parametrize(
    ("loss", "delta"),
    [
        (taut.laplace(20), 0),
        (taut.approximate(1.0, 1e-7), 1e-6),
        (20 * taut.gaussian(2.0) + taut.pure(0.1), 1e-5),
        (1_000 * taut.gaussian(0.1), 1e-5),
        (taut.gaussian(1e4), 1e-3),
        (taut.from_rdp(lambda order: 0.1 * order), 1e-6),
    ],
    ids=["pure", "approximate", "sum", "huge", "nothing", "renyi"],
)
def test_losses_of_every_kind(loss, delta):
    found = privacy_report(loss, delta=delta, description="A release.")
    assert found.epsilon == loss.epsilon_bounds(delta)
    assert f"≤ {round_up(found.epsilon.upper, 4)}" in found.to_markdown()
    assert found.to_dict()["plan"] is None
    for text in outputs(found):
        assert "training" not in text


def test_words_of_users_are_no_markup():
    evil = "<script>alert(1)</script> `x` **b** | [a](http://x) &lt;"
    found = privacy_report(
        taut.pure(1.0), unit=evil, title=evil, delta=0, description=evil, files=()
    )
    page, markdown, _, card = outputs(found)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    for text in (markdown, card):
        assert not re.search(r"(?<!\\)<script", text)
        assert not re.search(r"(?<!\\)\[a", text)
    assert unmarked(plain(evil)) == evil
    assert inline_html(plain("a*b_c`d")) == "a*b_c`d"


def test_pages_do_without_matplotlib(monkeypatch, tmp_path):
    report = privacy_report(taut.pure(1.0), delta=0, description="A vote.")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    page = report.write(tmp_path / "plain").read_text()
    assert "<svg" not in page
    assert "The picture is left out: matplotlib was not installed" in page
    assert "The dotted diagonal is guessing" in page


# --- what it is filed by --------------------------------------------------------------------------


def test_heading_says_what_it_is():
    counts = {"delta": 0, "description": "A count."}
    assert privacy_report(taut.laplace(2.0), **counts).title == "Privacy report"
    named = privacy_report(taut.laplace(2.0), title="Handwritten digits", **counts)
    assert named.to_markdown().startswith("# Privacy report: Handwritten digits\n")
    assert "<h1>Privacy report: Handwritten digits</h1>" in named.to_html()


def test_owner_dataset_and_dates_are_in_every_output():
    about = {"owner": "Team A", "dataset": "MNIST, 60,000 images", "date": "2026-02-03"}
    report = privacy_report(result_of(CHEAP), **about)
    for text in outputs(report)[:3]:
        for entry in about.values():
            assert entry in text
    today = privacy_report(result_of(CHEAP)).to_markdown()
    assert re.search(r"report written \| \d{4}-\d\d-\d\d \|", today)
    with pytest.raises(ValueError, match="owner must be a name"):
        privacy_report(result_of(CHEAP), owner=" ")


def test_what_the_run_recorded_about_itself_is_told(run, tmp_path):
    silent = privacy_report(run).to_markdown()
    place = tmp_path / "run"
    shutil.copytree(run, place)
    path = place / "result.json"
    said = json.loads(path.read_text())
    for key in ("versions", "finished"):
        said.pop(key, None)
    path.write_text(json.dumps(said))
    silent = privacy_report(place)
    assert "| run finished | not recorded |" in silent.to_markdown()
    assert "| run computed with | not recorded |" in silent.to_markdown()
    said |= {"versions": {"taut": "0.0.7", "torch": "9.9"}, "finished": "2026-01-02T03:04:05Z"}
    path.write_text(json.dumps(said))
    report = privacy_report(place)
    assert "| run finished | 2026-01-02T03:04:05Z |" in report.to_markdown()
    assert "| run computed with | taut 0.0.7, torch 9.9 |" in report.to_markdown()
    assert json.loads(report.to_json())["run"]["versions"] == said["versions"]
    written = report.write(tmp_path / "report").parent / "statement.json"
    assert written.read_text() == path.read_text()


# --- one number, one way to print it --------------------------------------------------------------


def test_noise_multiplier_is_printed_one_way():
    plan = Plan(
        examples=300,
        batch_size=30,
        steps=20,
        noise_multiplier=8.391668,
        delta=1e-3,
        clipping=FlatClip(1.0),
    )
    report = privacy_report(result_of(plan))
    for text in (report.to_markdown(), report.to_model_card(), report.to_html().split("<svg")[0]):
        assert set(re.findall(r"8\.39\d*", text)) == {"8.39166"}


def test_bounds_are_printed_one_way(report):
    low, high = report.epsilon
    rounded = {round_down(low, 4), round_up(high, 4)}
    near = re.compile(rf"(?<![\d.]){int(low)}\.\d+(?![\d.e])")
    own = report.to_markdown().split("## What other accountants")[0]
    for text in (own, report.to_model_card()):
        shown = {n for n in near.findall(text) if low * 0.999 <= float(n) <= high * 1.001}
        assert shown == rounded


@pytest.mark.parametrize(
    ("count", "scale", "exact"), [(3, 16, "0.1875"), (1, 10, "0.1"), (5, 8, "0.625"), (2, 4, "0.5")]
)
def test_exact_numbers_are_stated_exactly(count, scale, exact):
    report = privacy_report(count * taut.laplace(scale), delta=0, description="Counts.")
    assert f"(ε = {exact}, δ = 0)-differentially private" in report.statement


def test_lower_bound_is_for_those_who_see_everything(report):
    card = next(line for line in report.to_markdown().splitlines() if "The truth is" in line)
    assert "for someone who sees every update: against them, no proof can promise less" in card


def test_hopeless_noise_is_reported_and_named():
    plan = Plan(
        examples=300,
        rate=1.0,
        steps=2,
        noise_multiplier=0.01,
        delta=1e-3,
        clipping=FlatClip(1.0),
    )
    report = privacy_report(result_of(plan))
    assert report.epsilon.upper > 1e4
    assert "at most e^" in report.statement  # the factor itself is beyond floats
    assert "hardly a promise" in report.to_model_card()
    assert "hardly a promise" not in privacy_report(result_of(CHEAP)).to_model_card()


@pytest.mark.parametrize("sigma", [0.02, 0.01, 1e-6])
def test_grid_that_cannot_hold_the_losses_is_left_out(sigma):
    assert _fixed_grid(sigma, 0.1, 2, 1e-3) == []


def test_exchanged_records_are_not_called_members():
    plan = Plan(
        examples=300,
        batch_size=30,
        steps=2,
        noise_multiplier=5.0,
        delta=1e-3,
        clipping=FlatClip(1.0),
        sampling=FixedSizeSampling(),
    )
    report = privacy_report(result_of(plan))
    for text in (report.to_markdown(), report.to_html()):
        assert "of exchanges are recognised" in text
        assert not re.search("[Mm]embers", text)


def test_exposures_are_shown_beside_what_is_certified():
    plain_model, private = Exposure([1, 1, 4], 10_000), Exposure([5_000, 77, 9_999], 10_000)
    report = privacy_report(
        result_of(PLAN), exposures={"without privacy": plain_model, "this model": private}
    )
    text = report.to_markdown()
    assert "## Planted secrets" in text
    assert "| without privacy | 2 of 3 | 12.6 bits (blind: 1.4) | 13.3 of 13.3 bits |" in text
    assert "| this model | 0 of 3 |" in text
    most = private.most_found(PLAN.loss_at(PLAN.steps))
    assert f"with probability at most {round_up(100 * most, 3)} %, with one guess" in text
    assert report.to_dict()["exposures"]["this model"] == {
        "ranks": [5_000, 77, 9_999],
        "candidates": 10_000,
    }
    assert "Planted secrets" in report.to_html()


def test_without_planted_secrets_nothing_is_said_of_them():
    assert "Planted" not in privacy_report(result_of(PLAN)).to_markdown()


def test_exposure_is_not_certified_of_a_loss_in_one_direction():
    loss = taut.gaussian(sigma=1.0, adjacency="remove")
    report = privacy_report(
        loss, delta=1e-6, description="A sum.", exposures={"model": Exposure([1], 10)}
    )
    with pytest.raises(UnsoundConfiguration, match="one direction alone"):
        report.to_markdown()


# --- owners ---------------------------------------------------------------------------------------


def test_owners_are_what_the_report_is_about():
    plan = Plan(
        unit=Owners(50, examples_each=3),
        batch_size=10,
        steps=5,
        noise_multiplier=1.0,
        delta=1e-3,
        clipping=FlatClip(1.0),
    )
    text = privacy_report(result_of(plan)).to_markdown()
    assert "one owner with all of its examples more or less" in text
    assert "what any one owner has added" in text
    assert "No owner moves a sum of gradients" in text
    assert "All examples of one owner were given under one name" in text
    for word in ("one example", "has one training example", "single training example"):
        assert word not in text
    named = privacy_report(result_of(plan), unit="patient").to_markdown()
    assert "one patient with all of its examples more or less" in named
    assert "The proof is about one owner. It is about one patient if" in named
