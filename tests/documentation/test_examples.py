"""The examples run from start to end."""

import importlib.util
import itertools
import json
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

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


class Letters:
    """A tokenizer of single letters."""

    eos_token_id = 0

    def encode(self, text, add_special_tokens=True):
        return [ord(letter) % 128 for letter in text]

    def decode(self, tokens):
        return "".join(map(chr, tokens))


def tiny_language_model():
    config = transformers.LlamaConfig(
        vocab_size=128,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        bos_token_id=None,
        eos_token_id=None,
    )
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(config).eval(), Letters()


@pytest.fixture
def demo_llm(monkeypatch):
    place = importlib.util.spec_from_file_location("demo_llm", EXAMPLES / "demo_llm.py")
    module = importlib.util.module_from_spec(place)
    monkeypatch.setitem(sys.modules, "demo_llm", module)
    place.loader.exec_module(module)
    monkeypatch.setattr(module, "load_pretrained", tiny_language_model)
    return module


def test_demo_llm_ends_with_a_promise_and_exposures(demo_llm, tmp_path, capsys):
    arguments = ["--run-dir", str(tmp_path / "run"), "--report", str(tmp_path / "report")]
    small = ["--notes", "40", "--secrets", "2", "--epochs", "1", "--batch-size", "10"]
    found = demo_llm.main([*arguments, *small, "--threads", "1"])
    assert {len(one.exposure.ranks) for one in found.values()} == {2}
    assert "codes completed" in capsys.readouterr().out
    page = (tmp_path / "report" / "index.html").read_text()
    assert "Planted secrets" in page
    assert "with privacy" in page


def test_demo_llm_plants_every_code_in_one_note(demo_llm):
    notes, secrets, held_out = demo_llm.make_up(600, 20, 0)
    assert (len(notes), len(set(notes)), len(secrets), len(held_out)) == (600, 600, 20, 100)
    for secret in secrets:
        assert sum(secret.name in note for note in notes) == 1
    assert not set(notes) & set(held_out)


def test_demo_llm_ranks_codes_as_if_all_were_tried(demo_llm):
    model, letters = tiny_language_model()
    model.lm_head.weight.data *= 30  # so that codes differ
    for secret in (demo_llm.Secret("Anna Adler", "4071"), demo_llm.Secret("Hugo Voss", "9")):
        asked = letters.encode(f"{secret.question} ")
        codes = ["".join(code) for code in itertools.product("0123456789", repeat=len(secret.code))]
        rows = torch.tensor([asked + letters.encode(code) for code in codes])
        with torch.no_grad():
            scores = model(input_ids=rows).logits[:, len(asked) - 1 : -1].log_softmax(-1)
        likelihoods = scores.gather(2, rows[:, len(asked) :, None]).sum((1, 2))
        own = likelihoods[codes.index(secret.code)]
        surely, perhaps = (int((likelihoods > own + gap).sum()) for gap in (1e-4, -1e-4))
        assert surely + 1 <= demo_llm.rank(model, letters, secret) <= perhaps


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
