"""Arms: the ways to train that a comparison puts side by side. A new one is a class in here."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import TypeAlias

import numpy as np
from torch import Tensor
from torch.optim import SGD, Optimizer

from taut._base import validate
from taut._base.public_vectors import Rows
from taut._base.registry import Strategy
from taut.comparison._settings import Settings
from taut.training import (
    FlatClip,
    GroupClip,
    HybridClip,
    L2LInfClip,
    ModelMix,
    NormalisedClip,
    Plan,
    TwiceSampling,
)

__all__ = [
    "USUAL",
    "Arm",
    "ArmSkipped",
    "Group",
    "Hybrid",
    "MakeOptimizer",
    "Mix",
    "Normalised",
    "Plain",
    "arms_of",
]

MakeOptimizer: TypeAlias = Callable[[list[Tensor], float], Optimizer]
"""From parameters and a learning rate to an optimizer."""


class ArmSkipped(ValueError):
    """An arm cannot take part; the message says why."""


class Arm(Strategy):
    """One way to train at given settings: a frozen value with a name and a plan.

    **Guarantee**: `plan` promises the epsilon and delta of the settings and computes as many
    gradients as every other arm; what it makes of public gradients costs nothing.
    """

    @property
    def label(self) -> str:
        """The name, with whatever differs from the usual choices."""
        changed = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)  # type: ignore[arg-type]
            if field.default is MISSING or getattr(self, field.name) != field.default
        ]
        return f"{self.name}({', '.join(changed)})" if changed else self.name

    @abstractmethod
    def plan(self, settings: Settings, sizes: Mapping[str, int], public: Rows | None) -> Plan:
        """Return how this arm trains.

        Args:
            settings: what is equal for all arms.
            sizes: the number of entries of every trainable parameter, by name.
            public: gradients of public examples at the model's first weights, one per row.

        Raises:
            ArmSkipped: if the arm needs what is not there.
        """

    def optimizer(self, make: MakeOptimizer) -> MakeOptimizer:
        """Return what makes the optimizer of this arm, given that of the comparison."""
        return make

    def notes(self, plan: Plan) -> tuple[str, ...]:
        """Return what must be said beside the results of this arm."""
        return ()


@dataclass(frozen=True)
class Plain(Arm):
    """DP-SGD: the whole gradient clipped to one norm, the same noise everywhere.

    Example:
        >>> from taut.comparison import Settings
        >>> from taut.comparison.arms import Plain
        >>> settings = Settings(
        ...     examples=5_000, batch_size=250, gradients=50_000, epsilon=3, delta=1e-5
        ... )
        >>> plan = Plain().plan(settings, {"weight": 20}, None)
        >>> plan.steps, plan.loss.epsilon(1e-5) <= 3
        (200, True)
    """

    name = "plain"

    def plan(self, settings: Settings, sizes: Mapping[str, int], public: Rows | None) -> Plan:
        return settings.plan(FlatClip(settings.norm))


@dataclass(frozen=True)
class Group(Arm):
    """Every layer clipped to an equal share of the norm, with the least total noise for that."""

    name = "group"

    def plan(self, settings: Settings, sizes: Mapping[str, int], public: Rows | None) -> Plan:
        clipping = GroupClip(settings.norm)
        if not any(clipping.groups(list(sizes))):
            raise ArmSkipped("the model is one group, which is clipped as plain clips it")
        return settings.plan(clipping)


@dataclass(frozen=True)
class Normalised(Arm):
    """Every gradient scaled to nearly the norm: "automatic clipping".

    Args:
        stability: keeps gradients of examples that are already learnt short.
    """

    name = "normalised"

    stability: float = 0.01

    def plan(self, settings: Settings, sizes: Mapping[str, int], public: Rows | None) -> Plan:
        return settings.plan(NormalisedClip(settings.norm, self.stability))


@dataclass(frozen=True)
class Hybrid(Arm):
    """Gradients clipped inside and outside of a subspace of public gradients.

    Args:
        rank: the dimension of the subspace; where public gradients have fewer directions, half
            of theirs.

    The norm is split in proportion to the mean length of public gradients in both parts.
    """

    name = "hybrid"

    rank: int = 50

    def __post_init__(self) -> None:
        validate.positive_integer(rank=self.rank)

    def plan(self, settings: Settings, sizes: Mapping[str, int], public: Rows | None) -> Plan:
        if public is None:
            raise ArmSkipped("needs public examples, and none were given")
        # Every other public gradient finds directions, and all of these must have some.
        rank = min(self.rank, _directions(public) // 2, _directions(public[::2]))
        if rank < 1:
            raise ArmSkipped("public gradients span less than two dimensions")
        clipping = HybridClip.from_public(public, [rank], settings.norm, provenance="public")
        return settings.plan(clipping)


@dataclass(frozen=True)
class Mix(Arm):
    """ModelMix: the last two released states mixed at random, with less Gaussian noise for it.

    Args:
        width: width of the uniform noise, in units of the noise that `plain` has.

    Its privacy allows no hidden state of an optimizer: it takes plain SGD, at the learning rate
    over 1 - momentum, which is where momentum would have gone in the long run.
    """

    name = "mix"

    width: float = 2.0

    def __post_init__(self) -> None:
        validate.positive(width=self.width)

    def plan(self, settings: Settings, sizes: Mapping[str, int], public: Rows | None) -> Plan:
        clipping = FlatClip(settings.norm)
        plain = settings.plan(clipping).noise_multiplier
        return settings.plan(clipping, mixing=ModelMix(width=self.width * plain))

    def optimizer(self, make: MakeOptimizer) -> MakeOptimizer:
        def plain_sgd(parameters: list[Tensor], learning_rate: float) -> Optimizer:
            momentum = make(parameters, learning_rate).defaults.get("momentum", 0.0)
            return SGD(parameters, lr=learning_rate / (1 - momentum))

        return plain_sgd

    def notes(self, plan: Plan) -> tuple[str, ...]:
        return plan.mixing_notes(plan.steps)


@dataclass(frozen=True)
class Twice(Arm):
    """Twice sampling: of every clipped gradient a random part of the coordinates.

    Args:
        coordinate_rate: the probability of a coordinate.
        spread: over how many coordinates a gradient of full length reaches at least.

    It computes the gradients of `plain`, and uses a part of each: the notes say what plain
    sampling promises for the same noise.
    """

    name = "twice"

    coordinate_rate: float = 0.5
    spread: float = 100.0

    def plan(self, settings: Settings, sizes: Mapping[str, int], public: Rows | None) -> Plan:
        if sum(sizes.values()) < self.spread:
            raise ArmSkipped(f"gradients cannot reach over {self.spread:g} coordinates")
        clipping = L2LInfClip.spread_over(settings.norm, spread=self.spread)
        sampling = TwiceSampling(coordinate_rate=self.coordinate_rate, spread=self.spread)
        return settings.plan(clipping, sampling=sampling)

    def notes(self, plan: Plan) -> tuple[str, ...]:
        said = plan.sampling.comparison(
            plan.noise_multiplier, plan.examples, plan.steps, plan.delta
        )
        return (said,) if said else ()


USUAL: tuple[Arm, ...] = (Plain(), Group(), Normalised(), Hybrid(), Mix(), Twice())
"""What is compared unless something else is asked for."""


def _directions(rows: Rows) -> int:
    """Return how many directions the rows have, counted where squares still show them."""
    table = rows.astype(np.float64)
    gram = table @ table.T if len(table) <= table.shape[1] else table.T @ table
    spectrum = np.linalg.eigvalsh(gram)
    return int((spectrum > 1e-10 * spectrum[-1]).sum())


def arms_of(given: Sequence[str | Arm] | None) -> tuple[Arm, ...]:
    """Return arms, with the usual choices for those that are only named; `USUAL` for None.

    Raises:
        ValueError: for unknown names, for none, and for one arm that is named twice.
    """
    if given is None:
        given = USUAL
    if isinstance(given, str) or not given:
        raise ValueError(f"arms must be a list of names or arms, got arms={given!r}")
    found = tuple(_arm(one) for one in given)
    labels = [arm.label for arm in found]
    for label in labels:
        if labels.count(label) > 1:
            raise ValueError(f"arms must differ, got {label!r} twice")
    return found


def _arm(given: str | Arm) -> Arm:
    if isinstance(given, Arm):
        return given
    return Arm.from_dict({"name": given})
