"""The options that describe a run of noisy steps, or name a file with its privacy loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

import taut
from taut._base.json_numbers import parsed_json
from taut.cli._page import Answer

if TYPE_CHECKING:
    from taut.accounting import GaussianRun

_SHUFFLED = (
    "no theorem says what shuffled batches cost less than one release an epoch: see taut samplers, "
    "or verify a claim about them with taut verify"
)


def complete_sampler(incomplete: str) -> list[str]:
    """Return the samplers that begin like what was typed."""
    known = ("poisson", "truncated_poisson", "allocation", "fixed_size", "none")
    return [name for name in known if name.startswith(incomplete)]


def existing_file(help: str) -> Any:  # noqa: A002
    """Return an option that names a file which is read."""
    return typer.Option(help=help, metavar="FILE", exists=True, dir_okay=False)


def left_out(help: str, meaning: str) -> Any:  # noqa: A002
    """Return an option that may be left out, and what is taken then."""
    return typer.Option(help=help, show_default=meaning)


SIGMA = ("--sigma", "--noise-multiplier")
"""One option, by the name of the accountant and by that of training."""
EXAMPLES = ("--examples", "--population", "-n")
SAMPLER = ("--sampler", "--sampling")

SigmaOption = Annotated[
    float | None,
    typer.Option(*SIGMA, help="Noise standard deviation in units of the clipping norm."),
]
StepsOption = Annotated[int | None, left_out("Number of steps.", "1")]
EpochsOption = Annotated[
    float | None, typer.Option(help="Passes over the data, instead of a number of steps.")
]
SamplerOption = Annotated[
    str | None,
    typer.Option(
        *SAMPLER,
        help="How a step chooses its records: poisson, truncated_poisson, allocation, fixed_size "
        "or none.",
        show_default="poisson if a rate or sizes are given, else none",
        autocompletion=complete_sampler,
    ),
]
RateOption = Annotated[
    float | None,
    typer.Option(help="Poisson, allocation: probability that a step takes a record."),
]
BatchSizeOption = Annotated[
    int | None, typer.Option(help="(Expected) number of records in a batch.")
]
ExamplesOption = Annotated[
    int | None, typer.Option(*EXAMPLES, help="Number of records that batches are drawn from.")
]
CapOption = Annotated[
    int | None,
    typer.Option(help="Truncated Poisson: most records of a batch; of more, a subset is kept."),
]
AdjacencyOption = Annotated[
    str | None,
    left_out(
        "Which datasets are neighbours: add_remove, replace or zero_out.",
        "replace for fixed_size, else add_remove",
    ),
]
LossOption = Annotated[
    Path | None,
    existing_file(
        "Any privacy loss, as PrivacyLoss.to_json() or --json wrote it, in place of a run."
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
TimeoutOption = Annotated[
    float, typer.Option(help="Seconds after which to give up: a hostile loss may take days.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, with all digits.")]


@dataclass(frozen=True)
class RunOptions:
    """What was said about a run on the command line; None where nothing was said."""

    rate: RateOption = None
    steps: StepsOption = None
    epochs: EpochsOption = None
    sampler: SamplerOption = None
    batch_size: BatchSizeOption = None
    examples: ExamplesOption = None
    cap: CapOption = None
    adjacency: AdjacencyOption = None

    @property
    def given(self) -> dict[str, Any]:
        """What was said, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def run(self) -> Run:
        """Return the run, refusing options that its sampler does not use.

        Raises:
            ValueError: if an option of the sampler is missing, or one of another sampler is given.
        """
        # SciPy comes with the accountant; options and their help do without.
        from taut.accounting import GaussianRun, Sampler

        given = self.given
        if self.sampler is not None:
            sampler = Sampler(self.sampler)
        else:
            sampler = Sampler.POISSON if {"rate", "batch_size"} & set(given) else Sampler.NONE
            sampler = Sampler.TRUNCATED_POISSON if self.cap is not None else sampler
        if sampler is Sampler.SHUFFLE:
            raise ValueError(_SHUFFLED)
        of = GaussianRun.of(
            sampler,
            steps=1 if self.steps is None and self.epochs is None else self.steps,
            epochs=self.epochs,
            rate=self.rate,
            batch_size=self.batch_size,
            examples=self.examples,
            cap=self.cap,
            named=_spelt,
        )
        relation = None if self.adjacency is None else taut.Adjacency(_relation(self.adjacency))
        shown: dict[str, str | float] = {"name": sampler.value}
        for name in ("rate", "batch_size", "examples", "cap"):
            shown |= {name: given[name]} if name in given else {}
        return Run(of, relation, shown)


@dataclass(frozen=True)
class _Noise:
    sigma: SigmaOption = None


@dataclass(frozen=True)
class LossOptions(RunOptions, _Noise):
    """What was said about a privacy loss: the noise and the options of a run, or a file."""

    loss: LossOption = None

    def read(self) -> tuple[taut.PrivacyLoss, Mapping[str, str | float] | None]:
        """Return the loss asked about and its sampler.

        Raises:
            ValueError: if neither a file nor a run is given, or both, or if either is not valid.
        """
        if self.loss is not None:
            extra = " and ".join(_spelt(name) for name in self.given if name != "loss")
            if extra:
                raise ValueError(f"--loss already holds the whole run; leave out {extra}")
            return _loss_in(self.loss)
        if self.sigma is None:
            raise ValueError("give the noise of the run with --sigma, or a file with --loss")
        run = self.run()
        return run.loss(self.sigma), run.sampler

    def answer(
        self, bounds: Callable[..., taut.Bounds], tolerance: float, **given: float
    ) -> Answer:
        """Return certified bounds on epsilon or delta where the other one is given.

        Args:
            bounds: method of a privacy loss that computes them.
            tolerance: largest relative gap between them.
            **given: the other one, by its name.
        """
        loss, sampler = self.read()
        return Answer(
            quantity=bounds.__name__.removesuffix("_bounds"),
            bounds=bounds(loss, *given.values(), tolerance=tolerance),
            tolerance=tolerance,
            given=given,
            loss=loss,
            sampler=sampler,
        )


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a run or a loss, by name, in place of `options`."""
    own = signature(command, eval_str=True)
    kind: type[RunOptions] = own.parameters["options"].annotation
    hints = get_type_hints(kind, include_extras=True)
    shared = [
        Parameter(one.name, Parameter.KEYWORD_ONLY, default=one.default, annotation=hints[one.name])
        for one in fields(kind)
    ]

    @wraps(command)
    def with_options(**given: Any) -> None:
        options = kind(**{one.name: given.pop(one.name) for one in shared})
        command(options=options, **given)

    parameters: list[Parameter] = []
    for parameter in own.parameters.values():
        parameters += shared if parameter.name == "options" else [parameter]
    with_options.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {one.name: one.annotation for one in parameters}
    return with_options


@dataclass(frozen=True)
class Run:
    """Equal Gaussian steps under one sampler; only the noise is left open."""

    of: GaussianRun
    adjacency: taut.Adjacency | None
    sampler: Mapping[str, str | float] = field(default_factory=dict)

    def loss(self, sigma: float) -> taut.PrivacyLoss:
        """Return the privacy loss of all steps with noise `sigma`."""
        return self.of.loss(sigma, self.adjacency)


def _loss_in(path: Path) -> tuple[taut.PrivacyLoss, Mapping[str, str | float] | None]:
    """Return the loss in a file, alone or beside what a command answered about it."""
    from taut.accounting import samplers_of

    try:
        data = parsed_json(path.read_text(encoding="utf-8"))
        if isinstance(data, dict) and isinstance(data.get("loss"), dict):
            data = data["loss"]
        loss = taut.PrivacyLoss.from_dict(data)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} holds no privacy loss: {error}") from error
    drawn = samplers_of(loss)
    return loss, {"name": " and ".join(drawn)} if drawn else None


def _relation(name: str) -> str:
    known = ("add_remove", "replace", "zero_out")
    word = name.strip().lower().replace("-", "_").replace("/", "_")
    if word not in known:
        raise ValueError(f"--adjacency must be one of {', '.join(known)}, got {name!r}")
    return word


def _spelt(name: str) -> str:
    return f"--{name.replace('_', '-')}"
