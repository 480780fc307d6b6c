"""``taut epsilon``."""

import json

import pytest

import taut

RUN = "epsilon --sigma 1 --rate 0.01 --steps 1000 --delta 1e-5"


def test_poisson_run_is_the_library_answer(run_json):
    loss = 1000 * taut.gaussian(1.0).poisson(rate=0.01)
    lower, upper = loss.epsilon_bounds(1e-5)
    answer = run_json(RUN)
    assert answer["epsilon"] == {"lower": lower, "upper": upper}
    assert answer["delta"] == 1e-5
    assert answer["adjacency"] == "add_remove"
    assert answer["sampler"] == {"name": "poisson", "rate": 0.01}
    assert taut.PrivacyLoss.from_dict(answer["loss"]) == loss


def test_run_without_sampling(run_json):
    answer = run_json("epsilon --sigma 5 --steps 3 --delta 1e-5")
    assert answer["sampler"] == {"name": "none"}
    assert answer["epsilon"]["upper"] == (3 * taut.gaussian(5.0)).epsilon(1e-5)


def test_one_step_is_the_default(run_json):
    assert run_json("epsilon --sigma 5 --delta 1e-5") == run_json(
        "epsilon --sigma 5 --delta 1e-5 --steps 1"
    )


def test_fixed_size_run_exchanges_a_record(run_json):
    step = taut.gaussian(1.0, sensitivity=2.0, adjacency="replace")
    loss = 1000 * step.fixed_size(100, 10_000, "replace")
    answer = run_json(
        "epsilon --sigma 1 --sampler fixed-size --batch-size 100 --population 10000"
        " --steps 1000 --delta 1e-5"
    )
    assert answer["adjacency"] == "replace"
    assert answer["sampler"] == {"name": "fixed_size", "batch_size": 100, "examples": 10_000}
    assert answer["epsilon"]["upper"] == loss.epsilon(1e-5)


def test_loss_from_a_file(run_json, tmp_path):
    loss = 50 * taut.gaussian(20.0) + 3 * taut.laplace(20.0)
    file = tmp_path / "loss.json"
    file.write_text(loss.to_json())
    answer = run_json(f"epsilon --loss {file} --delta 1e-6")
    assert answer["epsilon"]["upper"] == loss.epsilon(1e-6)
    assert answer["adjacency"] == "add_remove"


def test_smaller_tolerance_narrows_the_bracket(run_json):
    bounds = run_json(f"{RUN} --tolerance 1e-6")["epsilon"]
    assert bounds["upper"] - bounds["lower"] <= 1e-6 * bounds["upper"]


def test_page_names_bounds_adjacency_and_sampler(run):
    page = run(RUN).stdout
    for expected in (
        "certified upper bound",
        "certified lower bound",
        "add_remove",
        "poisson, rate 0.01",
    ):
        assert expected in page


def test_infinite_epsilon_is_valid_json(run_json):
    assert run_json("epsilon --sigma 1 --delta 0")["epsilon"]["upper"] == "Infinity"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("epsilon --rate 0.01 --delta 1e-5", "--sigma"),
        ("epsilon --sigma -1 --delta 1e-5", "sigma=-1.0"),
        ("epsilon --sigma nan --delta 1e-5", "sigma=nan"),
        ("epsilon --sigma 1 --delta 2", "delta=2.0"),
        ("epsilon --sigma 1 --rate 3 --delta 1e-5", "rate=3.0"),
        ("epsilon --sigma 1 --steps -1 --delta 1e-5", "-1"),
        ("epsilon --sigma 1 --delta 1e-5 --tolerance 0", "tolerance=0.0"),
        (
            "epsilon --sigma 1 --delta 1e-5 --sampler poisson",
            "needs either --rate, or --batch-size and --examples",
        ),
        ("epsilon --sigma 1 --delta 1e-5 --batch-size 5", "needs either --rate"),
        ("epsilon --sigma 1 --delta 1e-5 --sampler none --rate 0.1", "does not use --rate"),
        ("epsilon --sigma 1 --delta 1e-5 --rate 0.1 --steps 3 --epochs 3", "--steps or --epochs"),
        ("epsilon --sigma 1 --delta 1e-5 --sampler poison", "sampler must be one of poisson"),
        ("epsilon --sigma 1 --delta 1e-5 --sampler shuffle", "taut samplers"),
        ("epsilon --sigma 1 --delta 1e-5 --adjacency add", "one of add_remove, replace, zero_out"),
        (
            "epsilon --sigma 1 --delta 1e-5 --sampler fixed-size",
            "needs --batch-size and --examples",
        ),
        (
            "epsilon --sigma 1 --delta 1e-5 --sampler fixed-size --batch-size 7 --population 5",
            "batch_size must be at most examples=5",
        ),
        ("epsilon --sigma 1 --delta 1e-5 --loss no-such-file.json", "no-such-file.json"),
    ],
)
def test_mistake_is_explained(refusal, line, message):
    assert message in refusal(line)


def test_loss_and_run_together_are_refused(refusal, tmp_path):
    file = tmp_path / "loss.json"
    file.write_text(taut.gaussian(1.0).to_json())
    message = refusal(f"epsilon --loss {file} --sigma 1 --steps 3 --delta 1e-5")
    assert "leave out --sigma and --steps" in message


@pytest.mark.parametrize("text", ["", "not json", "[]", "{}", '{"schema": 1}', "3"])
def test_file_without_a_loss_is_named(refusal, tmp_path, text):
    file = tmp_path / "loss.json"
    file.write_text(text)
    assert f"{file} holds no privacy loss" in refusal(f"epsilon --loss {file} --delta 1e-5")


def test_answer_in_json_is_a_loss_to_ask_about(run_json, tmp_path):
    file = tmp_path / "answer.json"
    answer = run_json(RUN)
    file.write_text(json.dumps(answer))
    again = run_json(f"epsilon --loss {file} --delta 1e-5")
    assert again["epsilon"] == answer["epsilon"]
    assert again["sampler"] == {"name": "poisson"}


def test_a_loss_without_samples_names_no_sampler(run, run_json, tmp_path):
    file = tmp_path / "loss.json"
    file.write_text((3 * taut.laplace(20.0)).to_json())
    assert "sampler" not in run(f"epsilon --loss {file} --delta 0").stdout
    assert run_json(f"epsilon --loss {file} --delta 0")["sampler"] is None


def test_poisson_runs_may_be_given_by_sizes_and_epochs(run_json):
    sizes = run_json(
        "epsilon --noise-multiplier 1 --batch-size 100 --examples 10000 --epochs 10 --delta 1e-5"
    )
    rate = run_json("epsilon --sigma 1 --rate 0.01 --steps 1000 --delta 1e-5")
    assert sizes["loss"] == rate["loss"]
    assert sizes["epsilon"] == rate["epsilon"]
