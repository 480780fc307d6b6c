"""Importing the package loads no more than the question at hand needs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import taut.training

HEAVY = (
    "matplotlib",
    "mpmath",
    "rich",
    "scipy.optimize",
    "scipy.signal",
    "scipy.stats",
    "torch",
    "typer",
)


def modules_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(*sys.modules, file=sys.stderr)"
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return set(completed.stderr.split())


@pytest.mark.parametrize(
    "statement", ["import taut", "import taut.accounting", "import taut; taut.gaussian(1.0)"]
)
def test_import_leaves_heavy_packages_alone(statement):
    assert modules_after(statement).isdisjoint(HEAVY)


def test_import_taut_waits_with_numpy():
    assert "numpy" not in modules_after("import taut")


def test_help_needs_no_numpy():
    statement = """
from typer.testing import CliRunner
from taut.cli._app import app
from typer.main import get_command
for command in ("", *get_command(app).commands):
    assert CliRunner().invoke(app, [*command.split(), "--help"]).exit_code == 0
"""
    assert "numpy" not in modules_after(statement)


NO_TORCH = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name="torch")

sys.meta_path.insert(0, Missing())
"""
STANDING = Path(__file__).parent / "standing" / "written"


def without_torch(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", NO_TORCH + code], capture_output=True, text=True)


def taut_without_torch(*arguments: object) -> subprocess.CompletedProcess[str]:
    words = ["taut", *map(str, arguments)]
    return without_torch(f"sys.argv = {words!r}\nfrom taut.cli import main\nmain()")


@pytest.mark.parametrize(
    "statement",
    [
        "from taut.training import PrivateTrainer",
        "import taut.training; taut.training.make_private",
        "from taut.training.features import featurise",
        "from taut.training.models import mlp",
        "from taut.runs import train",
    ],
)
def test_what_needs_torch_says_what_to_install(statement):
    completed = without_torch(statement)
    assert completed.returncode == 1
    assert completed.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: this part of taut.training needs PyTorch; install it with: "
        "pip install 'taut[torch]'"
    )


def test_unknown_names_of_training_are_attribute_errors():
    with pytest.raises(AttributeError, match=r"'taut\.training' has no attribute 'PrivatTrainer'"):
        _ = taut.training.PrivatTrainer


def test_every_kind_of_plan_is_made_without_torch():
    completed = without_torch("""
import numpy as np
from taut.training import (
    FlatClip, GEPClip, GroupClip, HybridClip, L2LInfClip, ModelMix, NormalisedClip, Plan,
    QuantileClip, RefreshedHybridClip, RunLedger, TrainingResult, TwiceSampling,
)
public = np.random.default_rng(0).normal(size=(40, 12)) / np.arange(1, 13)
kinds = {
    "flat": FlatClip(1.0), "normalised": NormalisedClip(1.0), "group": GroupClip(1.0),
    "quantile": QuantileClip(1.0), "entries": L2LInfClip.spread_over(1.0, 4),
    "hybrid": HybridClip.from_public(public, [2], 1.0, provenance="public"),
    "gep": GEPClip.from_public(public, 2, 1.0, 0.2, provenance="public"),
    "refreshed": RefreshedHybridClip([2], 1.0, every=4),
    "twice": L2LInfClip.spread_over(1.0, 100), "mixed": FlatClip(1.0),
}
others = {"twice": {"sampling": TwiceSampling()}, "mixed": {"mixing": ModelMix(width=4.0)}}
for kind, clipping in kinds.items():
    plan = Plan(
        examples=1_000, batch_size=100, steps=5, noise_multiplier=2.0, delta=1e-5,
        clipping=clipping, **others.get(kind, {}),
    )
    assert Plan.from_json(plan.to_json()) == plan
    if kind != "refreshed":
        plan.noise({"weight": 10, "bias": 2})
with RunLedger(None, plan) as ledger:
    ledger.record(0)
result = TrainingResult.of(plan, ledger.history, steps=1, is_secure=True)
assert TrainingResult.from_json(result.to_json()) == result
print("made", ledger.steps)
""")
    assert (completed.stdout, completed.stderr) == ("made 1\n", "")


def test_plan_command_needs_no_torch():
    completed = taut_without_torch(
        *("plan", "--examples", 60_000, "--batch-size", 512, "--epochs", 15),
        *("--epsilon", 3, "--delta", 1e-5, "--json"),
    )
    assert completed.returncode == 0, completed.stderr
    assert json.loads(completed.stdout)["steps"] == 1758


@pytest.mark.parametrize("name", ["statement-flat.json", "statement-group.json"])
def test_verify_command_needs_no_torch(name):
    completed = taut_without_torch("verify", STANDING / name, "--json")
    assert completed.returncode == 0, completed.stderr
    assert json.loads(completed.stdout)["holds"] is True


def test_report_of_a_finished_run_needs_no_torch(tmp_path):
    completed = taut_without_torch("report", STANDING / "run-flat", "--output", tmp_path / "made")
    assert completed.returncode == 0, completed.stderr
    assert (
        "ledger, plan and result agree on every step"
        in (tmp_path / "made" / "index.html").read_text()
    )


def test_what_torch_itself_lacks_is_not_taken_for_torch(tmp_path):
    (tmp_path / "torch.py").write_text("import sympy_of_torch\n")
    code = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport taut.training._tensors"
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert completed.stderr.splitlines()[-1].endswith("No module named 'sympy_of_torch'")
