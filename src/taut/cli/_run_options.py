"""The options that describe a run of noisy steps, or name a file with its privacy loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

import taut
from taut import _validate


class Sampler(StrEnum):
    """How each step chooses its records."""

    POISSON = "poisson"
    FIXED_SIZE = "fixed-size"
    NONE = "none"


SigmaOption = Annotated[
    float | None,
    typer.Option(help="Noise standard deviation in units of the clipping norm."),
]
StepsOption = Annotated[int | None, typer.Option(help="Number of steps.", show_default="1")]
SamplerOption = Annotated[
    Sampler | None,
    typer.Option(
        help="How a step chooses its records.", show_default="poisson with --rate, else none"
    ),
]
RateOption = Annotated[
    float | None, typer.Option(help="Poisson: probability that a step takes a record.")
]
BatchSizeOption = Annotated[int | None, typer.Option(help="Fixed-size: records in each batch.")]
PopulationOption = Annotated[
    int | None, typer.Option(help="Fixed-size: records that batches are drawn from.")
]
LossOption = Annotated[
    Path | None,
    typer.Option(
        help="Any privacy loss, as PrivacyLoss.to_json() wrote it, in place of a run.",
        metavar="FILE",
        exists=True,
        dir_okay=False,
    ),
]
DeltaOption = Annotated[float, typer.Option(help="Probability with which the promise may fail.")]
ToleranceOption = Annotated[float, typer.Option(help="Largest relative gap between the bounds.")]
AllowCodeOption = Annotated[
    str | None,
    typer.Option(
        help="Module below the working directory that a file may name, and whose code is then run.",
        metavar="MODULE",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, with all digits.")]


@dataclass(frozen=True)
class Run:
    """Equal Gaussian steps under one sampler; only the noise is left open."""

    step: Callable[[float], taut.PrivacyLoss]
    steps: int
    sampler: Mapping[str, str | float]

    def loss(self, sigma: float) -> taut.PrivacyLoss:
        """Return the add/remove privacy loss of all steps with noise `sigma`."""
        return self.steps * self.step(sigma)


def read_run(
    *,
    steps: int | None,
    sampler: Sampler | None,
    rate: float | None,
    batch_size: int | None,
    population: int | None,
) -> Run:
    """Turn the options of a run into one, refusing those that its sampler does not use.

    Raises:
        ValueError: if an option of the sampler is missing, or one of another sampler is given.
    """
    if sampler is None:
        sampler = Sampler.NONE if rate is None else Sampler.POISSON
    _check_sampler_options(
        sampler, {"--rate": rate, "--batch-size": batch_size, "--population": population}
    )
    steps = 1 if steps is None else _validate.integer(steps=steps)
    if sampler is Sampler.POISSON and rate is not None:
        return Run(
            lambda sigma: taut.gaussian(sigma).poisson(rate=rate),
            steps,
            {"name": sampler.value, "rate": rate},
        )
    if sampler is Sampler.FIXED_SIZE and batch_size is not None and population is not None:
        # Two batches of one size differ by an exchanged record, which moves a clipped sum by up to
        # twice the clipping norm.
        return Run(
            lambda sigma: taut.gaussian(sigma, sensitivity=2.0, adjacency="replace").fixed_size(
                batch_size=batch_size, population=population
            ),
            steps,
            {"name": sampler.value, "batch_size": batch_size, "population": population},
        )
    return Run(taut.gaussian, steps, {"name": sampler.value})


def read_loss(
    *,
    loss_file: Path | None,
    sigma: float | None,
    steps: int | None,
    sampler: Sampler | None,
    rate: float | None,
    batch_size: int | None,
    population: int | None,
) -> tuple[taut.PrivacyLoss, Mapping[str, str | float]]:
    """Return the loss asked about and its sampler, from a file or from the options of a run.

    Raises:
        ValueError: if neither or both are given, or if either is not valid.
    """
    run_options = {
        "--sigma": sigma,
        "--steps": steps,
        "--sampler": sampler,
        "--rate": rate,
        "--batch-size": batch_size,
        "--population": population,
    }
    if loss_file is not None:
        given = [name for name, value in run_options.items() if value is not None]
        if given:
            raise ValueError(f"--loss already holds the whole run; leave out {' and '.join(given)}")
        try:
            loss = taut.PrivacyLoss.from_json(loss_file.read_text())
            return loss, {"name": ", ".join(dict.fromkeys(str(p) for p, _ in loss.terms)) or "none"}
        except (ValueError, TypeError) as error:
            raise ValueError(f"{loss_file} holds no privacy loss: {error}") from error
    if sigma is None:
        raise ValueError("give the noise of the run with --sigma, or a file with --loss")
    run = read_run(
        steps=steps, sampler=sampler, rate=rate, batch_size=batch_size, population=population
    )
    return run.loss(sigma), run.sampler


def _check_sampler_options(sampler: Sampler, options: Mapping[str, float | None]) -> None:
    used = {
        Sampler.POISSON: {"--rate"},
        Sampler.FIXED_SIZE: {"--batch-size", "--population"},
        Sampler.NONE: set(),
    }[sampler]
    missing = [name for name, value in options.items() if name in used and value is None]
    if missing:
        raise ValueError(f"--sampler {sampler} needs {' and '.join(missing)}")
    extra = [name for name, value in options.items() if name not in used and value is not None]
    if extra:
        raise ValueError(
            f"the sampler {sampler} does not use {' and '.join(extra)}; "
            "leave that out, or choose another --sampler"
        )
