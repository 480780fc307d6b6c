"""Attention with taps on its projections, which `nn.MultiheadAttention` never calls as layers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from taut.errors import UnsoundConfiguration
from taut.training._gradients.layers.records import Blocks, OuterProduct, Record, Rows, Tap
from taut.training._gradients.layers.rules import linear_records

__all__ = ["attention"]


def attention(
    module: nn.MultiheadAttention,
    tap: Tap,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Return what `nn.MultiheadAttention` does, tapped at every projection."""
    if query.dim() != 3:
        raise UnsoundConfiguration(
            f"attention was given a query of shape {tuple(query.shape)}, without an axis of "
            "examples; give it (batch, length, width), or (length, batch, width)"
        )
    mask = _joint_mask(module, query, key_padding_mask, attn_mask)
    causal = is_causal and key_padding_mask is None and not need_weights
    q, k, v = _projected(module, tap, *_examples_first(module, query, key, value))
    k, v = _extended(module, tap, k, v)
    if mask is not None and k.shape[1] > mask.shape[-1]:
        mask = functional.pad(mask, (0, k.shape[1] - mask.shape[-1]))
    q, k, v = (_heads(part, module.num_heads) for part in (q, k, v))
    dropout = module.dropout if module.training else 0.0
    weights = None
    if need_weights:
        mixed, weights = _mixed(q, k, v, mask, dropout)
        weights = weights.mean(1) if average_attn_weights else weights
    else:
        given = None if causal else mask
        mixed = functional.scaled_dot_product_attention(q, k, v, given, dropout, causal)
    # Laid out by positions, as the layer itself does: dropout after it draws in that order.
    joined = mixed.permute(2, 0, 1, 3).flatten(2)
    out = module.out_proj
    output = tap(
        functional.linear(joined, out.weight, out.bias).transpose(0, 1),
        partial(linear_records, out.weight, out.bias, joined.detach().transpose(0, 1)),
        joined,
    )
    return output if module.batch_first else output.transpose(0, 1), weights


def _examples_first(
    module: nn.MultiheadAttention, query: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return all three with examples first; what was one tensor stays one."""
    if module.batch_first:
        return query, key, value
    turned = {id(given): given.transpose(0, 1) for given in (query, key, value)}
    return turned[id(query)], turned[id(key)], turned[id(value)]


def _joint_mask(
    module: nn.MultiheadAttention,
    query: Tensor,
    padding: Tensor | None,
    mask: Tensor | None,
) -> Tensor | None:
    """Return both masks as what is added to the scores, or None."""
    batch = query.shape[0 if module.batch_first else 1]
    joint = None
    if mask is not None:
        joint = _added(mask, query)
        joint = joint if joint.dim() == 2 else joint.view(batch, module.num_heads, *mask.shape[1:])
    if padding is not None:
        keys = _added(padding, query)[:, None, None, :]
        joint = keys if joint is None else joint + keys
    return joint


def _added(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(like.dtype)
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill_(mask, -math.inf)


def _projected(
    module: nn.MultiheadAttention, tap: Tap, query: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    whole, bias = module.in_proj_weight, module.in_proj_bias
    if whole is not None and query is key and key is value:
        records = partial(linear_records, whole, bias, query.detach())
        q, k, v = tap(functional.linear(query, whole, bias), records, query).chunk(3, -1)
        return q, k, v
    weights = whole.chunk(3) if whole is not None else (
        module.q_proj_weight, module.k_proj_weight, module.v_proj_weight
    )  # fmt: skip
    biases = (None, None, None) if bias is None else bias.chunk(3)
    inputs = (query, key, value)
    parts = [
        functional.linear(given, weight, shift)
        for given, weight, shift in zip(inputs, weights, biases, strict=True)
    ]
    kept = tuple(given.detach() for given in inputs)
    # One tap for all three: blocks of one matrix must become one record.
    joined = tap(
        torch.cat([part.flatten(1) for part in parts], 1),
        partial(_projection_records, module, kept),
        *inputs,
    )
    split = joined.split([part.shape[1] * part.shape[2] for part in parts], 1)
    q, k, v = (flat.view(part.shape) for flat, part in zip(split, parts, strict=True))
    return q, k, v


def _projection_records(
    module: nn.MultiheadAttention, inputs: tuple[Tensor, ...], grads: Tensor
) -> Iterator[Record]:
    width = module.embed_dim
    sizes = [given.shape[1] * width for given in inputs]
    parts = [flat.view(len(flat), -1, width) for flat in grads.split(sizes, 1)]
    bias = module.in_proj_bias
    if bias is not None and bias.requires_grad:
        yield Rows(bias, torch.cat([part.sum(1) for part in parts], 1))
    whole: Tensor | None = module.in_proj_weight
    if whole is None:
        matrices = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
        for matrix, given, part in zip(matrices, inputs, parts, strict=True):
            yield from linear_records(matrix, None, given, part)
    elif whole.requires_grad:
        blocks = zip(whole.chunk(3), parts, inputs, strict=True)
        yield Blocks(
            whole,
            [OuterProduct(block, part, given.to(part.dtype)) for block, part, given in blocks],
        )


def _extended(
    module: nn.MultiheadAttention, tap: Tap, k: Tensor, v: Tensor
) -> tuple[Tensor, Tensor]:
    """Return keys and values with the learnt one and the zero that the layer may add."""
    if module.bias_k is not None and module.bias_v is not None:
        k = torch.cat([k, _copies(module.bias_k, len(k), tap)], 1)
        v = torch.cat([v, _copies(module.bias_v, len(v), tap)], 1)
    if module.add_zero_attn:
        k, v = (functional.pad(part, (0, 0, 0, 1)) for part in (k, v))
    return k, v


def _copies(parameter: Tensor, batch: int, tap: Tap) -> Tensor:
    def records(grads: Tensor) -> Iterator[Record]:
        if parameter.requires_grad:
            yield Rows(parameter, grads)

    return tap(parameter.repeat(batch, 1, 1), records)


def _heads(values: Tensor, heads: int) -> Tensor:
    """Return values of shape (batch, length, width) as (batch, heads, length, width / heads)."""
    batch, length, width = values.shape
    return values.view(batch, length, heads, width // heads).transpose(1, 2)


def _mixed(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float
) -> tuple[Tensor, Tensor]:
    scores = (q * math.sqrt(1.0 / q.shape[-1])) @ k.transpose(-2, -1)
    weights = functional.softmax(scores if mask is None else scores + mask, dim=-1)
    weights = functional.dropout(weights, dropout) if dropout > 0 else weights
    return weights @ v, weights
