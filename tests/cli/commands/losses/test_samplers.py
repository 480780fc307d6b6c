"""``taut samplers``."""

import pytest

import taut

RUN = "samplers --sigma 2 --batch-size 10 --population 1000 --steps 50 --delta 1e-5"


def test_is_the_library_answer(run_json):
    expected = taut.compare_samplers(2.0, batch_size=10, examples=1000, steps=50, delta=1e-5)
    assert run_json(RUN) == expected.to_dict()


def test_first_rows_are_the_run_that_was_asked_for(run):
    heading, first, *_ = run(RUN).stdout.splitlines()
    assert heading.split() == ["epsilon", "sampler", "adjacency", "assumes"]
    assert first.split()[1:3] == ["allocation", "add_remove"]
    assert "twice_sampled" not in run(RUN).stdout


def test_table_names_every_sampler_and_relation(run):
    page = run(RUN).stdout
    for word in ("poisson", "allocation", "fixed_size", "shuffle"):
        assert word in page
    for relation in ("add_remove", "replace", "zero_out"):
        assert relation in page


def test_other_runs_are_a_table_of_their_own(run):
    above, below = run(f"{RUN} --mask-rate 0.5").stdout.split("Other runs than the one above:")
    assert above.strip() == run(RUN).stdout.strip()
    for word in ("twice_sampled", "equal_compute_poisson"):
        assert word in below


def test_mask_can_be_chosen(run_json):
    coarse, fine = (
        run_json(f"{RUN} --mask-rate 0.25 --clip-inf {bound} --dimension 1000")
        for bound in (0.5, 0.1)
    )

    def twice(answer):
        (row,) = [row for row in answer["others"] if row["sampler"] == "twice_sampled"]
        return row["epsilon"]["upper"]

    assert twice(fine) < twice(coarse)


def test_mask_without_a_rate_is_refused(refusal):
    assert "--mask-rate" in refusal(f"{RUN} --clip-inf 0.2")


def test_plot(run, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "samplers.png"
    assert run(f"{RUN} --plot {path}").exit_code == 0
    assert path.stat().st_size > 1_000


def test_a_mistake_is_explained(refusal):
    wrong = RUN.replace("--batch-size 10", "--batch-size 1000")
    assert "batch_size must be smaller than examples" in refusal(wrong)
