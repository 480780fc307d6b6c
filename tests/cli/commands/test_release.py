"""``taut release``."""

import json
import math

import pytest

from taut.accounting import Promise, laplace
from taut.cli._commands.release import in_one_sentence

pytest.importorskip("polars")

SPEC = """
[promise]
epsilon = 2.0
[bounds]
age = [18, 90]
[cells]
region = ["north", "south"]
[[statistics]]
what = "mean"
of = "age"
[[statistics]]
what = "counts"
by = "region"
"""


@pytest.fixture
def files(tmp_path):
    spec, table = tmp_path / "release.toml", tmp_path / "people.csv"
    spec.write_text(SPEC)
    rows = "".join(f"{20 + i % 50},{'north' if i % 3 else 'south'}\n" for i in range(900))
    table.write_text(f"age,region\n{rows}")
    return f"{table} --spec {spec}", tmp_path


def test_page_has_values_errors_and_one_sentence(run, files):
    line, folder = files
    result = run(f"release {line} --out {folder / 'result.json'}")
    assert result.exit_code == 0, result.output
    page = result.stdout
    for words in ("mean of age", "counts by region: north", "±", "epsilon <= 2.0"):
        assert words in page
    assert "Adding or removing any one record changes the probability of any result" in page
    assert f"check with: taut verify {folder / 'result.json'}" in page
    verified = run(f"verify {folder / 'result.json'} --max-epsilon 2")
    assert verified.exit_code == 0, verified.output


def test_json_is_what_is_written(run_json, files):
    line, folder = files
    answer = run_json(f"release {line} --out {folder / 'result.json'}")
    assert answer == json.loads((folder / "result.json").read_text())
    (mean, counts) = answer["statistics"]
    assert abs(mean["value"] - 44.5) < 9 * mean["standard_error"] + 1
    assert counts["labels"] == [["north", "south"]]


def test_dry_run_reads_no_record(run, run_json, files):
    line, folder = files
    (folder / "people.csv").write_text("age,region\n")  # nothing but names
    result = run(f"release {line} --dry-run --records 900")
    assert result.exit_code == 0, result.output
    assert "standard errors for 900 records; no data were read" in result.stdout
    assert "dry run: nothing was released or spent" in result.stdout
    spec = line.split(" ", 1)[1]
    assert run_json(f"release {spec} --dry-run")["records"] == 10_000


def test_dry_run_refuses_names_that_the_table_lacks(refusal, files):
    line, folder = files
    (folder / "people.csv").write_text("Age,region\n1,x\n")
    assert "no column 'age'; did you mean 'Age'" in refusal(f"release {line} --dry-run")


def test_file_is_not_overwritten(refusal, files):
    line, folder = files
    (folder / "result.json").write_text("mine")
    assert "is not overwritten" in refusal(f"release {line} --out {folder / 'result.json'}")
    assert (folder / "result.json").read_text() == "mine"


def test_mistakes_are_explained(refusal, files):
    line, folder = files
    spec = line.split(" ", 1)[1]
    assert "name the table" in refusal(f"release {spec}")
    assert "--records is for --dry-run" in refusal(f"release {line} --records 5")
    (folder / "table.xlsx").write_text("")
    assert "a .csv or a .parquet file" in refusal(f"release {folder / 'table.xlsx'} {spec}")
    (folder / "release.toml").write_text(SPEC.replace('"mean"', '"meen"'))
    assert "did you mean 'mean'" in refusal(f"release {line}")


def test_public_number_of_records_is_that_of_the_file(refusal, run_json, files):
    line, folder = files
    text = SPEC.replace("epsilon = 2.0", 'epsilon = 2.0\nadjacency = "replace"\nrecords = 900')
    (folder / "release.toml").write_text(text)
    assert run_json(f"release {line} --dry-run")["records"] == 900
    assert "the file says records = 900" in refusal(f"release {line} --dry-run --records 5")
    assert run_json(f"release {line}")["adjacency"] == "replace"


def test_sentence_is_rounded_to_the_safe_side():
    pure = in_one_sentence(Promise(laplace(1 / math.log(2)), delta=0.0))
    assert "by a factor of at most 2." in pure
    assert "except" not in pure
    with_delta = in_one_sentence(Promise(laplace(1.0, adjacency="replace"), delta=1e-5))
    assert with_delta.startswith("Replacing any one record")
    assert with_delta.endswith("except with probability 1e-05.")


def test_ledger_is_made_charged_and_refuses(run, refusal, files):
    line, folder = files
    ledger = folder / "budget.json"
    first = run(f"release {line} --ledger {ledger} --budget-epsilon 5 --budget-delta 1e-6")
    assert first.exit_code == 0, first.output
    assert "is left of epsilon = 5 at delta = 1e-06" in first.stdout
    second = run(f"release {line} --ledger {ledger}")
    assert second.exit_code == 0, second.output
    spent = ledger.read_bytes()
    message = refusal(f"release {line} --ledger {ledger} --out {folder / 'third.json'}")
    assert "of the budget and" in message
    assert "is left; release it with more noise" in message
    assert ledger.read_bytes() == spent
    assert not (folder / "third.json").exists()


def test_mistakes_with_ledgers_are_explained_and_spend_nothing(run, refusal, files):
    line, folder = files
    ledger = folder / "budget.json"
    assert "--budget-epsilon and --budget-delta" in refusal(f"release {line} --ledger {ledger}")
    assert "name its file" in refusal(f"release {line} --budget-epsilon 1")
    assert "spends nothing" in refusal(f"release {line} --dry-run --ledger {ledger}")
    assert "leave --out out" in refusal(f"release {line} --dry-run --out {ledger}")
    assert not ledger.exists()
    asked = "--budget-epsilon 9 --budget-delta 1e-6"
    assert run(f"release {line} --ledger {ledger} {asked}").exit_code == 0
    assert run(f"release {line} --ledger {ledger} {asked}").exit_code == 0
    spent = ledger.read_bytes()
    changed = refusal(f"release {line} --ledger {ledger} --budget-epsilon 20")
    assert "a budget that was promised is not changed" in changed
    ledger.with_name("other.json").write_text("mine")
    assert "holds no budget" in refusal(f"release {line} --ledger {folder / 'other.json'}")
    (folder / "people.csv").write_text("Age,region\n1,x\n")
    assert "no column 'age'" in refusal(f"release {line} --ledger {ledger}")
    assert ledger.read_bytes() == spent
