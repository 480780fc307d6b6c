"""The test that examples are kept apart: other company, another size, the same gradients."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from taut.errors import UnsoundConfiguration
from taut.training._gradients.dropout import without_dropout
from taut.training._gradients.isolation.circumstances import (
    Circumstance,
    Counts,
    circumstances,
    unchanged,
)
from taut.training._gradients.isolation.company import (
    COMPANIES,
    COPIES,
    LOUD,
    PLAIN,
    Company,
    Everyone,
    everyone,
    half_of,
    is_other,
    rows_of,
    some_of,
)
from taut.training._gradients.isolation.draws import ConstantDraws, Draws
from taut.training._gradients.isolation.precision import doubled, in_double, nudged
from taut.training._gradients.isolation.sketch import Sketch
from taut.training._tensors.examples import copied

__all__ = ["Extent", "Isolation", "Mixes", "Run"]

Run: TypeAlias = Callable[[Any, Any], Sketch]
"""Takes inputs and targets of a batch through the model, forth and back."""

_ROUNDING = 2.0**-25
"""The most that rounding in double precision changes of a gradient, relative to it.

A model that can be trained in single precision at all magnifies roundings by less than 2^24, or
nothing of its gradients would be left; in double precision that is 2^24 times 2^-53, of which there
are several in a sum: 16 times as much is allowed. What a leak below it adds up to over a batch of n
examples is 2n times it, less than a thousandth of the clipping norm up to 16 000 examples.
"""

_NUDGE = 2.0**-48
"""A relative change of weights as large as that of some roundings in double precision.

It is 2^-23 of the most that roundings may change: what magnifies it by more than that magnifies
them by more than single precision bears.
"""

_OF_SIZE = 2.5e-4
"""The most that a gradient may change with the number of examples, relative to it.

A gradient that follows the size n of the batch smoothly moves by at most twice this over all n as n
goes to another size; one example more moves each of n gradients by the n-th part. The sum moves by
less than a thousandth of the clipping norm.
"""

_OF_LOOP = 1e-3  # relative: a second way for gradients adds as much as its loss is worth
_FEW = 3  # examples that are run by themselves
_MANY = 2**24
"""Parameters from which on a pass takes so long that the first batch is exchanged once, with all
companies at the same time; what else there is to try is left to the steps that follow."""


_PARTY, _SMALL_PARTY = 8, 4
"""Examples of a batch that are tested in many companies: enough for halves that can be mixed in
dozens of ways, and few beside the batches of most runs; those of a model with many parameters."""

_SOURCE = secrets.SystemRandom()
_any = _SOURCE.choice

Extent: TypeAlias = Literal["whole", "half", "few"]
"""How much of a batch is tested."""


@dataclass(frozen=True)
class _Batch:
    """Inputs and targets of so many examples."""

    inputs: Any
    targets: Any
    size: int

    def among(self, company: Company | Everyone, stays: Tensor) -> _Batch:
        """Return the examples that stay among others; their targets are as large as before."""
        inputs, targets = (
            company.of(self.inputs, stays),
            company.of(self.targets, stays, scaled=False),
        )
        return _Batch(inputs, targets, self.size)

    def rows(self, places: Tensor) -> _Batch:
        """Return some of the examples."""
        inputs, targets = (rows_of(x, places, self.size) for x in (self.inputs, self.targets))
        return _Batch(inputs, targets, len(places))


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
        is_apart: whether the model sees one example at a time, so that all that can be found is
            what it remembers.
        alone: sketch of the last examples of the batch by themselves, if there is one already.
    """

    model: nn.Module
    names: Mapping[Tensor, str]
    run: Run
    by_loop: bool = False
    is_apart: bool = False
    alone: Sketch | None = None

    def check(
        self,
        inputs: Any,
        targets: Any,
        found: Sketch,
        draws: Draws,
        counts: Counts,
        how: Extent,
    ) -> bool:
        """Exchange examples of a batch, and demand that the others keep their gradients.

        Args:
            inputs: inputs of a batch that was run,
            targets: targets of the batch.
            found: what that pass left.
            draws: what it drew from, and
            counts: numbers of the modules, both from before it.
            how: "whole" exchanges one half of the examples after the other, compares with a
                smaller batch, and has a few examples in every company under all circumstances;
                "half" exchanges one half, drawn at random, and "few" has a few examples in one
                company, both of which are drawn too.

        Returns:
            whether there was something to exchange: examples that are all alike show nothing.

        Raises:
            Mixes: naming the parameter at which a gradient has changed.
        """
        now = Counts(self.model)
        given = _Batch(inputs, targets, len(next(iter(found.values.values()))))
        try:
            if how == "half" or (how == "few" and self.is_apart):
                return self._exchange(given, found, draws, half_of(given.size), _any(COMPANIES))
            under = circumstances(self.model, draws, counts)
            if how == "few":
                one = unchanged if _SOURCE.random() < 0.5 else _any(under)
                return self._party(given, draws, one, [_any(COMPANIES)])
            return self._whole(given, found, draws, under)
        finally:
            now.restore()

    @property
    def _is_large(self) -> bool:
        return sum(p.numel() for p in self.model.parameters()) > _MANY

    def _whole(
        self, given: _Batch, found: Sketch, draws: Draws, under: Sequence[Circumstance]
    ) -> bool:
        stays = half_of(given.size)
        if self._is_large:
            tested = [self._exchange(given, found, draws, stays, everyone())]
            self._shrink(given, found, draws)
            return all(tested)
        tested = [
            self._exchange(given, found, draws, stays, PLAIN),
            self._exchange(given, found, draws, ~stays, LOUD),
        ]
        self._shrink(given, found, draws)
        if not self.is_apart:
            self._party(given, draws, unchanged, COMPANIES[1:])
            for circumstance in under:
                self._party(given, draws, circumstance, [PLAIN])
        return all(tested)

    def _party(
        self,
        given: _Batch,
        draws: Draws,
        circumstance: Circumstance,
        companies: Sequence[Company],
    ) -> bool:
        """Have a few examples in several companies, half of them drawn anew for each."""
        most = _SMALL_PARTY if self._is_large else _PARTY
        few = given.rows(some_of(given.size, min(most, given.size)))
        try:
            found = self._again(few.inputs, few.targets, draws, circumstance)
        except Exception:  # a model that cannot be called so shows nothing
            if circumstance is unchanged:
                raise
            return False
        tested = [
            self._exchange(few, found, draws, half_of(few.size), company, circumstance)
            for company in companies
        ]
        return all(tested)

    def _exchange(
        self,
        batch: _Batch,
        found: Sketch,
        draws: Draws,
        stays: Tensor,
        company: Company | Everyone,
        circumstance: Circumstance = unchanged,
    ) -> bool:
        kept = stays.nonzero()[:, 0]
        given = batch.among(company, stays)
        if not is_other((batch.inputs, batch.targets), (given.inputs, given.targets)):
            return False
        try:
            other = self._again(given.inputs, given.targets, draws, circumstance)
        except UnsoundConfiguration:
            raise
        except Exception:  # values that the model or the loss does not take
            company = COPIES
            given = batch.among(company, stays)
            other = self._again(given.inputs, given.targets, draws, circumstance)
        place = found.differing(other, kept, kept)
        if place is None:
            return True
        if self.by_loop and circumstance is unchanged:
            self._check_loop(batch, found, draws)
        # Not the same bits: rounding, or a leak? Rounding is less in double precision.
        try:
            with in_double(self.model):
                wide = _Batch(doubled(batch.inputs), doubled(batch.targets), batch.size)
                given = wide.among(company, stays)
                one = self._again(wide.inputs, wide.targets, draws, circumstance)
                two = self._again(given.inputs, given.targets, draws, circumstance)
        except (RuntimeError, TypeError):  # a model that has a type of its own
            raise self._mixes(place) from None
        distance, where = one.distance(two, kept, kept)
        if distance <= _ROUNDING:
            return True
        if circumstance is not unchanged and self._is_unsteady(wide, one, draws, circumstance):
            return False
        raise self._mixes(where)

    def _is_unsteady(
        self, wide: _Batch, found: Sketch, draws: Draws, circumstance: Circumstance
    ) -> bool:
        """Return whether roundings alone, under a circumstance, change gradients by so much.

        Nobody trains a model as it is then: with experts that are chosen by saturated scores, say,
        which change with the last bit.
        """
        with in_double(self.model), nudged(self.model, _NUDGE):
            again = self._again(wide.inputs, wide.targets, draws, circumstance)
        places = torch.arange(wide.size)
        return not found.distance(again, places, places)[0] <= _ROUNDING

    def _check_loop(self, batch: _Batch, found: Sketch, draws: Draws) -> None:
        """Refuse a loop whose gradients are not those of the loss of single examples."""
        own = self._again(batch.inputs, batch.targets, draws)
        places = torch.arange(batch.size)
        distance, where = found.distance(own, places, places)
        if not distance <= _OF_LOOP:
            raise UnsoundConfiguration(
                "gradients of this loop got into the model by another way than through the outputs "
                f"of its call: those at parameter {self.names[where]!r} are not what the outputs "
                "explain. Return what the loss needs from the module, call it once for each batch, "
                "and draw from torch, numpy or random alone"
            )

    def _shrink(self, given: _Batch, found: Sketch, draws: Draws) -> None:
        """Run the last few examples by themselves."""
        inputs, targets, batch = given.inputs, given.targets, given.size
        if self.alone is not None:
            own = torch.arange(next(len(rows) for rows in self.alone.values.values()))
            if found.distance(self.alone, own + (batch - len(own)), own)[0] <= _OF_SIZE:
                return
        few = min(_FEW, batch - 1)
        places = torch.arange(batch - few, batch)
        own = torch.arange(few)
        part = rows_of(inputs, places, batch), rows_of(targets, places, batch)
        alone = self._again(*part, draws)
        if found.distance(alone, places, own)[0] <= _OF_SIZE:
            return
        # Another size draws other numbers: with the same ones for all, what remains?
        with without_dropout(self.model), ConstantDraws():
            whole = self._again(inputs, targets, draws)
            alone = self._again(*part, draws)
        distance, where = whole.distance(alone, places, own)
        if distance <= _OF_SIZE:
            return
        try:
            with in_double(self.model), without_dropout(self.model), ConstantDraws():
                whole = self._again(doubled(inputs), doubled(targets), draws)
                alone = self._again(doubled(part[0]), doubled(part[1]), draws)
        except (RuntimeError, TypeError):
            raise self._mixes(where) from None
        distance, where = whole.distance(alone, places, own)
        if not distance <= _OF_SIZE:
            raise self._mixes(where)

    def _again(
        self,
        inputs: Any,
        targets: Any,
        draws: Draws,
        circumstance: Circumstance = unchanged,
    ) -> Sketch:
        with draws.again(), circumstance():
            return self.run(copied(inputs), targets)

    def _mixes(self, parameter: Tensor) -> Mixes:
        return Mixes(
            f"the gradient of an example at parameter {self.names[parameter]!r} depends on the "
            "other examples of the batch, on how many they are, or on what the model has seen "
            "before: one example would get into the gradients of several, and no noise is there "
            "for that. Remove what mixes examples in the forward pass or in the loss (statistics, "
            "scales and permutations over the batch), and draw from torch, numpy or random alone; "
            "or train with unchecked_isolation=True, which the statement repeats"
        )
