"""``taut plan``."""

import numpy as np
import pytest

import taut
from taut.training import FixedSizeSampling, FlatClip, Plan

RUN = "plan -n 200 --batch-size 50 --epochs 4 --epsilon 2 --delta 1e-3"
PLAN = {"examples": 200, "epochs": 4, "epsilon": 2.0, "delta": 1e-3, "clipping": FlatClip(1.0)}


def test_is_the_library_answer(run_json):
    expected = Plan(batch_size=50, **PLAN)
    answer = run_json(RUN)
    assert Plan.from_dict({key: answer[key] for key in expected.to_dict()}) == expected
    assert answer["noise_per_step"] == expected.noise_multiplier / 50
    assert answer["noise_of_run"] == pytest.approx(expected.noise_multiplier / 50 / 16**0.5)


def test_rate_and_steps_say_the_same(run_json):
    line = "plan -n 200 --rate 0.25 --steps 16 --epsilon 2 --delta 1e-3"
    assert run_json(line) == run_json(RUN)


def test_sampling_can_be_chosen(run_json):
    line = RUN.replace("--epsilon 2", "--epsilon 20") + " --sampling fixed_size"
    expected = Plan(batch_size=50, **(PLAN | {"epsilon": 20.0}), sampling=FixedSizeSampling())
    answer = run_json(line)
    assert answer["noise_multiplier"] == expected.noise_multiplier
    assert answer["adjacency"] == "replace"


@pytest.mark.parametrize("sampling", ["allocation", "best"])
def test_epochs_that_use_every_example_once(run_json, sampling):
    found = run_json(f"{RUN} --sampling {sampling}")
    assert found["sampling"] == {"name": "allocation", "steps": 4}
    loss = 4 * taut.gaussian(found["noise_multiplier"]).allocated(4)
    assert 1.99 < loss.epsilon(1e-3) <= 2
    assert any("best" in note for note in found["notes"]) == (sampling == "best")


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ("--noise blt", {"noise": "blt"}),
        (
            "--noise banded --sampler cyclic_poisson",
            {"noise": "banded", "sampling": "cyclic_poisson"},
        ),
    ],
)
def test_noise_that_is_correlated_over_steps(run, run_json, options, settings):
    expected = Plan(batch_size=50, **PLAN, **settings)
    answer = run_json(f"{RUN} {options}")
    assert Plan.from_dict({key: answer[key] for key in expected.to_dict()}) == expected
    decoder = np.linalg.inv(expected.encoder.matrix()) * expected.noise_multiplier / 50
    assert answer["noise_per_step"] == pytest.approx(np.sqrt((decoder**2).sum() / 16), rel=1e-9)
    assert answer["noise_of_run"] == pytest.approx(np.linalg.norm(decoder.sum(0)) / 16, rel=1e-9)
    page = run(f"{RUN} {options}").stdout
    for word in ("correlated by", expected.sampling.name, "zero_out"):
        assert word in page


def test_noise_that_does_not_go_with_the_sampler_is_explained(refusal):
    assert "fixed order" in refusal(f"{RUN} --noise blt --sampler poisson")
    assert "one of" in refusal(f"{RUN} --noise bltt")


def test_sweeps_keep_correlated_noise(run_json):
    swept = run_json(f"{RUN} --noise blt --sweep epsilon=2,4")["plans"]
    least, most = (row["noise_of_run"] for row in swept)
    assert least > most > 0
    assert least == run_json(f"{RUN} --noise blt")["noise_of_run"]


def test_page_names_noise_promise_and_assumptions(run):
    page = run(RUN).stdout
    words = ("sigma", "16 (4 epochs)", "noise per step", "certified upper bound", "add_remove")
    for word in (*words, "poisson"):
        assert word in page


def test_sigma_printed_for_people_keeps_the_promise(run):
    sigma = float(run(RUN).stdout.split()[1])
    again = Plan(
        examples=200,
        batch_size=50,
        epochs=4,
        delta=1e-3,
        noise_multiplier=sigma,
        clipping=FlatClip(1.0),
    )
    assert again.epsilon <= 2.0


def test_sweep(run, run_json):
    answer = run_json(f"{RUN} --sweep batch_size=25,50")
    assert answer["knob"] == "batch_size"
    for row, size in zip(answer["plans"], (25, 50), strict=True):
        assert row["noise_multiplier"] == Plan(batch_size=size, **PLAN).noise_multiplier
    page = run(f"{RUN} --sweep batch-size=25,50").stdout
    assert "batch size" in page
    assert "noise of the run" in page


def test_sweep_shows_what_cannot_be_afforded(run):
    page = run(f"{RUN} --sweep epsilon=1e-6,2").stdout
    assert "epsilon=1e-06: epsilon=1e-06 at delta=0.001 needs a noise multiplier" in page


@pytest.mark.parametrize("sweep", ["", "--sweep epochs=1,2,4"])
def test_plot(run, tmp_path, sweep):
    pytest.importorskip("matplotlib")
    path = tmp_path / "plan.svg"
    assert run(f"{RUN} {sweep} --plot {path}").exit_code == 0
    assert "<svg" in path.read_text()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("plan -n 2000 --epochs 4 --epsilon 2 --delta 1e-4", "give either batch_size or rate"),
        ("plan -n 2000 --batch-size 9 --epsilon 2 --delta 1e-4", "give either steps or epochs"),
        (f"{RUN} --rate 0.1", "give either batch_size or rate"),
        (f"{RUN} --sampling poison", "--sampler must be one of poisson, truncated_poisson"),
        (f"{RUN} --sweep batch_size", "--sweep must be a name and numbers"),
        (f"{RUN} --sweep batch_size=a,b", "--sweep must be a name and numbers"),
        (f"{RUN} --sweep batchsize=1", "did you mean 'batch_size'?"),
        (f"{RUN} --sweep batch_size=1.5", "must be a whole number"),
        (RUN.replace("--epsilon 2", "--epsilon 1e-6"), "Any one of these would suffice"),
        (RUN.replace("-n 200", "-n 10"), "batch_size must be at most examples=10"),
    ],
)
def test_a_mistake_is_explained(refusal, line, message):
    assert message in refusal(line)


def test_completion_of_names():
    from taut.cli._commands.plan import _complete_knob
    from taut.cli._run_options import complete_sampler

    assert _complete_knob("e") == ["epochs=", "epsilon=", "examples="]
    assert complete_sampler("p") == ["poisson"]


def test_schedules(run, run_json):
    line = "plan -n 200 --batch-schedule 8:50,8:20 --epsilon 2 --delta 1e-3"
    arguments = {key: value for key, value in PLAN.items() if key != "epochs"}
    expected = Plan(
        batch_size=[(8, 50), (8, 20)], noise_schedule=[(4, 2.0), (12, 1.0)], **arguments
    )
    answer = run_json(f"{line} --noise-schedule 4:2,12:1")
    assert Plan.from_dict({key: answer[key] for key in expected.to_dict()}) == expected
    assert answer["noise_per_step"] == expected.mean_gradient_noise
    page = run(f"{line} --noise-schedule 4:2,12:1").stdout
    assert "by the schedule (noise multiplier)" in page
    assert "20 to 50 expected, 35 on average" in page


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("--noise-schedule 4-2", "--noise-schedule must be steps and values"),
        ("--noise-schedule 4:2,2:1", "one value for each of 16 steps"),
        ("--batch-schedule 16:50", "either --batch-size or --batch-schedule"),
    ],
)
def test_bad_schedules(run, options, complaint):
    answer = run(f"{RUN} {options}")
    assert answer.exit_code == 2
    assert complaint in " ".join(answer.stderr.split())


def test_no_plot_of_batch_sizes_that_change(run, tmp_path):
    line = "plan -n 200 --batch-schedule 8:50,8:20 --epsilon 2 --delta 1e-3"
    answer = run(f"{line} --plot {tmp_path / 'a.png'}")
    assert answer.exit_code == 2
    assert "--sweep" in answer.stderr


def test_a_cap_is_printed_with_its_cost(run_json):
    (note,) = (n for n in run_json(f"{RUN} --cap 70")["notes"] if "cut" in n)
    assert note.startswith("batches are cut at 70 examples; without the cap epsilon would be")


def test_a_cap_of_another_sampler_is_refused(refusal):
    assert "--cap is for --sampler truncated_poisson" in refusal(f"{RUN} --cap 70 --sampler best")
