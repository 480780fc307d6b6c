"""``taut matrix``."""

import pytest

from taut.matrix import Workload, optimize

RUN = "matrix --steps 32 --epochs 4 --epsilon 2 --delta 1e-5 --bands 2 --bands 4"
SAMPLERS = ["poisson", "allocation", "cyclic_poisson", "fixed_order"]  # bins take seconds
FEW = f"{RUN} {' '.join(f'--sampler {name}' for name in SAMPLERS)}"


def test_is_the_library_answer(run_json):
    asked = {"epochs": 4, "epsilon": 2, "delta": 1e-5, "bands": [2, 4], "samplers": SAMPLERS}
    assert run_json(FEW) == optimize(Workload(32), **asked).to_dict()


def test_prints_the_best_of_every_kind_first(run):
    heading, first, *rest = run(FEW).stdout.splitlines()
    assert heading.split()[:2] == ["rms", "error"]
    assert first.split()[-1] == "1.000"
    assert any("independent" in line and "poisson" in line for line in rest)


def test_samplers_goal_and_workload_can_be_chosen(run_json):
    chosen = run_json(
        f"{RUN} --sampler fixed-order --sampler cyclic_poisson --goal maximum --momentum 0.9"
    )
    assert {row["sampling"] for row in chosen["rows"]} == {"fixed_order", "cyclic_poisson"}
    errors = [row["maximum"] for row in chosen["rows"]]
    assert errors == sorted(errors)


def test_draws(run, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "ranking.svg"
    run(f"{RUN} --sampler cyclic_poisson --plot {path}")
    assert path.read_text().lstrip().startswith("<?xml")


def test_mistakes_are_explained(refusal):
    assert "the nearest is" in " ".join(refusal(RUN.replace("--epochs 4", "--epochs 5")).split())
