"""Clipping of low-rank adapters in the geometry of the change that they make to a weight."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from taut._base import validate
from taut.noise import L2Ball
from taut.training._clipping.clipping import Clipping

if TYPE_CHECKING:
    from taut.training._sampling.masks import Masks
    from taut.training._tensors.clipped_sum import ClippedSum, Layout

__all__ = ["LoRAClip"]

_FACTOR = re.compile(r"(?:^|(?<=\.))lora_(embedding_)?([AB])(?=\.|$)")


@dataclass(frozen=True)
class LoRAClip(Clipping):
    """Clip and hide what an example does to the products B A of LoRA, not to their factors.

    Factors are not unique: c A and B / c make the same model, and gradients of other lengths. Noise
    on factors grows in the product with their size, and falls on A at the start, while B = 0, where
    A has no gradient. Here the gradient G of a product is projected onto the changes B dA + dB A
    that factors can make, clipped and hidden there by noise that is equal in all directions, and
    turned into gradients of the factors for any optimizer.

    Args:
        norm: bound on the l2 norm of an example's projected gradient, over all adapters together
            with all other trainable parameters. It is in units of the product's gradient, often
            some times that of the factors.

    Adapters are known by the names that PEFT gives: ``lora_A`` and ``lora_B``, or
    ``lora_embedding_A`` and ``lora_embedding_B``, both trainable.

    **Guarantee**: adding or removing one example changes the sum of coordinates by at most `norm`
    in l2 (Wang and Zhang 2026), whatever the weights are: coordinates are linear in the gradient,
    and depend on weights that earlier steps have released. Turning them back is post-processing
    (docs/theory/clipping.md). Rounding as for `FlatClip`. Clipping and noise are those of PRISM;
    its optimizer, which retracts to matrices of the rank, is not here.

    Raises:
        ValueError: if the norm is not positive, and later, when the model is known, if it has no
            adapters, or one of which a factor is frozen.

    Example:
        >>> from taut.training import LoRAClip
        >>> names = ["q.lora_A.default.weight", "q.lora_B.default.weight", "head.bias"]
        >>> LoRAClip(1.0).groups(names)
        [0, 0, 1]
    """

    name = "lora"
    follows_weights = True

    norm: float

    def __post_init__(self) -> None:
        validate.positive(norm=self.norm)

    def groups(self, names: Sequence[str]) -> list[int]:
        """Return one group for the factors of an adapter, and one for every other parameter."""
        labels = [_FACTOR.sub("lora_\\1*", name) for name in names]
        factors: dict[str, list[str]] = {}
        for name, label in zip(names, labels, strict=True):
            if label != name:
                factors.setdefault(label, []).append(name)
        if not factors:
            raise ValueError(
                "LoRAClip is for adapters with factors lora_A and lora_B, and the model has none; "
                "add them with peft.get_peft_model, or use FlatClip(norm)"
            )
        for found in factors.values():
            if [_letter(name) for name in found] != ["A", "B"]:
                raise ValueError(
                    "LoRAClip needs both factors of an adapter, lora_A before lora_B, got "
                    f"{found}; make both trainable, or use FlatClip(norm)"
                )
        order = list(dict.fromkeys(labels))
        return [order.index(label) for label in labels]

    def sensitivity(self, names: Sequence[str], sizes: Sequence[int]) -> L2Ball:
        """Return the ball that holds every clipped gradient, in coordinates of products."""
        return L2Ball(sum(sizes), self.norm)

    def _empty_sum(self, layout: Layout, masks: Masks | None) -> ClippedSum:
        from taut.training._tensors.tangent_sum import TangentSum

        return TangentSum(self.norm, *layout)


def _letter(name: str) -> str:
    found = _FACTOR.search(name)
    assert found is not None
    return found[2]
