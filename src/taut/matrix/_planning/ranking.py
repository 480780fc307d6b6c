"""What was found: encoders and samplers in the order of their errors at one promise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from taut._base.rounding import round_up
from taut.accounting import PrivacyLoss
from taut.matrix._accounting.samplers import SecretSampler
from taut.matrix._encoders.encoder import Encoder
from taut.matrix._participation import Participation

__all__ = ["RankedNoise", "Ranking"]


@dataclass(frozen=True, eq=False)
class RankedNoise:
    """An encoder with a sampler, and the noise that keeps the promise.

    Attributes:
        noise: kind of encoder: "independent", "banded", "blt", "inverse" or "square root".
        sampling: kind of sampler: "poisson", "allocation", "cyclic_poisson", "balls_in_bins" or
            "fixed_order".
        bands: number of bands or buffers; 1 for independent noise.
        encoder: matrix that correlates the noise.
        sampler: how the steps of examples are drawn, or the public rule that they obey.
        sigma: standard deviation of the independent noise, for contributions of norm at most one.
        noise_multiplier: sigma over the largest norm of a column, the sensitivity of one step.
        root_mean_square: root of the mean square error of the answers of all steps.
        maximum: largest standard deviation of an answer.
        loss: certified loss of the whole run at this sigma.
    """

    noise: str
    sampling: str
    bands: int
    encoder: Encoder
    sampler: SecretSampler | Participation
    sigma: float
    noise_multiplier: float
    root_mean_square: float
    maximum: float
    loss: PrivacyLoss

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-ready description, with the loss from which it can be recomputed."""
        return {
            "noise": self.noise,
            "sampling": self.sampling,
            "bands": self.bands,
            "sampler": repr(self.sampler),
            "sigma": self.sigma,
            "noise_multiplier": self.noise_multiplier,
            "root_mean_square": self.root_mean_square,
            "maximum": self.maximum,
            "loss": self.loss.to_dict(),
        }


@dataclass(frozen=True, eq=False)
class Ranking:
    """Encoders and samplers from the least error to the largest, all at one promise.

    Attributes:
        rows: every combination that was tried.
        goal: error that they are ranked by, "root_mean_square" or "maximum".
        epsilon: certified upper bound of every row.
        delta: delta at which it holds.
        epoch_steps: number of steps of an epoch.
    """

    rows: tuple[RankedNoise, ...]
    goal: str
    epsilon: float
    delta: float
    epoch_steps: int

    @property
    def best(self) -> RankedNoise:
        """The row with the least error."""
        return self.rows[0]

    @property
    def leaders(self) -> tuple[RankedNoise, ...]:
        """The best row of every kind of encoder with every kind of sampler."""
        found: dict[tuple[str, str], RankedNoise] = {}
        for row in self.rows:
            found.setdefault((row.noise, row.sampling), row)
        return tuple(found.values())

    def error_of(self, row: RankedNoise) -> float:
        """Return the error that a row is ranked by."""
        error: float = getattr(row, self.goal)
        return error

    def __getitem__(self, name: str) -> RankedNoise:
        """Return the best row of a sampler, or of an encoder with a sampler, as in "blt, ..."."""
        noise, comma, sampling = (part.strip() for part in name.partition(","))
        for row in self.rows:
            if (row.noise, row.sampling) == (noise, sampling) if comma else row.sampling == noise:
                return row
        names = "; ".join(f"{row.noise}, {row.sampling}" for row in self.leaders)
        raise KeyError(f"no row {name!r}; there are: {names}")

    def __iter__(self) -> Iterator[RankedNoise]:
        return iter(self.rows)

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-ready description."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "goal": self.goal,
            "epoch_steps": self.epoch_steps,
            "rows": [row.to_dict() for row in self.rows],
        }

    def __str__(self) -> str:
        """Return a table of the leaders, errors rounded up."""
        header = ("rms error", "max error", "noise", "bands", "sampling", "sigma", "times best")
        least = self.error_of(self.best)
        table = [header]
        for row in self.leaders:
            table.append(
                (
                    round_up(row.root_mean_square, 5),
                    round_up(row.maximum, 5),
                    row.noise,
                    str(row.bands),
                    row.sampling,
                    round_up(row.sigma, 5),
                    f"{self.error_of(row) / least:.3f}",
                )
            )
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = (
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in table
        )
        return "\n".join(lines)
