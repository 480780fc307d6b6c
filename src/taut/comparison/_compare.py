"""Train every arm: the same seeds, one rule for learning rates, equally many gradients."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from taut._base import validate
from taut.comparison._learning_rates import beyond
from taut.comparison._prediction import Prediction, predict
from taut.comparison._progress import Progress
from taut.comparison._result import Comparison
from taut.comparison._run_file import Run, RunFile
from taut.comparison._settings import Settings
from taut.comparison._summary import best_learning_rate
from taut.comparison._task import Task, seeded
from taut.comparison.arms._arms import Arm, arms_of
from taut.noise import SeededForExperiments
from taut.training import Callback, Evaluation, Logs, Plan, PrivateTrainer

__all__ = ["compare"]


def compare(
    task: Task,
    settings: Settings,
    *,
    arms: Sequence[str | Arm] | None = None,
    seeds: int | Sequence[int] = 5,
    learning_rates: Sequence[float] | Mapping[str, float] = (0.5,),
    extend: int = 0,
    tuning_seeds: int | None = None,
    confidence: float = 0.95,
    out_dir: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> Comparison:
    """Train every arm with every learning rate and seed, and say which is best.

    Args:
        task: model, data and optimizer.
        settings: promise and number of gradients, equal for all.
        arms: names or arms; all of this package by default. Those that cannot take part are left
            out with a reason.
        seeds: how many, or which. One seed decides first weights, batches and noise, the same for
            all arms as far as they draw the same, so that differences are taken on equal seeds.
        learning_rates: learning rates that every arm is tuned over; the best mean counts. Or one
            for every arm, by label, such as the `chosen` of a comparison on other examples.
        extend: how often an arm whose best learning rate is the smallest or largest of those it
            tried may try another beyond, half or twice as large; by the same rule for every arm.
        tuning_seeds: choose by the first so many seeds, and train the others at the chosen
            learning rate only; all by default.
        confidence: confidence level of the intervals.
        out_dir: where finished runs are kept, so that a comparison that was killed goes on where
            it stopped, and later ones may add arms, seeds and learning rates; also where table.md,
            runs.csv and comparison.json are written.
        progress: show the course of it, if standard error is a terminal.

    **Guarantee**: equal privacy, and equally many gradients: every run's plan promises the epsilon
    and delta of the settings, and takes its steps at its rate. What arms do with gradients costs
    time beside that, see `Run.cpu_seconds`. A verdict takes three seeds at least. About the data
    themselves **nothing** is promised: noise is seeded, and choosing by results is not covered by
    any run's epsilon. Compare on public data or on data like yours; `Comparison.loss` is what all
    runs would have cost.

    Raises:
        ValueError: for arguments that make no sense.
        UnsoundConfiguration: if `out_dir` belongs to another comparison, or settings are for
            another number of examples.
        InfeasibleBudget: if no arm can keep the promise.

    Example:
        >>> import torch
        >>> from torch.utils.data import TensorDataset
        >>> from taut.comparison import Settings, Task, compare
        >>> draw = torch.Generator().manual_seed(0)
        >>> x = torch.randn(400, 4, generator=draw)
        >>> data = TensorDataset(x, (x[:, 0] > 0).long())
        >>> task = Task(
        ...     model=lambda: torch.nn.Linear(4, 2), loss_fn=torch.nn.CrossEntropyLoss(),
        ...     train=data, test=data,
        ... )
        >>> settings = Settings(
        ...     examples=400, batch_size=100, gradients=1_000, epsilon=3, delta=1e-3
        ... )
        >>> found = compare(task, settings, arms=["plain", "normalised"], seeds=3)
        >>> [row.verdict for row in found.results], found.best.arm
        (['reference', 'undecided'], 'plain')
    """
    task.check_examples(settings.examples)
    kinds, places = arms_of(arms), _seeds(seeds)
    tuning = len(places)
    if tuning_seeds is not None:
        tuning = min(validate.positive_integer(tuning_seeds=tuning_seeds), tuning)
    validate.positive(confidence=validate.below_one(confidence=confidence))
    validate.non_negative(extend=validate.integer(extend=extend))
    bench = _Bench(task, settings, kinds, places[0])
    rates, fixed = _learning_rates(learning_rates, bench.arms)
    directory = None if out_dir is None else Path(out_dir)
    identity = {"settings": settings.to_dict(), "task": task.fingerprint()}
    first = [
        (arm, rate, seed)
        for seed in places[:tuning]
        for arm in bench.arms
        for rate in (rates or (fixed[arm.label],))
    ]
    with RunFile(directory, identity) as file:
        later = len(bench.arms) * (len(places) - tuning)
        with Progress((len(first) + later) * settings.steps, wanted=progress) as bar:
            runs = [bench.run(*which, file, bar) for which in first]
            for arm in bench.arms if rates else ():
                runs += bench.extended(arm, runs, places[:tuning], extend, file, bar)
            chosen = {
                arm.label: best_learning_rate([run for run in runs if run.arm == arm.label])
                for arm in bench.arms
            }
            runs += [
                bench.run(arm, chosen[arm.label], seed, file, bar)
                for seed in places[tuning:]
                for arm in bench.arms
            ]
    found = Comparison(
        bench.prediction,
        tuple(runs),
        places,
        rates,
        chosen,
        confidence,
        tuned_on_test=task.validation is None,
        test_examples=len(task.test),
    )
    if directory is not None:
        found.write(directory)
    return found


class _Bench:
    """Where arms are trained: their plans, made anew for the first weights of every seed."""

    def __init__(
        self, task: Task, settings: Settings, arms: Sequence[Arm], first_seed: int
    ) -> None:
        self._task, self._settings = task, settings
        self._sizes = task.sizes
        self.prediction: Prediction = predict(
            settings, self._sizes, arms=arms, public_gradients=task.gradients(first_seed)
        )
        self._last: tuple[str, int, Plan] | None = None
        taking_part = {row.arm for row in self.prediction.arms}
        self.arms = [arm for arm in arms if arm.label in taking_part]

    def run(self, arm: Arm, learning_rate: float, seed: int, file: RunFile, bar: Progress) -> Run:
        """Return the run, from the file if it was finished before."""
        known = file.runs.get((arm.label, learning_rate, seed))
        bar.begin(f"{arm.label}, learning rate {learning_rate:g}, seed {seed}")
        if known is not None:
            bar.advance(known.steps)
            return known
        run = self._train(arm, learning_rate, seed, bar)
        file.add(run)
        return run

    def extended(
        self,
        arm: Arm,
        runs: Sequence[Run],
        seeds: Sequence[int],
        extend: int,
        file: RunFile,
        bar: Progress,
    ) -> list[Run]:
        """Return further runs of an arm, beyond the learning rates of the others of its runs."""
        mine = [run for run in runs if run.arm == arm.label]
        given = len(mine)
        for _ in range(extend):
            rates = beyond(mine)
            bar.add(len(rates) * len(seeds) * self._settings.steps)
            mine += [self.run(arm, rate, seed, file, bar) for seed in seeds for rate in rates]
        return mine[given:]

    def _plan(self, arm: Arm, seed: int) -> Plan:
        """Return the plan, which all learning rates share; runs come ordered by seed and arm."""
        if self._last is None or self._last[:2] != (arm.label, seed):
            plan = arm.plan(self._settings, self._sizes, self._task.gradients(seed))
            self._last = (arm.label, seed, plan)
        return self._last[2]

    def _train(self, arm: Arm, learning_rate: float, seed: int, bar: Progress) -> Run:
        task, plan = self._task, self._plan(arm, seed)
        make = arm.optimizer(task.optimizer)
        began, cpu_began = time.perf_counter(), time.process_time()
        with seeded(seed):
            trainer = PrivateTrainer(
                task.new_model(seed),
                task.loss_fn,
                plan,
                optimizer=lambda parameters: make(parameters, learning_rate),
                generator=SeededForExperiments(seed=seed),
                logs=Logs(callbacks=[_Steps(bar)] if bar.is_shown else [], progress=False),
                **task.trainer,
            )
            result = trainer.fit(task.train)
            seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
            judged = trainer.evaluate(task.test)
            choice = judged if task.validation is None else trainer.evaluate(task.validation)
        return Run(
            arm.label,
            learning_rate,
            seed,
            judged.accuracy,
            _finite_loss(judged),
            choice.accuracy,
            _finite_loss(choice),
            result.epsilon.upper,
            result.steps,
            plan.noise_multiplier,
            seconds,
            cpu_seconds,
        )


class _Steps(Callback):
    """Moves the bar."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar

    def on_step_end(self, trainer: PrivateTrainer, event: object) -> None:
        self._bar.advance(1)


def _finite_loss(found: Evaluation) -> float | None:
    return found.loss if math.isfinite(found.loss) else None


def _seeds(given: int | Sequence[int]) -> tuple[int, ...]:
    if not isinstance(given, Sequence):
        return tuple(range(validate.positive_integer(seeds=given)))
    found = tuple(validate.integer(seeds=seed) for seed in given)
    if not found or len(set(found)) < len(found):
        raise ValueError(f"seeds must be different numbers, at least one, got seeds={given!r}")
    return found


def _learning_rates(
    given: Sequence[float] | Mapping[str, float], arms: Sequence[Arm]
) -> tuple[tuple[float, ...], dict[str, float]]:
    """Return those to choose from, or else the one of every arm."""
    if isinstance(given, Mapping):
        for arm in arms:
            if arm.label not in given:
                raise ValueError(
                    f"learning_rates must have one for every arm, got none for {arm.label!r}"
                )
        return (), {a.label: validate.positive(learning_rates=given[a.label]) for a in arms}
    found = tuple(validate.positive(learning_rates=rate) for rate in given)
    if not found or len(set(found)) < len(found):
        raise ValueError(
            f"learning_rates must be different numbers, at least one, got learning_rates={given!r}"
        )
    return found, {}
