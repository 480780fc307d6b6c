"""``taut plan``: what a training run can afford."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taut._base.rounding import round_up
from taut.cli._page import mistakes_explained, print_json, print_rows
from taut.cli._run_options import (
    EXAMPLES,
    SAMPLER,
    CapOption,
    DeltaOption,
    JsonOption,
    complete_sampler,
)

if TYPE_CHECKING:
    from taut.runs import PlanSweep, SweptPlan
    from taut.training import Plan
    from taut.training.extend import Sampling

_KNOBS = ("batch_size", "rate", "epochs", "steps", "epsilon", "delta", "examples")
_NOISES = ("independent", "banded", "blt", "inverse", "tree", "best")
_POWERS = range(-3, 4)  # of two: where a plot looks if it is not told


def _complete_knob(incomplete: str) -> list[str]:
    return [f"{knob}=" for knob in _KNOBS if knob.startswith(incomplete)]


def _complete_noise(incomplete: str) -> list[str]:
    return [name for name in _NOISES if name.startswith(incomplete)]


_BatchSizeOption = Annotated[
    int | None, typer.Option(help="Expected examples per step (or give --rate).")
]
_RateOption = Annotated[float | None, typer.Option(help="Expected share of the examples per step.")]
_EpochsOption = Annotated[
    float | None, typer.Option(help="Passes over the data (or give --steps).")
]
_SamplingOption = Annotated[
    str | None,
    typer.Option(
        *SAMPLER,
        help="How batches are drawn: poisson, truncated_poisson, allocation, fixed_size, or best, "
        "the cheaper of poisson and allocation; with --noise: fixed_order, cyclic_allocation, "
        "cyclic_poisson or balls_in_bins.",
        show_default="poisson, or fixed_order with --noise",
        autocompletion=complete_sampler,
    ),
]
_NoiseOption = Annotated[
    str | None,
    typer.Option(
        help="Noise that is correlated over steps: banded, blt, inverse, tree, or best, the one "
        "with the least error.",
        show_default="independent",
        autocompletion=_complete_noise,
    ),
]
_NoiseScheduleOption = Annotated[
    str | None,
    typer.Option(
        help="Proportions of the noise, for stretches of steps: 500:1,100:0.8 is less of it in "
        "the last 100 of 600 steps.",
        metavar="STEPS:FACTOR,...",
    ),
]
_BatchScheduleOption = Annotated[
    str | None,
    typer.Option(
        help="Batch sizes, for stretches of steps, in place of --batch-size.",
        metavar="STEPS:SIZE,...",
    ),
]
_SweepOption = Annotated[
    str | None,
    typer.Option(
        help="Compare several values of one option.",
        metavar="NAME=VALUE,...",
        autocompletion=_complete_knob,
    ),
]
_PlotOption = Annotated[
    Path | None, typer.Option(help="Draw noise against the swept option, or batch size.")
]


def plan(
    *,
    examples: Annotated[int, typer.Option(*EXAMPLES, help="Number of examples.")],
    epsilon: Annotated[float, typer.Option(help="The epsilon to promise.")],
    delta: DeltaOption,
    batch_size: _BatchSizeOption = None,
    rate: _RateOption = None,
    epochs: _EpochsOption = None,
    steps: Annotated[int | None, typer.Option(help="Number of steps (or give --epochs).")] = None,
    sampling: _SamplingOption = None,
    cap: CapOption = None,
    noise: _NoiseOption = None,
    noise_schedule: _NoiseScheduleOption = None,
    batch_schedule: _BatchScheduleOption = None,
    sweep: _SweepOption = None,
    plot: _PlotOption = None,
    json: JsonOption = False,
) -> None:
    """Say how much noise a promise costs a training run, before anything is trained.

    Noise per step is the standard deviation of the noise on a number of the mean gradient, over the
    clipping norm; noise of the run is that of the mean over all steps.

    Example: taut plan -n 60000 --batch-size 512 --epochs 15 --epsilon 3 --delta 1e-5
    """
    with mistakes_explained():
        from taut.runs import SweptPlan, sweep_plan
        from taut.training import FlatClip, Plan

        arguments: dict[str, Any] = {
            "examples": examples,
            "batch_size": _sizes(batch_size, batch_schedule),
            "rate": rate,
            "epochs": epochs,
            "steps": steps,
            "epsilon": epsilon,
            "delta": delta,
            "noise_schedule": _stretches("--noise-schedule", noise_schedule),
            "sampling": _sampling(sampling, cap, noise),
            "noise": noise,
            "clipping": FlatClip(1.0),
        }
        if sweep is not None:
            swept = sweep_plan(*_read_sweep(sweep), **arguments)
            _print_sweep(swept, as_json=json)
        else:
            only = Plan(**arguments)
            _print_plan(SweptPlan(epsilon, only), only, as_json=json)
        if plot is not None:
            from taut.report import plot_plans

            if batch_schedule is not None and sweep is None:
                raise ValueError("--plot draws other batch sizes, and these change: name a --sweep")
            if sweep is None:
                swept = sweep_plan("batch_size", _around(only.batch_size, examples), **arguments)
            plot_plans(swept, plot)


def _sampling(name: str | None, cap: int | None, noise: str | None) -> "Sampling | str | None":
    """Return what a plan is told about batches: a name, or a sampling with its cap."""
    from taut.training import TruncatedPoissonSampling

    if noise not in (None, "independent") and cap is None:
        return name  # which of them go with the noise, the plan says
    word = _sampling_name("poisson" if name is None else name)
    if cap is None:
        return word
    if word not in ("poisson", TruncatedPoissonSampling.name):
        raise ValueError(f"--cap is for --sampler truncated_poisson, got {name!r}; leave one out")
    return TruncatedPoissonSampling(cap=cap)


def _sampling_name(name: str) -> str:
    """Return the name as a plan knows it, or say which there are."""
    from taut.accounting import Sampler

    known = ("poisson", "truncated_poisson", "allocation", "fixed_size", "best")
    try:
        word = name if name == "best" else str(Sampler(name))
    except ValueError:
        word = ""
    if word not in known:
        raise ValueError(f"--sampler must be one of {', '.join(known)}, got {name!r}")
    return word


def _sizes(size: int | None, schedule: str | None) -> Any:
    """Return the batch size, or the schedule of batch sizes."""
    if schedule is None:
        return size
    if size is not None:
        raise ValueError("give either --batch-size or --batch-schedule, not both")
    return _stretches("--batch-schedule", schedule)


def _stretches(option: str, text: str | None) -> list[tuple[int, float]] | None:
    """Return the stretches of a schedule, such as 500:1,100:0.8."""
    if text is None:
        return None
    try:
        pairs = [part.split(":") for part in text.split(",")]
        return [(int(steps), float(value)) for steps, value in pairs]
    except ValueError:
        raise ValueError(
            f"{option} must be steps and values, such as 500:1,100:0.8, got {text!r}"
        ) from None


def _read_sweep(text: str) -> tuple[str, list[float]]:
    knob, equals, values = text.partition("=")
    try:
        numbers = [float(value) for value in values.split(",")]
    except ValueError:
        numbers = []
    if not equals or not numbers:
        raise ValueError(
            f"--sweep must be a name and numbers, such as batch_size=256,512, got {text!r}"
        )
    return knob.strip().replace("-", "_"), numbers


def _around(batch_size: float, examples: int) -> list[float]:
    """Return batch sizes from an eighth to the eightfold, as far as there are examples."""
    sizes = {round(batch_size * 2.0**power) for power in _POWERS}
    return [float(size) for size in sorted(sizes) if 1 <= size <= examples]


def _print_plan(swept: "SweptPlan", plan: "Plan", *, as_json: bool) -> None:
    if as_json:
        noise = {"noise_per_step": swept.noise_per_step, "noise_of_run": swept.noise_of_run}
        print_json({**plan.to_dict(), **noise, "notes": list(plan.notes)})
        return
    print_rows(
        [
            ("sigma", f"{_range(plan.noise_range)} {_what_noise(plan)}"),
            ("steps", f"{plan.steps} ({plan.epochs:.4g} epochs)"),
            ("batch size", _batches(plan)),
            ("noise per step", f"{swept.noise_per_step:.4g} of the clipping norm"),
            ("noise of the run", f"{swept.noise_of_run:.4g} of it, for the mean over all steps"),
            ("epsilon", f"{round_up(plan.epsilon, 6)} (certified upper bound)"),
            ("delta", repr(plan.delta)),
            ("adjacency", str(plan.adjacency)),
            ("sampler", plan.sampling.name),
            *(("note", note) for note in plan.notes),
        ]
    )


def _what_noise(plan: "Plan") -> str:
    if plan.encoder is None:
        return "(noise multiplier)"
    return f"(independent noise, correlated by {type(plan.encoder).__name__})"


def _range(values: tuple[float, float]) -> str:
    """Return one number, or two if they differ, rounded up."""
    least, most = (round_up(value, 6) for value in values)
    return least if least == most else f"{least} to {most}, by the schedule"


def _batches(plan: "Plan") -> str:
    if plan.rate_schedule is None:
        return f"{plan.batch_size:g} expected, rate {plan.rate:.6g}"
    least, most = (rate * plan.examples for rate in plan.rate_range)
    return f"{least:g} to {most:g} expected, {plan.batch_size:.6g} on average"


def _print_sweep(sweep: "PlanSweep", *, as_json: bool) -> None:
    if as_json:
        print_json(sweep.to_dict())
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    columns = ("sigma", "steps", "noise per step", "noise of the run")
    for column in (sweep.knob.replace("_", " "), *columns):
        table.add_column(column, justify="right", no_wrap=True)
    reasons = []
    for swept in sweep.plans:
        if swept.plan is None:
            table.add_row(f"{swept.value:g}", *("-" for _ in columns))
            reasons.append(f"{sweep.knob}={swept.value:g}: {swept.reason}")
            continue
        table.add_row(
            f"{swept.value:g}",
            round_up(swept.plan.noise_multiplier, 6),
            str(swept.plan.steps),
            f"{swept.noise_per_step:.4g}",
            f"{swept.noise_of_run:.4g}",
        )
    console = Console(highlight=False, markup=False, emoji=False)
    console.print(table)
    for reason in reasons:
        console.print(reason)
