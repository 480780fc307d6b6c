"""The loader of a loop that exists: an optimizer hears of every batch before the loop does."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader

from taut._base import validate
from taut.noise import RandomSource
from taut.training._data.loader import MicroBatch, PrivateLoader
from taut.training._data.loader_batches import LoaderBatches
from taut.training._plan.plan import Plan
from taut.training._sampling.sampling import Sampling

if TYPE_CHECKING:
    from taut.training._run.private_optimizer import PrivateOptimizer

__all__ = ["FollowedLoader", "followed", "given_loader"]

_LOG = logging.getLogger(__name__)


class FollowedLoader(PrivateLoader):
    """Tells an optimizer about every batch before the loop gets it."""

    optimizer: PrivateOptimizer
    given: DataLoader[Any]
    """The loader of torch whose place this one takes."""

    def microbatches(self) -> Iterator[MicroBatch]:
        """Yield the physical batches of one pass that hold examples."""
        self.optimizer.begin_pass()
        for part in super().microbatches():
            self.optimizer.expect(part)
            if not part.is_empty:
                yield part


def given_loader(loader: DataLoader[Any] | PrivateLoader) -> DataLoader[Any]:
    """Return the loader of torch that batches are to be like.

    Raises:
        TypeError: for a private loader that no loader of torch was given for.
    """
    if not isinstance(loader, PrivateLoader):
        return loader
    if not isinstance(loader, FollowedLoader):
        size = round(loader.sampling.expected_batch_size(loader.examples))
        raise validate.WrongType(
            f"data_loader must be a DataLoader of torch, got {loader!r}, which belongs to another "
            f"plan; give DataLoader(loader.dataset, batch_size={size})"
        )
    _LOG.warning(
        "data_loader belongs to an earlier private run; a run of its own begins with the loader "
        "that was given there. Its get_epsilon counts its own steps: the losses of both runs add "
        "up for whoever sees both, or the better of them. One file as ledger= counts them together"
    )
    return loader.given


def followed(
    data_loader: DataLoader[Any],
    batches: LoaderBatches,
    drawn: Plan | Sampling,
    most: int | None,
    choices: RandomSource,
    unchecked: bool,
) -> FollowedLoader:
    """Return the loader that takes the place of one of torch.

    Args:
        data_loader: loader of the loop.
        batches: batches that take the place of its own.
        drawn: plan whose batches are drawn, or a sampling, in a loop without a planned end.
        most: number of examples that a physical batch has at most.
        choices: source of random choices.
        unchecked: flag, as `unchecked_isolation` of `make_private`.
    """
    loader = FollowedLoader.from_data_loader(
        data_loader,
        drawn,
        max_physical_batch_size=most,
        steps=batches.in_pass,
        generator=choices,
        unchecked_isolation=unchecked,
    )
    loader.given, size = data_loader, data_loader.batch_size
    _LOG.info("%r, in place of %d batches of %s examples", loader, len(data_loader), size)
    return loader
