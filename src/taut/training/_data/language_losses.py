"""Losses of language models, one for each example: means over the example's own tokens.

The mean over all tokens of a batch, which models return as `.loss`, divides by the tokens of the
other examples: a long text would change the gradients of the short ones beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from torch import Tensor
from torch.nn import functional

__all__ = ["causal_lm_loss", "masked_lm_loss", "seq2seq_loss"]

Labels: TypeAlias = Tensor | Mapping[str, Tensor]
"""Labels, or a batch that holds them."""

IGNORED = -100
"""The label that counts for nothing, as in PyTorch and Hugging Face transformers."""


def causal_lm_loss(outputs: Any, labels: Labels) -> Tensor:
    """Return, for every example, the mean loss of predicting its next tokens.

    Args:
        outputs: logits of shape (examples, tokens, words), or what has them as `logits`.
        labels: the tokens themselves, of shape (examples, tokens), -100 where none counts; or a
            batch that has them as `labels`.

    **Guarantee**: the loss of an example depends on its own logits and labels alone. An example
    without a token that counts has a loss of zero.

    Example:
        >>> import torch
        >>> from taut.training import causal_lm_loss
        >>> labels = torch.tensor([[1, 2, 3], [1, 2, -100]])
        >>> causal_lm_loss(torch.zeros(2, 3, 10), labels)
        tensor([2.3026, 2.3026])
    """
    return _mean_over_tokens(_logits(outputs)[:, :-1], _labels(labels)[:, 1:])


def masked_lm_loss(outputs: Any, labels: Labels) -> Tensor:
    """Return, for every example, the mean loss of its masked tokens, or of labelled ones.

    Args:
        outputs: logits of shape (examples, tokens, words), or what has them as `logits`.
        labels: labels of shape (examples, tokens), -100 where none counts, or a batch that has
            them; for masked language models and for the classification of tokens.

    **Guarantee**: that of `causal_lm_loss`.

    Example:
        >>> import torch
        >>> from taut.training import masked_lm_loss
        >>> masked_lm_loss(torch.zeros(2, 3, 10), torch.tensor([[-100, 2, -100], [-100] * 3]))
        tensor([2.3026, 0.0000])
    """
    return _mean_over_tokens(_logits(outputs), _labels(labels))


def seq2seq_loss(outputs: Any, labels: Labels) -> Tensor:
    """Return, for every example, the mean loss over the tokens of its answer.

    Args:
        outputs: logits of the decoder, of shape (examples, tokens, words), or what has them as
            `logits`; they are those of the labels at the same places.
        labels: labels of shape (examples, tokens), -100 where none counts, or a batch that has
            them.

    **Guarantee**: that of `causal_lm_loss`.

    Example:
        >>> import torch
        >>> from taut.training import seq2seq_loss
        >>> seq2seq_loss(torch.zeros(1, 3, 10), torch.tensor([[4, 2, -100]]))
        tensor([2.3026])
    """
    return _mean_over_tokens(_logits(outputs), _labels(labels))


def _logits(outputs: Any) -> Tensor:
    found = outputs if isinstance(outputs, Tensor) else getattr(outputs, "logits", None)
    if found is None and isinstance(outputs, dict):
        found = outputs.get("logits")
    if not isinstance(found, Tensor) or found.dim() != 3:
        raise ValueError(
            "outputs must be logits of shape (examples, tokens, words) or have them as logits, got "
            f"{type(outputs).__name__}; let the model return them, or use a loss of your own"
        )
    return found


def _labels(labels: Labels) -> Tensor:
    found = labels if isinstance(labels, Tensor) else (labels or {}).get("labels")
    if found is None:
        raise ValueError("there are no labels; let the batch hold them as labels")
    return found


def _mean_over_tokens(logits: Tensor, labels: Tensor) -> Tensor:
    if labels.shape != logits.shape[:2]:
        raise ValueError(
            f"labels must have the shape (examples, tokens) of the logits, got "
            f"{tuple(labels.shape)} for {tuple(logits.shape)}; if examples were packed into one "
            "row, unpack them: a row is what is clipped, and must be one example"
        )
    counts = (labels != IGNORED).to(logits.device)
    losses = functional.cross_entropy(
        logits.transpose(1, 2).float(),
        labels.to(logits.device),
        reduction="none",
        ignore_index=IGNORED,
    )
    return losses.sum(1) / counts.sum(1).clamp(min=1)
