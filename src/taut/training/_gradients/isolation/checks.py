"""The test that examples are kept apart: other company, another size, the same gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from taut.errors import UnsoundConfiguration
from taut.training._gradients.dropout import without_dropout
from taut.training._gradients.isolation.company import exchanged, half_of, is_other, rows_of
from taut.training._gradients.isolation.draws import ConstantDraws, Draws
from taut.training._gradients.isolation.precision import doubled, in_double
from taut.training._gradients.isolation.sketch import Sketch

__all__ = ["Isolation", "Mixes", "Run"]

Run: TypeAlias = Callable[[Any, Any], Sketch]
"""Takes inputs and targets of a batch through the model, forth and back."""

_ROUNDING = 2.0**-25
"""The most that rounding in double precision changes of a gradient, relative to it.

A model that can be trained in single precision at all magnifies roundings by less than 2^24, or
nothing of its gradients would be left; in double precision that is 2^24 times 2^-53, of which there
are several in a sum: 16 times as much is allowed. What a leak below it adds up to over a batch of n
examples is 2n times it, less than a thousandth of the clipping norm up to 16 000 examples.
"""

_OF_SIZE = 2.5e-4
"""The most that a gradient may change with the number of examples, relative to it.

A gradient that follows the size n of the batch smoothly moves by at most twice this over all n as n
goes to another size; one example more moves each of n gradients by the n-th part. The sum moves by
less than a thousandth of the clipping norm.
"""

_OF_LOOP = 1e-3  # relative: a second way for gradients adds as much as its loss is worth
_FEW = 3  # examples that are run by themselves
_MANY = 2**24  # parameters: from here on a pass takes so long that one half is left to later steps


class Mixes(UnsoundConfiguration):
    """The gradient of an example depends on the company that it is in."""


@dataclass(frozen=True)
class Isolation:
    """Compares gradients of one batch in different company.

    Args:
        model: what is trained.
        names: names of its trainable parameters.
        run: takes a batch through the model.
        by_loop: whether the pass that is compared was run by a user's loop.
    """

    model: nn.Module
    names: Mapping[Tensor, str]
    run: Run
    by_loop: bool = False

    def check(self, inputs: Any, targets: Any, found: Sketch, draws: Draws, *, whole: bool) -> bool:
        """Exchange examples of a batch, and demand that the others keep their gradients.

        Args:
            inputs: inputs of a batch that was run,
            targets: targets of the batch.
            found: what that pass left.
            draws: what it drew from.
            whole: exchange one half of the examples after the other, and compare with a smaller
                batch; otherwise one half, drawn at random.

        Returns:
            whether there was something to exchange: examples that are all alike show nothing.

        Raises:
            Mixes: naming the parameter at which a gradient has changed.
        """
        batch = len(next(iter(found.values.values())))
        stays = half_of(batch)
        heavy = sum(p.numel() for p in self.model.parameters()) > _MANY
        halves = [stays, ~stays] if whole and not heavy else [stays]
        tested = [self._exchange(inputs, targets, found, draws, half) for half in halves]
        if whole:
            self._shrink(inputs, targets, found, draws, batch)
        return all(tested)

    def _exchange(
        self, inputs: Any, targets: Any, found: Sketch, draws: Draws, stays: Tensor
    ) -> bool:
        kept = stays.nonzero()[:, 0]
        wanted = exchanged(targets, stays, scaled=False)
        given = exchanged(inputs, stays, scaled=True)
        if not is_other((inputs, targets), (given, wanted)):
            return False
        try:
            other = self._again(given, wanted, draws)
        except UnsoundConfiguration:
            raise
        except Exception:  # values that the model or the loss does not take
            given = exchanged(inputs, stays, scaled=False)
            other = self._again(given, wanted, draws)
        place = found.differing(other, kept, kept)
        if place is None:
            return True
        if self.by_loop:
            self._check_loop(inputs, targets, found, draws)
        # Not the same bits: rounding, or a leak? Rounding is less in double precision.
        try:
            with in_double(self.model):
                one = self._again(doubled(inputs), doubled(targets), draws)
                two = self._again(doubled(given), doubled(wanted), draws)
        except (RuntimeError, TypeError):  # a model that has a type of its own
            raise self._mixes(place) from None
        distance, where = one.distance(two, kept, kept)
        if not distance <= _ROUNDING:
            raise self._mixes(where)
        return True

    def _check_loop(self, inputs: Any, targets: Any, found: Sketch, draws: Draws) -> None:
        """Refuse a loop whose gradients are not those of the loss of single examples."""
        own = self._again(inputs, targets, draws)
        places = torch.arange(len(next(iter(found.values.values()))))
        distance, where = found.distance(own, places, places)
        if not distance <= _OF_LOOP:
            raise UnsoundConfiguration(
                "gradients of this loop got into the model by another way than through the outputs "
                f"of its call: those at parameter {self.names[where]!r} are not what the outputs "
                "explain. Return what the loss needs from the module, call it once for each batch, "
                "and draw from torch, numpy or random alone"
            )

    def _shrink(self, inputs: Any, targets: Any, found: Sketch, draws: Draws, batch: int) -> None:
        """Run the last few examples by themselves."""
        few = min(_FEW, batch - 1)
        places = torch.arange(batch - few, batch)
        own = torch.arange(few)
        part = rows_of(inputs, places, batch), rows_of(targets, places, batch)
        alone = self._again(*part, draws)
        if found.distance(alone, places, own)[0] <= _OF_SIZE:
            return
        # Another size draws other numbers: with the same ones for all, what remains?
        with without_dropout(self.model), ConstantDraws():  # type: ignore[no-untyped-call]
            whole = self._again(inputs, targets, draws)
            alone = self._again(*part, draws)
        distance, where = whole.distance(alone, places, own)
        if distance <= _OF_SIZE:
            return
        try:
            with in_double(self.model), without_dropout(self.model), ConstantDraws():  # type: ignore[no-untyped-call]
                whole = self._again(doubled(inputs), doubled(targets), draws)
                alone = self._again(doubled(part[0]), doubled(part[1]), draws)
        except (RuntimeError, TypeError):
            raise self._mixes(where) from None
        distance, where = whole.distance(alone, places, own)
        if not distance <= _OF_SIZE:
            raise self._mixes(where)

    def _again(self, inputs: Any, targets: Any, draws: Draws) -> Sketch:
        with draws.again():
            return self.run(inputs, targets)

    def _mixes(self, parameter: Tensor) -> Mixes:
        return Mixes(
            f"the gradient of an example at parameter {self.names[parameter]!r} depends on the "
            "other examples of the batch, on how many they are, or on what the model has seen "
            "before: one example would get into the gradients of several, and no noise is there "
            "for that. Remove what mixes examples in the forward pass or in the loss (statistics, "
            "scales and permutations over the batch), and draw from torch, numpy or random alone; "
            "or train with unchecked_isolation=True, which the statement repeats"
        )
