"""One training run under every sampler: what the data loader really costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from taut._base import validate
from taut._base.rounding import round_up
from taut.accounting._adjacency import Adjacency
from taut.accounting._engines.bounds import Bounds
from taut.accounting._gaussian_run import GaussianRun, Sampler
from taut.accounting._loss import PrivacyLoss
from taut.accounting._mechanisms.coordinates import twice_sampled
from taut.accounting._mechanisms.noise import gaussian

__all__ = ["Mask", "SampledRun", "SamplerComparison", "compare_samplers"]

_OLD_NAMES = ("shuffled", "shuffled_epochs")
"""What earlier versions called the sampler shuffle here."""

_Sampled: TypeAlias = tuple[str, Callable[[int], PrivacyLoss], str]
"""Name, loss after a number of steps, and assumptions of a sampler."""


@dataclass(frozen=True)
class Mask:
    """How twice sampling hides coordinates, in units of the clipping norm.

    Attributes:
        rate: the probability with which a coordinate of a sampled record takes part.
        clip_inf: bound on the magnitude of one coordinate.
        dimension: number of coordinates.
    """

    rate: float = 0.5
    clip_inf: float = 0.1
    dimension: int = 1_000_000

    def __post_init__(self) -> None:
        """Check the parameters."""
        if not validate.probability(rate=self.rate) > 0:
            raise ValueError(f"rate must be greater than 0, got rate={self.rate!r}")
        validate.positive(clip_inf=self.clip_inf)
        validate.positive_integer(dimension=self.dimension)


@dataclass(frozen=True)
class SampledRun:
    """A run under one sampler.

    Attributes:
        sampler: how batches are drawn.
        loss_of: the loss after a number of steps.
        steps: how many steps the run has.
        delta: at which epsilon was computed.
        epsilon: certified bounds.
        assumes: what has to hold for it.
    """

    sampler: str
    loss_of: Callable[[int], PrivacyLoss]
    steps: int
    delta: float
    epsilon: Bounds
    assumes: str

    @property
    def loss(self) -> PrivacyLoss:
        """The loss of the whole run."""
        return self.loss_of(self.steps)

    @property
    def adjacency(self) -> Adjacency:
        """The neighbouring relation that epsilon is about."""
        return self.loss.adjacency


@dataclass(frozen=True)
class SamplerComparison:
    """The same run under several samplers.

    Attributes:
        runs: the run that was asked for under every sampler, from the smallest epsilon to the
            largest.
        others: other runs, with larger batches or more noise, in the same order; none unless they
            were asked for.
    """

    runs: tuple[SampledRun, ...]
    others: tuple[SampledRun, ...] = ()

    def __getitem__(self, sampler: str) -> SampledRun:
        """Return the run whose name starts with ``sampler``; ", " and a relation may follow."""
        every = (*self.runs, *self.others)
        name, comma, relation = sampler.partition(",")
        wanted = f"{_one_spelling(name)}{comma}{relation}"
        for run in every:
            if f"{run.sampler}, {run.adjacency}".startswith(wanted):
                return run
        names = "; ".join(f"{run.sampler}, {run.adjacency}" for run in every)
        raise KeyError(f"no sampler {sampler!r}; there are: {names}")

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-ready description, with the losses from which it can be recomputed."""
        return {
            "runs": [_described(run) for run in self.runs],
            "others": [_described(run) for run in self.others],
        }

    def __str__(self) -> str:
        """Return a table, epsilon rounded up, and a second one for other runs."""
        tables = [_table(self.runs)]
        if self.others:
            tables.append(f"other runs than the one above\n{_table(self.others)}")
        return "\n\n".join(tables)


def _one_spelling(name: str) -> str:
    """Return the name of a sampler as runs have it, for any spelling of it."""
    word = name.strip().lower().replace("-", "_").replace(" ", "_")
    return Sampler.SHUFFLE if word in _OLD_NAMES else word


def _described(run: SampledRun) -> dict[str, object]:
    return {
        "sampler": run.sampler,
        "adjacency": str(run.adjacency),
        "epsilon": {"lower": run.epsilon.lower, "upper": run.epsilon.upper},
        "delta": run.delta,
        "assumes": run.assumes,
        "loss": run.loss.to_dict(),
    }


def _table(runs: Iterable[SampledRun]) -> str:
    rows = [("epsilon", "sampler", "adjacency", "assumes")]
    for run in runs:
        shown = round_up(run.epsilon.upper, 5)
        rows.append((shown, run.sampler, str(run.adjacency), run.assumes))
    first, second, third = (max(len(row[i]) for row in rows) for i in range(3))
    return "\n".join(f"{a:>{first}}  {b:<{second}}  {c:<{third}}  {d}" for a, b, c, d in rows)


def compare_samplers(
    sigma: float,
    *,
    batch_size: int,
    examples: int,
    steps: int,
    delta: float,
    cap: int | None = None,
    mask: Mask | None = None,
) -> SamplerComparison:
    """Return the epsilon of one DP-SGD run for every way of drawing its batches.

    Args:
        sigma: noise multiplier: standard deviation of the noise on the sum, over the clipping norm.
        batch_size: (expected) size of a batch.
        examples: number of records.
        steps: number of steps.
        delta: probability delta of the guarantee, in (0, 1).
        cap: most records of a batch, for Poisson batches that are cut; None leaves them out.
        mask: how twice sampling masks coordinates; None leaves it out. Its record rate is such
            that as many coordinates are used as by the other samplers: another run, with larger
            batches, and so among `others`.

    Samplers and relations of the run:

    * Poisson batches, under add/remove and under replace-one;
    * with a cap, Poisson batches of which at most so many records are kept, under add/remove;
    * random allocation, under add/remove: every record is in one batch of every epoch, drawn at
      random; an epoch has as many whole steps as batches of this size fill;
    * batches of fixed size, under add/remove and under replace-one;
    * shuffled epochs, under zero-out, *without* amplification: in an epoch a record is in exactly
      one batch, so an epoch costs one release. No better theorem covers a shuffled loader.

    With a mask, two other runs: twice sampling, by its Renyi divergences, and the plain Poisson run
    that evaluates the same records and whose mean is as noisy, which is never worse.

    **Guarantee**: every epsilon is a certified upper bound for its own relation and sampler only.
    Numbers for different relations answer different questions: replace-one protects a record's
    content, add/remove its presence.

    Raises:
        ValueError: if the sizes do not fit, or twice sampling would need a record rate above one.

    Example:
        >>> import taut
        >>> runs = taut.compare_samplers(
        ...     1.0, batch_size=100, examples=10_000, steps=1_000, delta=1e-5
        ... )
        >>> round(runs["poisson"].epsilon.upper, 2), round(runs["fixed_size"].epsilon.upper, 2)
        (1.83, 13.36)
    """
    noise = validate.positive(sigma=sigma)
    batch = validate.positive_integer(batch_size=batch_size)
    people = validate.positive_integer(examples=examples)
    count = validate.positive_integer(steps=steps)
    level = validate.below_one(delta=delta)
    if batch >= people:
        raise ValueError(
            f"batch_size must be smaller than examples, got batch_size={batch}, examples={people}"
        )
    runs = _runs(noise, batch, people, count, cap)
    others = [] if mask is None else _masked_runs(noise, batch / people, mask)
    return SamplerComparison(_answered(runs, count, level), _answered(others, count, level))


def _answered(samplers: list[_Sampled], steps: int, delta: float) -> tuple[SampledRun, ...]:
    """Return the runs with their epsilon, the smallest first."""
    runs = [
        SampledRun(name, loss_of, steps, delta, loss_of(steps).epsilon_bounds(delta), assumes)
        for name, loss_of, assumes in samplers
    ]
    return tuple(sorted(runs, key=lambda run: run.epsilon.upper))


def _runs(sigma: float, batch: int, examples: int, steps: int, cap: int | None) -> list[_Sampled]:
    found: list[_Sampled] = []
    for sampler in Sampler:
        is_capped = sampler is Sampler.TRUNCATED_POISSON
        if is_capped and cap is None:
            continue

        def run_of(
            count: int, of: Sampler = sampler, most: int | None = cap if is_capped else None
        ) -> GaussianRun:
            return GaussianRun.of(of, steps=count, batch_size=batch, examples=examples, cap=most)

        for relation in sampler.compared_adjacencies:

            def loss_of(
                count: int,
                of: Callable[[int], GaussianRun] = run_of,
                under: Adjacency = relation,
            ) -> PrivacyLoss:
                return of(count).loss(sigma, under)

            found.append((sampler.value, loss_of, run_of(steps).assumes(relation)))
    return found


def _masked_runs(sigma: float, rate: float, mask: Mask) -> list[_Sampled]:
    """Return the runs that use as many coordinates, of more records in each step."""
    record_rate = rate / mask.rate
    if record_rate > 1:
        raise ValueError(
            f"twice sampling would need a record rate of {record_rate:g}; use a mask with a rate "
            f"of at least {rate:g}"
        )
    masked = twice_sampled(
        record_rate, mask.rate, sigma, clip_inf=mask.clip_inf, dimension=mask.dimension
    )
    return [
        (
            "twice_sampled",
            lambda n: n * masked,
            f"another run: records at rate {record_rate:g}, coordinates at {mask.rate:g}, all "
            f"secret; coordinates clipped at {mask.clip_inf:g}; Renyi bound",
        ),
        (
            "equal_compute_poisson",
            lambda n: n * gaussian(sigma / mask.rate).poisson(record_rate),
            f"another run: records at rate {record_rate:g}, as many gradients as twice sampling, "
            f"and noise multiplier {sigma / mask.rate:g}, as much noise of the mean, without masks",
        ),
    ]
