"""One run has one epsilon, whichever command is asked, and whichever words describe it."""

import json

import pytest

import taut

SIZES = "--batch-size 100 --steps 1000 --delta 1e-5"
RUNS = {
    "poisson": ("add_remove", "poisson"),
    "fixed_size": ("replace", "fixed_size"),
}


@pytest.mark.parametrize("sampler", RUNS)
@pytest.mark.parametrize("sigma", [1.0, 4.0])
def test_every_command_gives_one_number(run_json, tmp_path, sampler, sigma):
    adjacency, row = RUNS[sampler]
    answer = run_json(f"epsilon --sigma {sigma} --sampler {sampler} -n 10000 {SIZES}")
    upper = answer["epsilon"]["upper"]
    assert answer["adjacency"] == adjacency
    # verify, of a description and of the answer
    claim = {"epsilon": upper, "delta": 1e-5, "noise_multiplier": sigma, "sampler": sampler}
    claim |= {"batch_size": 100, "examples": 10_000, "steps": 1_000}
    for statement in (claim, answer):
        path = tmp_path / "statement.json"
        path.write_text(json.dumps(statement))
        found = run_json(f"verify {path}")
        assert found["adjacency"] == adjacency
        assert found["epsilon"]["upper"] == upper
    # samplers
    runs = run_json(f"samplers --sigma {sigma} -n 10000 {SIZES}")["runs"]
    (same,) = [r for r in runs if (r["sampler"], r["adjacency"]) == (row, adjacency)]
    assert same["epsilon"]["upper"] == upper
    # delta
    delta = run_json(
        f"delta --sigma {sigma} --sampler {sampler} -n 10000 --epsilon {upper!r}"
        " --batch-size 100 --steps 1000"
    )
    assert delta["adjacency"] == adjacency
    assert delta["delta"]["lower"] <= 1e-5 <= delta["delta"]["upper"] * (1 + 1e-2)
    # plan and calibrate, the other way round
    line = f"--epsilon {upper!r} --sampler {sampler} -n 10000 {SIZES}"
    for command, name in (("plan", "noise_multiplier"), ("calibrate", "sigma")):
        back = run_json(f"{command} {line}")
        assert back["adjacency"] == adjacency
        assert back[name] == pytest.approx(sigma, rel=2e-3)


@pytest.mark.parametrize("adjacency", ["add_remove", "replace", "zero_out"])
@pytest.mark.parametrize("sampler", ["poisson", "fixed_size", "none"])
def test_every_relation_is_the_same_in_both_commands(run_json, tmp_path, sampler, adjacency):
    sizes = "" if sampler == "none" else "--batch-size 10 --examples 1000"
    answer = run_json(
        f"epsilon --sigma 2 --sampler {sampler} {sizes} --steps 5 --delta 1e-5"
        f" --adjacency {adjacency}"
    )
    assert answer["adjacency"] == adjacency
    claim = {"epsilon": answer["epsilon"]["upper"], "delta": 1e-5, "noise_multiplier": 2.0}
    claim |= {"sampler": sampler, "adjacency": adjacency, "steps": 5}
    claim |= {} if sampler == "none" else {"batch_size": 10, "examples": 1_000}
    path = tmp_path / "statement.json"
    path.write_text(json.dumps(claim))
    found = run_json(f"verify {path}")
    assert found["verdict"] == "certified"
    assert found["loss"] == answer["loss"]


@pytest.mark.parametrize(
    "words",
    [
        "--sampler fixed-size --sigma 1 --population 1000",
        "--sampling fixed_size --noise-multiplier 1 --examples 1000",
        "--sampler Fixed-Size --sigma 1 -n 1000",
    ],
)
def test_every_spelling_is_one_run(run_json, words):
    expected = run_json(
        "epsilon --sampler fixed_size --sigma 1 --examples 1000 --batch-size 10 --delta 1e-5"
    )
    assert run_json(f"epsilon {words} --batch-size 10 --delta 1e-5") == expected


def test_spellings_of_plan_and_samplers(run_json):
    plan = "--batch-size 50 --epochs 4 --epsilon 20 --delta 1e-3"
    assert run_json(f"plan --examples 200 {plan} --sampling fixed_size") == run_json(
        f"plan --population 200 {plan} --sampler fixed-size"
    )
    run = "--batch-size 10 --steps 5 --delta 1e-5"
    assert run_json(f"samplers --sigma 2 --population 1000 {run}") == run_json(
        f"samplers --noise-multiplier 2 --examples 1000 {run}"
    )


def test_fixed_size_for_add_remove_has_to_be_asked_for(run_json):
    line = "epsilon --sampler fixed_size --sigma 1 -n 10000 " + SIZES
    step = taut.gaussian(1.0, sensitivity=2.0, adjacency="replace")
    asked = run_json(f"{line} --adjacency add_remove")["epsilon"]["upper"]
    assert asked == (1_000 * step.fixed_size(100, 10_000)).epsilon(1e-5)
    assert run_json(line)["epsilon"]["upper"] > asked
