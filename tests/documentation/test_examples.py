"""The examples run from start to end."""

import json
import re
import runpy
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_demo_ends_with_a_promise_and_a_report(tmp_path, capsys):
    main = runpy.run_path(str(EXAMPLES / "demo.py"))["main"]
    arguments = ["--run-dir", str(tmp_path / "run"), "--report", str(tmp_path / "report")]
    assert main([*arguments, "--epochs", "10"]) > 0.5
    printed = " ".join(capsys.readouterr().out.split())
    assert "epsilon spent" in printed
    assert re.search(r"certified 2\.99[0-9]* <= epsilon <= (2\.99|3\.0)", printed)
    assert "they recognise at most" in printed
    assert "at most 20.1 times more or less likely" in printed
    assert "a chance of 1 in 100,000" in printed
    assert "Handwritten digits" in (tmp_path / "report" / "index.html").read_text()


def test_demo_removes_nothing_but_its_own_runs(tmp_path):
    precious = tmp_path / "thesis.txt"
    precious.write_text("years of work")
    main = runpy.run_path(str(EXAMPLES / "demo.py"))["main"]
    with pytest.raises(SystemExit, match="holds something else than a run"):
        main(["--run-dir", str(tmp_path)])
    assert precious.exists()


def test_train_mnist_prints_a_promise_and_an_accuracy(tmp_path, monkeypatch, capsys):
    draw = np.random.default_rng(0)
    arrays = {}
    for part, size in (("train", 300), ("test", 40)):
        arrays[f"x_{part}"] = draw.integers(0, 256, (size, 28, 28), dtype=np.uint8)
        arrays[f"y_{part}"] = draw.integers(0, 10, size, dtype=np.uint8)
    np.savez(tmp_path / "mnist.npz", **arrays)
    monkeypatch.setenv("TAUT_DATA", str(tmp_path))
    main = runpy.run_path(str(EXAMPLES / "train_mnist.py"))["main"]
    arguments = ["--epochs", "1", "--batch-size", "100", "--threads", "1", "--delta", "1e-3"]
    accuracy = main([*arguments, "--run-dir", str(tmp_path / "run")])
    printed = capsys.readouterr().out
    assert "differentially private under add_remove adjacency" in printed
    assert f"accuracy {100 * accuracy:.2f} % on 40 test examples" in printed
    assert (tmp_path / "run" / "result.json").exists()


def test_train_mnist_says_where_data_belong(tmp_path, monkeypatch):
    monkeypatch.setenv("TAUT_DATA", str(tmp_path))
    main = runpy.run_path(str(EXAMPLES / "train_mnist.py"))["main"]
    with pytest.raises(SystemExit, match="Set TAUT_DATA"):
        main(["--dataset", "fashion_mnist"])


@pytest.mark.parametrize("notebook", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_run_and_are_saved_without_outputs(notebook, tmp_path, monkeypatch):
    monkeypatch.setenv("QUICK", "1")
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    for cell in cells:
        if cell["cell_type"] == "code":
            assert not cell["outputs"]
            exec(compile("".join(cell["source"]), str(notebook), "exec"), namespace)
    assert cells[0]["source"][0].startswith("# ")
