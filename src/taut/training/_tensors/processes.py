"""The processes of a run that was started by torchrun, and how they agree."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import distributed as dist

from taut._base import validate
from taut.errors import UnsoundConfiguration
from taut.noise import RandomSource, SeededForExperiments

__all__ = ["Processes"]

_KEY = 32  # bytes

Result = TypeVar("Result")


@dataclass(frozen=True)
class Processes:
    """Who takes part in a run, and which of them this is.

    Args:
        rank: the number of this process, from zero.
        size: how many there are.
        group: what they talk over; None if they cannot, or need not because there is only one.

    All methods that talk must be called by every process, in the same order.
    """

    rank: int = 0
    size: int = 1
    group: Any = None

    def __post_init__(self) -> None:
        validate.positive_integer(world_size=self.size)
        validate.integer(rank=self.rank)
        if not self.rank < self.size:
            raise ValueError(
                f"rank must be below world_size={self.size}, got rank={self.rank}; leave both out "
                "to take them from torch.distributed"
            )

    @classmethod
    def current(cls, group: Any = None) -> Processes:
        """Return the processes of a group, by default of all that torch.distributed knows of."""
        if not (dist.is_available() and dist.is_initialized()):
            if group is not None:
                raise ValueError(
                    "process_group was given before torch.distributed.init_process_group"
                )
            return cls()
        chosen = dist.group.WORLD if group is None else group
        rank, size = dist.get_rank(chosen), dist.get_world_size(chosen)
        if rank < 0:
            raise ValueError("process_group must be a group that this process belongs to")
        return cls(rank, size, chosen if size > 1 else None)

    @property
    def is_first(self) -> bool:
        """Whether this is the process that keeps the books."""
        return self.rank == 0

    def gathered(self, value: Any) -> list[Any]:
        """Return the values of all processes, by rank."""
        if self.group is None:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self.group)
        return values

    def largest(self, value: int, device: torch.device) -> int:
        """Return the largest value of all processes; a fraction of the time that `gathered` takes.

        Args:
            value: value of this process.
            device: device that the processes exchange gradients on.
        """
        if self.group is None:
            return value
        number = torch.tensor(value, device=device)
        dist.all_reduce(number, op=dist.ReduceOp.MAX, group=self.group)
        return int(number)

    def agreed(self, action: Callable[[], Result]) -> Result:
        """Run something in the first process alone; return or raise in all what came of it there.

        No process returns before the first one is done.
        """
        if self.group is None:
            return action()
        outcome: list[Any] = [None, None]
        if self.is_first:
            try:
                outcome[0] = action()
            except Exception as error:
                outcome[1] = _portable(error)
        dist.broadcast_object_list(outcome, group=self.group, group_src=0)
        if outcome[1] is not None:
            raise outcome[1]
        result: Result = outcome[0]
        return result

    def check_same(self, what: str, value: Any) -> None:
        """Refuse a run whose processes were set up differently."""
        for rank, other in enumerate(self.gathered(value)):
            if other != value:
                raise UnsoundConfiguration(
                    f"{what} must be the same in all processes: rank {self.rank} has {value!r}, "
                    f"rank {rank} has {other!r}"
                )

    def common(self, source: RandomSource) -> RandomSource:
        """Return a source that gives all processes the same bits, as secret as before."""
        if isinstance(source, SeededForExperiments):
            self.check_same("the seed", source.seed)
            return source
        return source if self.size == 1 else CommonBits(self.agreed(lambda: source.bytes(_KEY)))

    def own(self, source: RandomSource) -> RandomSource:
        """Return a source whose bits are independent of those of the other processes.

        Secure ones are already: every process has keys of its own. A seed is the same everywhere,
        so it is mixed with the rank.
        """
        if self.size == 1 or not isinstance(source, SeededForExperiments):
            return source
        entropy = int.from_bytes(source.bytes(16), "little")
        mixed = np.random.SeedSequence(entropy, spawn_key=(self.rank,))
        return SeededForExperiments(seed=int(mixed.generate_state(1, np.uint64)[0]) >> 8)


class CommonBits(RandomSource):
    """Bits that all who know the key have, in the order in which they ask: SHAKE256 of the key.

    Args:
        key: secret, and never used before.
    """

    secure = True

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._calls = 0

    def bytes(self, n: int) -> bytes:
        """Return ``n`` bytes, the same in all processes that have asked for as many before."""
        self._calls += 1
        return hashlib.shake_256(self._key + self._calls.to_bytes(8, "little")).digest(n)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("bits that processes share cannot be copied: they would repeat")


def _portable(error: Exception) -> Exception:
    """Return the error in a form that other processes can raise."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
