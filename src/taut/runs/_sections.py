"""The sections of a run's configuration."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from taut._base import validate
from taut._base.run_names import checked_names
from taut._base.spelling import did_you_mean
from taut.errors import TautError
from taut.runs._tables import check_key
from taut.training import ModelMix, Plan
from taut.training.extend import Clipping, Sampling, Schedule

__all__ = ["DataSection", "ModelSection", "PlanSection", "RunSection", "TrainingSection"]


@dataclass(frozen=True, kw_only=True)
class DataSection:
    """Where examples come from.

    Attributes:
        path: a file of NumPy arrays (`numpy.savez`) named x_train (or x), y_train (or y) and, for
            examples to evaluate on, x_test, y_test.
        validation: another file, of arrays x_validation and y_validation, whose examples are
            evaluated on in the place of x_test, y_test, which are then left alone.
        builtin: name of a dataset that comes with a package: "digits" of scikit-learn.
        scale: multiplies inputs; a number that was not computed from them.
        shape: shape of one input, if it is not that of the file.
    """

    path: str | None = None
    validation: str | None = None
    builtin: str | None = field(default=None, metadata={"choices": ("digits",)})
    scale: float | None = None
    shape: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if (self.path is None) == (self.builtin is None):
            raise ValueError("needs either path = '....npz' or builtin = 'digits'")
        if self.scale is not None:
            validate.positive(scale=self.scale)
        for size in self.shape or ():
            validate.positive_integer(shape=size)


@dataclass(frozen=True)
class ModelSection:
    """What is trained.

    Attributes:
        name: a model of `taut.training.models`, or "package.module:factory".
        arguments: arguments of the model or the factory: all other keys of the section.
    """

    name: str
    arguments: Mapping[str, Any]

    @classmethod
    def of(cls, table: object, where: str) -> ModelSection:
        """Return the section that a table holds."""
        if not isinstance(table, Mapping):
            raise ValueError(f"{where} must be a table, got {table!r}")
        name = table.get("name")
        if not isinstance(name, str) or not name:
            raise ValueError(f"{where} needs name = 'mlp' or name = 'package.module:factory'")
        return cls(name, {key: value for key, value in table.items() if key != "name"})


@dataclass(frozen=True, kw_only=True)
class PlanSection:
    """What decides about privacy: the arguments of `taut.training.Plan`.

    Attributes:
        batch_size: expected; or `rate`. If it changes, a list: one for every step, or pairs of a
            number of steps and the size that they have.
        rate: a share of all examples, or a list of such.
        epochs: number of passes over the data (or give `steps`).
        steps: the number of updates.
        epsilon: give two of `epsilon`, `delta` and `noise_multiplier`.
        delta: see above.
        noise_multiplier: see above; a list if it changes.
        noise_schedule: list of factors by which noise changes, likewise.
        max_noise_multiplier: more noise is no use.
        clipping: a table with a name and the arguments of that strategy.
        sampling: a name, or a table as for clipping; "best" for the cheaper of poisson and
            allocation. By default poisson, or the sampling that `noise` asks for.
        noise: name of noise that is correlated over steps, or "best"; independent by default.
        mixing: a table as for clipping, with the name "model_mix"; none by default.
    """

    batch_size: int | list[Any] | None = None
    rate: float | list[Any] | None = None
    epochs: float | None = None
    steps: int | None = None
    epsilon: float | None = None
    delta: float | None = None
    noise_multiplier: float | list[Any] | None = None
    noise_schedule: list[Any] | None = None
    max_noise_multiplier: float | None = None
    clipping: dict[str, Any] = field(default_factory=lambda: {"name": "flat", "norm": 1.0})
    sampling: str | dict[str, Any] | None = None
    noise: str | None = field(
        default=None,
        metadata={"choices": ("independent", "banded", "blt", "inverse", "tree", "best")},
    )
    mixing: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.sampling is None and self.noise in (None, "independent"):
            object.__setattr__(self, "sampling", "poisson")
        for name in ("batch_size", "rate", "noise_multiplier", "noise_schedule"):
            if isinstance(getattr(self, name), list):
                Schedule.of(getattr(self, name), name)
        self.strategies()

    def strategies(self) -> dict[str, Any]:
        """Return clipping, sampling, noise over steps and mixing.

        Raises:
            ValueError: for an unknown name or argument.
        """
        sampling: Any = self.sampling
        if sampling not in (None, "best"):
            named = {"name": sampling} if isinstance(sampling, str) else sampling
            sampling = _strategy(_members(Sampling), named, "sampling")
        return {
            "clipping": _strategy(_members(Clipping), self.clipping, "clipping"),
            "sampling": sampling,
            "noise": self.noise,
            "mixing": self.mixing and _strategy([ModelMix], self.mixing, "mixing"),
        }

    def plan(self, examples: int, noise_multiplier: float | None = None) -> Plan:
        """Return the plan for so many examples.

        Args:
            examples: how many there are.
            noise_multiplier: take this noise, the least of a step if it changes, instead of
                solving for it.

        Raises:
            ValueError: if too much or too little is given, or sizes do not fit.
            InfeasibleBudget: if no noise of use keeps the promise.
        """
        numbers = {
            name: getattr(self, name)
            for name in ("batch_size", "rate", "epochs", "steps", "epsilon", "delta")
        }
        noise: dict[str, Any] = {
            name: getattr(self, name) for name in ("noise_multiplier", "noise_schedule")
        }
        if noise_multiplier is not None:
            numbers["epsilon" if self.delta is not None else "delta"] = None
            unit = 1.0 if self._factors is None else self._factors.least
            noise = {"noise_multiplier": noise_multiplier / unit, "noise_schedule": self._factors}
        try:
            return Plan(
                examples=examples,
                max_noise_multiplier=self.max_noise_multiplier,
                **noise,
                **numbers,
                **self.strategies(),
            )
        except (TautError, ValueError) as error:
            raise type(error)(f"[plan] {error}") from None

    @property
    def _factors(self) -> Schedule | None:
        """The schedule of noise that is asked for, in any units."""
        changing = self.noise_schedule
        if isinstance(self.noise_multiplier, list):
            changing = self.noise_multiplier
        return None if changing is None else Schedule.of(changing, "noise_schedule")

    @property
    def _least_noise(self) -> float | None:
        """The noise that is asked for, the least of a step if it changes."""
        if self.noise_multiplier is None:
            return None
        if isinstance(self.noise_multiplier, list):
            return Schedule.of(self.noise_multiplier, "noise_multiplier").least
        return self.noise_multiplier * (1.0 if self._factors is None else self._factors.least)

    def check(self, plan: Plan) -> None:
        """Refuse the plan of a run that this section does not describe.

        Raises:
            ValueError: naming what differs.
        """
        # What is best was chosen for the promise, not for a given noise.
        chosen = self.noise == "best"
        same = self.plan(plan.examples, None if chosen else plan.noise_multiplier)
        given = {name: getattr(self, name) for name in ("epsilon", "delta")}
        given["noise_multiplier"] = self._least_noise
        wanted = {name: value for name, value in given.items() if value is not None}
        wanted |= {name: getattr(same, name) for name in ("steps", "batch_size")}
        differing = [
            f"{name} = {value:g} (the run has {getattr(plan, name):g})"
            for name, value in wanted.items()
            if not math.isclose(value, getattr(plan, name), rel_tol=1e-9)
        ]
        for name in ("clipping", "sampling", "mixing", "noise_schedule", "rate_schedule"):
            if getattr(same, name) != getattr(plan, name):
                differing.append(f"{name} = {getattr(same, name)!r}")
        if not same.has_noise_of(plan):
            differing.append(f"noise = {self.noise or 'independent'!r}")
        if differing:
            raise ValueError(
                f"[plan] is not that of the run: {', '.join(differing)}; the promise was fixed "
                "when the run began: undo the change, or begin another run in a new directory"
            )


@dataclass(frozen=True, kw_only=True)
class TrainingSection:
    """How steps are taken: nothing here changes the promise.

    Attributes:
        loss: "cross_entropy" for classes, "mse" for numbers, "binary" for logits of 0 or 1.
        optimizer: optimizer of `torch.optim`.
        learning_rate: at the beginning.
        momentum: momentum of "sgd".
        weight_decay: weight decay of the optimizer.
        schedule: how the learning rate falls to zero, if it does.
        ema: decay of a moving average of the weights, which is then what is saved.
        physical_batch_size: larger batches are computed in parts.
        workers: processes that fetch examples.
        device: where torch computes.
        seed: seed for experiments that can be repeated, and promise nothing.
    """

    loss: str = field(
        default="cross_entropy", metadata={"choices": ("cross_entropy", "mse", "binary")}
    )
    optimizer: str = field(default="sgd", metadata={"choices": ("sgd", "adam", "adamw", "rmsprop")})
    learning_rate: float = 0.1
    momentum: float | None = None
    weight_decay: float = 0.0
    schedule: str = field(
        default="constant", metadata={"choices": ("constant", "cosine", "linear")}
    )
    ema: float | None = None
    physical_batch_size: int | None = None
    workers: int = 0
    device: str | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        validate.positive(learning_rate=self.learning_rate)
        validate.non_negative(weight_decay=self.weight_decay)
        validate.integer(workers=self.workers)
        if self.momentum is not None:
            validate.below_one(momentum=self.momentum)
            if self.optimizer not in ("sgd", "rmsprop"):
                raise ValueError(
                    f"momentum is not an option of {self.optimizer}; leave it out, or write "
                    "optimizer = 'sgd'"
                )
        if self.ema is not None:
            validate.below_one(ema=self.ema)
        if self.physical_batch_size is not None:
            validate.positive_integer(physical_batch_size=self.physical_batch_size)
        if self.seed is not None:
            validate.integer(seed=self.seed)


@dataclass(frozen=True, kw_only=True)
class RunSection:
    """Where a run keeps its files, and whom the promise is about.

    Attributes:
        directory: directory of the run, made if it does not exist.
        checkpoint_seconds: how much time a crash may cost.
        unit: what one example stands for, such as "patient", for the report.
        code: the directory in which the module of "package.module:factory" is looked for; it must
            lie below the working directory, and the module must be allowed where the run is begun.
        title: title of the run, for its result and the report,
        owner: who answers for it,
        dataset: the name of the data; all three are published with the result.
    """

    directory: str
    checkpoint_seconds: float = 60.0
    unit: str = "example"
    code: str = "."
    title: str | None = None
    owner: str | None = None
    dataset: str | None = None

    @property
    def names(self) -> dict[str, str | None]:
        """How the owner calls the run and what it is about."""
        return {"title": self.title, "owner": self.owner, "dataset": self.dataset}

    def __post_init__(self) -> None:
        checked_names(self.names)
        validate.non_negative(checkpoint_seconds=self.checkpoint_seconds)
        if not self.directory:
            raise ValueError("directory must name a directory, got an empty string")


def _strategy(kinds: Iterable[type[Any]], table: Mapping[str, Any], where: str) -> Any:
    """Return the strategy that a table describes, of one of several kinds."""
    members = {member.name: member for member in kinds}
    values = dict(table)
    name = values.pop("name", None)
    if name not in members:
        raise ValueError(
            f"{where} needs a name among {', '.join(sorted(members))}, got {name!r}"
            f"{did_you_mean(name, members)}"
        )
    member = members[name]
    for key in values:
        check_key(key, inspect.signature(member).parameters, f"{where} {name!r}")
    try:
        return member(**values)
    except TypeError as error:
        raise ValueError(f"{where} {name!r}: {error}") from None
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _members(family: type[Any]) -> list[type[Any]]:
    """Return all strategies of a family, also those of other packages."""
    found: list[type[Any]] = []
    for member in family.__subclasses__():
        found += [member] if "name" in vars(member) else []
        found += _members(member)
    return found
