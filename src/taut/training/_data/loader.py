"""Loading: logical batches as the sampling draws them, in physical batches that fit into memory."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from itertools import count
from typing import Any, NamedTuple, Self

import numpy as np
from torch.utils.data import DataLoader, default_collate

from taut._base import validate
from taut.errors import BudgetExceeded, UnsoundConfiguration
from taut.noise import RandomSource, SeededForExperiments, default_generator
from taut.noise.recording import active
from taut.training._data.collation import check_collation
from taut.training._data.fetching import check_fetching, empty_batch, whole_tensors
from taut.training._data.loader_checks import check_replaceable, check_size, fitted, refuse_loader
from taut.training._data.owned_examples import OwnedExamples
from taut.training._gradients.own_rows import by_owner, without_owners
from taut.training._noise.generators import checked
from taut.training._noise.keyed_bits import KeyedBits, SessionKey, new_session_key
from taut.training._plan.plan import Plan
from taut.training._plan.schedule import Schedule
from taut.training._sampling.keyed import KeyedSampling
from taut.training._sampling.replayed import replayed
from taut.training._sampling.sampling import Indices, Sampling
from taut.training._tensors.examples import Collate, length
from taut.training._tensors.processes import Processes

__all__ = ["MicroBatch", "PrivateLoader", "check_sampler"]

_CHOOSES = ("batch_size", "shuffle", "sampler", "batch_sampler", "drop_last")
_WORKERS = (
    "worker_init_fn",
    "timeout",
    "multiprocessing_context",
    "prefetch_factor",
    "persistent_workers",
)
_FETCHES = (*_WORKERS, "pin_memory")


class MicroBatch(NamedTuple):
    """A physical batch: a part of what one step looks at.

    Attributes:
        data: what the collate function made of the examples; None if there are none.
        size: how many examples; how many owners, if a plan is about them, each with as many rows
            of data, owner after owner.
        step: the number of the logical batch, from zero, over all passes.
        is_last: whether the logical batch ends here, so that noise is due.
        place: the number of the step in its epoch, from zero, where an epoch is drawn at once; its
            number in the plan, where noise or batch sizes change; zero otherwise. A ledger is told
            of it.
    """

    data: Any
    size: int
    step: int
    is_last: bool
    place: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether the step looks at no example; it adds noise and updates all the same."""
        return self.size == 0


class _Batch(NamedTuple):
    """A logical batch that was drawn; `state` is the generator's before that, if it was afresh.

    Indices are places of examples, in a row for every owner if there are owners.
    """

    indices: Indices
    step: int
    place: int
    state: dict[str, Any] | None


class _Part(NamedTuple):
    """A part of a batch that was chosen, not yet fetched."""

    indices: Indices
    batch: _Batch
    is_last: bool


class PrivateLoader:
    """Iterates over a dataset in the batches that the accounting assumes.

    Args:
        dataset: anything with `__len__` and `__getitem__`.
        sampling: a plan, or a sampling with its parameter set.
        max_physical_batch_size: larger batches come in parts of at most this size.
        num_workers: processes that fetch examples; which ones is decided in this process.
        collate_fn: makes a batch of a list of examples, by default as torch does.
        owners: names of the examples' owners, in the order of the dataset, for a plan with
            `unit=Owners(...)`. Tensors of a batch are then of shape (owners, `examples_each`, ...):
            what is clipped along their first axis is all that a step looks at of one owner.
        steps: how many logical batches one pass has; by default those of an epoch, 1 / rate.
        generator: where choices come from, by default the secure generator.
        process_group: group of the processes that train together, by default all of them if
            torch.distributed is initialised. Each gets its share of every batch, in parts of its
            own number, and must have the same dataset.
        unchecked_isolation: do not test whether the collate function keeps examples apart.
        options: options of torch's `DataLoader`, as far as they concern fetching.

    `for batch in loader` yields collated batches as torch's loader does; `loader.current` describes
    the last one, and an empty logical batch comes as tensors without rows. `microbatches` yields
    both together. `len(loader)` is the number of logical batches in a pass. With a plan, the loader
    ends after the steps of the plan, in the middle of a pass if need be. A pass that was left early
    is followed by one that goes on with the next step: no example of an epoch that was drawn at
    once is left out or comes twice.

    Tensors (`TensorDataset`, also in a `Subset`) are indexed as a whole if there is neither a
    collate function nor a worker.

    **Guarantee**: the parts of one logical batch are disjoint and together exactly what `sampling`
    drew, so that its loss applies if noise is added once for each; with several processes, the
    parts of all of them. Sampled places and batch sizes are secrets: keep them out of logs that
    are published.

    Raises:
        UnsoundConfiguration: for a dataset that cannot be sampled, an option that would choose
            examples, or a dataset of another size than was accounted for.
        ValueError: for an empty dataset.

    Example:
        >>> import torch
        >>> from torch.utils.data import TensorDataset
        >>> from taut.training import PoissonSampling, PrivateLoader
        >>> data = TensorDataset(torch.arange(1_000.0))
        >>> loader = PrivateLoader(data, PoissonSampling(rate=0.1), max_physical_batch_size=32)
        >>> parts = list(loader.microbatches())
        >>> len(loader), sum(part.is_last for part in parts), max(part.size for part in parts) <= 32
        (10, 10, True)
    """

    def __init__(
        self,
        dataset: Any,
        sampling: Plan | Sampling,
        *,
        max_physical_batch_size: int | None = None,
        num_workers: int = 0,
        collate_fn: Collate | None = None,
        owners: Any = None,
        steps: int | None = None,
        generator: RandomSource | None = None,
        process_group: Any = None,
        unchecked_isolation: bool = False,
        **options: Any,
    ) -> None:
        self.dataset = dataset
        self.plan = sampling if isinstance(sampling, Plan) else None
        self.sampling = sampling.sampling if isinstance(sampling, Plan) else fitted(sampling)
        self.examples = length(dataset)
        unit = None if self.plan is None else self.plan.unit
        self.owned = OwnedExamples.of(unit, owners, self.examples)
        """Which examples belong to whom, if that matters; a secret."""
        if self.owned is not None:
            self.examples = self.owned.count  # what is drawn from
        if self.plan is not None:
            check_size(self.plan, self.examples)
        self.max_physical_batch_size = (
            None
            if max_physical_batch_size is None
            else validate.positive_integer(max_physical_batch_size=max_physical_batch_size)
        )
        if steps is None:
            steps = math.ceil(self.examples / self._expected * (1 - 1e-12))
        self._pass = validate.positive_integer(steps=steps)
        self.processes = Processes.current(process_group)
        drawn = repr(self.sampling), repr(self._rates), self.examples, self._pass
        self.processes.check_same("sampling", drawn)
        if self.owned is not None:
            self.owned.check_same(self.processes)
        source = default_generator() if generator is None else checked(generator)
        bits = self.processes.own if self.sampling.samples_apart else self.processes.common
        self.generator = bits(source)
        # Bits that all processes share must not be spent on what one of them looks at.
        self._own_bits = (
            self.generator if self.sampling.samples_apart else self.processes.own(source)
        )
        self.current: MicroBatch | None = None
        """What was yielded last."""
        self.steps_taken = 0
        """How many logical batches were handed out, over all passes."""
        self._pending: deque[_Part] = deque()
        self._batch_key: SessionKey | None = None
        self._draw_anew()
        self._collate = collate_fn
        self._tests_isolation = not unchecked_isolation
        self._empty: Any = None
        self._workers = validate.integer(num_workers=num_workers)
        self._check_options(options)
        at_once = self._workers == 0 and not options.get("pin_memory")
        self._tensors = whole_tensors(dataset, collate_fn) if at_once else None
        self._data_loader = DataLoader(
            dataset,
            batch_sampler=_Requests(self),
            collate_fn=collate_fn,
            num_workers=self._workers,
            **options,
        )

    @classmethod
    def from_data_loader(
        cls, loader: DataLoader[Any], sampling: Plan | Sampling, **arguments: Any
    ) -> Self:
        """Return a private loader with the dataset and the fetching of a loader of torch.

        Whether that loader shuffles is of no matter; a sampler that picks or weights examples
        cannot be carried over.

        Raises:
            UnsoundConfiguration: if the loader has such a sampler.
        """
        check_replaceable(loader)
        carried: dict[str, Any] = {
            "num_workers": loader.num_workers,
            "collate_fn": loader.collate_fn,
            **{name: getattr(loader, name) for name in _FETCHES},
        }
        merged = carried | arguments
        if not merged["num_workers"]:
            merged = {name: value for name, value in merged.items() if name not in _WORKERS}
        return cls(loader.dataset, sampling, **merged)

    def __len__(self) -> int:
        """Return the number of logical batches in one pass."""
        return self._pass

    def __repr__(self) -> str:
        expected = self._expected
        return (
            f"<private loader: {len(self)} batches in a pass, {self.sampling!r} of {self.examples} "
            f"examples, {expected:.6g} expected in a batch>"
        )

    @property
    def _rates(self) -> Schedule | None:
        return None if self.plan is None else self.plan.rate_schedule

    @property
    def _expected(self) -> float:
        """The expected size of a batch; its mean, if rates change."""
        if self.plan is not None and self._rates is not None:
            return self._rates.mean * self.examples
        return self.sampling.expected_batch_size(self.examples)

    def __iter__(self) -> Iterator[Any]:
        """Yield the collated batches of one pass."""
        for batch in self.microbatches():
            yield self._without_rows() if batch.is_empty else batch.data

    def microbatches(self) -> Iterator[MicroBatch]:
        """Yield the physical batches of one pass.

        Raises:
            BudgetExceeded: if all steps of the plan were handed out in earlier passes.
        """
        self._check_steps_left()
        if self._tests_isolation:
            self._check_isolation()
            self._tests_isolation = False
        fetched = self._fetched()
        pending = self._pending
        for data in fetched:
            yield from self._empties(pending)
            yield self._hand_out(pending, data)
        yield from self._empties(pending)

    def _check_isolation(self) -> None:
        """Refuse a dataset or a collate function that lets examples change others."""
        examples = length(self.dataset)
        if self._collate not in (None, default_collate):
            check_collation(self.dataset, self._collate, examples)
        if whole_tensors(self.dataset, None) is None:  # nothing else can remember examples
            check_fetching(self.dataset, self._collate or default_collate, examples)

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs: the count of steps, and the state of a seeded generator.

        A secure generator has no state to keep: fresh choices are as good as the lost ones. How an
        epoch was drawn is a secret, and not in it: who goes on from here begins a new epoch.
        """
        state = None
        if isinstance(self.generator, SeededForExperiments):
            # An epoch that was begun is not gone on with: the next one is drawn from here.
            ahead = [batch.state for batch in self._drawn if batch.state is not None]
            state = ahead[0] if ahead else self.generator.state_dict()
        return {"steps": self.steps_taken, "generator": state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on after the steps of `state`, with a new epoch; what was begun is dropped."""
        self.steps_taken = validate.integer(steps=state["steps"])
        self._pending = deque()
        self._draw_anew()
        if state["generator"] is not None:
            if not isinstance(self.generator, SeededForExperiments):
                raise UnsoundConfiguration(
                    "the state is that of a run with a seed, this loader draws securely; give it "
                    "generator=SeededForExperiments(...) to repeat the experiment"
                )
            self.generator.load_state_dict(state["generator"])

    def follow(self, key: SessionKey) -> None:
        """Draw the batches of a run from its secret key, where the sampling needs one.

        Args:
            key: key that all processes and all sessions of the run share.
        """
        self._batch_key = key
        self._pending = deque()
        self._draw_anew()

    def _check_steps_left(self) -> None:
        if self.plan is not None and self.steps_taken >= self.plan.steps:
            raise BudgetExceeded(
                f"all {self.plan.steps} steps of the plan were handed out; plan for more epochs "
                "or steps from the start"
            )

    def _check_options(self, options: Mapping[str, Any]) -> None:
        for name, value in options.items():
            if name in _CHOOSES:
                raise UnsoundConfiguration(
                    f"{name}={value!r} would choose examples, which is what "
                    f"sampling={self.sampling!r} does; leave it out"
                )
            if name not in _FETCHES:
                raise TypeError(f"PrivateLoader has no option {name!r}")

    def _fetched(self) -> Iterator[Any]:
        """Begin a pass: return the data of its parts in order, those without examples left out."""
        self._pending = deque()
        if self._tensors is None:
            return iter(self._data_loader)
        return map(self._tensors, self._choose(self._pending))

    def _draw_anew(self) -> None:
        """Begin a new epoch with the next step."""
        rank, size = self.processes.rank, self.processes.size
        if isinstance(self.sampling, KeyedSampling):
            if self._batch_key is None:
                self._batch_key = new_session_key(self.generator, 0)
            key = self._batch_key
            self._shares = self.sampling.keyed_shares(
                lambda number: KeyedBits(key, number), self.steps_taken, self.examples, rank, size
            )
        elif self._rates is None:
            self._shares = self.sampling.shares_from(
                self.steps_taken, self.examples, rank, size, self.generator
            )
        else:
            self._shares = self._changing_shares(rank, size)
        self._shares = replayed(self.sampling, self._shares, self.examples)
        self._epochs_from = self.steps_taken
        self._drawn: deque[_Batch] = deque()  # ahead of what was handed out

    def _changing_shares(self, rank: int, size: int) -> Iterator[Indices]:
        """Yield this process's share of every batch from the next step on, each at its rate."""
        assert self.plan is not None
        for step in count(self.steps_taken):
            sampling = self.plan.sampling_at(step)
            yield next(sampling.shares(self.examples, rank, size, self.generator))

    def _batch(self, step: int) -> _Batch:
        """Return the batch of a step, drawn now or for an earlier pass that did not get to it."""
        ahead = step - self._drawn[0].step if self._drawn else 0
        if ahead < len(self._drawn):
            return self._drawn[ahead]
        seeded = isinstance(self.generator, SeededForExperiments)
        place = (step - self._epochs_from) % self.sampling.epoch_steps
        is_first = seeded and place == 0
        state = self.generator.state_dict() if is_first else None  # type: ignore[attr-defined]
        if self.plan is not None and self.plan.follows_ledger:
            place = step
        recorder = active()
        with nullcontext() if recorder is None else recorder.ahead():
            drawn = next(self._shares)
            if self.owned is not None:
                drawn = self.owned.rows(drawn, self._own_bits)
        batch = _Batch(drawn, step, place, state)
        self._drawn.append(batch)
        return batch

    def _choose(self, pending: deque[_Part]) -> Iterator[Indices]:
        """Yield the parts of one pass that hold examples, and note all parts as pending."""
        last = self.steps_taken + self._pass
        if self.plan is not None:
            last = min(last, self.plan.steps)
        for step in range(self.steps_taken, last):
            self._check_current(pending)
            for part in self._parts(self._batch(step)):
                pending.append(part)
                if len(part.indices):
                    yield part.indices.reshape(-1)

    def _parts(self, batch: _Batch) -> Iterator[_Part]:
        indices = batch.indices
        size = self.max_physical_batch_size or max(indices.size, 1)
        if self.owned is not None:  # whose rows are clipped together
            size = max(size // self.owned.each, 1)
        count = max(-(-len(indices) // size), 1)
        # Parts of nearly equal size: none is so small that its step costs more than it does.
        for i, part in enumerate(np.array_split(indices, count)):
            yield _Part(part, batch, i == count - 1)

    def _empties(self, pending: deque[_Part]) -> Iterator[MicroBatch]:
        while pending and not len(pending[0].indices):
            yield self._hand_out(pending, None)

    def _check_current(self, pending: deque[_Part]) -> None:
        if pending is not self._pending:
            raise UnsoundConfiguration(
                "another pass over this loader has begun; steps are counted in one pass at a time"
            )

    def _hand_out(self, pending: deque[_Part], data: Any) -> MicroBatch:
        self._check_current(pending)
        part = pending.popleft()
        step, place = part.batch.step, part.batch.place
        self.steps_taken = step + 1
        while self._drawn and self._drawn[0].step <= step:
            self._drawn.popleft()
        if self.owned is not None and data is not None:
            data = by_owner(data, len(part.indices))
        self.current = MicroBatch(data, len(part.indices), step, part.is_last, place)
        return self.current

    def _without_rows(self) -> Any:
        if self._empty is None:
            self._empty = empty_batch(self.dataset, self._collate)
            if self.owned is not None:
                self._empty = without_owners(self._empty, self.owned.each)
        return self._empty


class _Requests:
    """The batch sampler that torch's loader follows, one pass at a time."""

    def __init__(self, loader: PrivateLoader) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[list[int]]:
        return (indices.tolist() for indices in self._loader._choose(self._loader._pending))


def check_sampler(loader: object, sampling: Sampling) -> PrivateLoader:
    """Return a loader, unless it does not draw batches as `sampling`, whose loss is claimed, does.

    Raises:
        UnsoundConfiguration: for a shuffling or sequential loader, and for any that is not known
            to draw as claimed.
    """
    if not isinstance(loader, PrivateLoader):
        refuse_loader(loader, sampling)
    if not sampling.is_fitted:
        raise UnsoundConfiguration(
            "batch sizes that change are drawn for PrivateTrainer alone; use it, or a plan of one "
            "batch size"
        )
    if loader.sampling != sampling:
        raise UnsoundConfiguration(
            f"the loader draws with {loader.sampling!r}, the plan accounts for {sampling!r}; "
            "make the loader from the plan: PrivateLoader(dataset, plan)"
        )
    return loader
