"""The fingerprint of a dataset: a keyed hash that says nothing to whoever lacks the key.

A run that goes on with another dataset should notice it, and its ledger is published. A plain hash
would let anybody test a guess of the data. With a key of its own for every fingerprint, half of
which is a one-time pad, the value is uniform whatever the dataset: it depends on no example.
"""

from __future__ import annotations

import hashlib
import hmac
import random
import secrets
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from taut.training._tensors.examples import length

__all__ = ["KEY_BYTES", "fingerprint", "new_key"]

KEY_BYTES = 64  # 32 for the hash and 32 for the pad, which is as long as the hash
_MOST_EXAMPLES = 128  # read twice each: another share of p in a dataset is seen but (1-p)^128 times
_MOST_BYTES = 1 << 20  # of one value, half of them from its end: what is larger differs there, too
_DEEPEST = 8  # levels of lists and mappings; nobody nests examples deeper


def new_key() -> bytes:
    """Return a key for one fingerprint."""
    return secrets.token_bytes(KEY_BYTES)


def fingerprint(dataset: Any, key: bytes) -> str:
    """Return the fingerprint of a dataset under a key, as hexadecimal digits.

    Args:
        dataset: dataset with `__len__` and `__getitem__`. At most 128 of its examples are read, at
            places that the key decides, so the cost does not grow with its size.
        key: key from `new_key`, for this fingerprint alone.

    What changes from one reading of an example to the next, such as the outcome of a random
    transform with a generator of its own, is left out; generators of torch, NumPy and Python are
    seeded for the reading, and set back after it.

    **Guarantee**: for a uniform key that nobody else has, the fingerprint is uniform, whatever the
    dataset. Datasets of different length, or that differ in an example that was read, have
    different fingerprints, but for a collision of SHA-256.
    """
    secret, pad = key[:32], key[32:]
    examples = length(dataset)
    places = _places(examples, secret)
    first, second = ([_values(dataset, place) for place in places] for _ in range(2))
    unstable = {
        where
        for one, other in zip(first, second, strict=True)
        for where in one.keys() | other.keys()
        if one.get(where) != other.get(where)
    }
    mac = hmac.new(secret, struct.pack(">Q", examples), hashlib.sha256)
    for place, values in zip(places, first, strict=True):
        mac.update(struct.pack(">Q", place))
        for where in sorted(values.keys() - unstable):
            name = where.encode()
            mac.update(struct.pack(">Q", len(name)) + name + values[where])
    return bytes(a ^ b for a, b in zip(mac.digest(), pad, strict=True)).hex()


def _places(examples: int, secret: bytes) -> list[int]:
    """Return which examples are read: all of a few, otherwise as the key decides."""
    if examples <= _MOST_EXAMPLES:
        return list(range(examples))
    drawn = (
        int.from_bytes(hmac.digest(secret, b"place %d" % i, "sha256")) % examples
        for i in range(_MOST_EXAMPLES)
    )
    return sorted(set(drawn))


def _values(dataset: Any, place: int) -> dict[str, bytes]:
    """Return a hash of every value in an example, by where it is."""
    with _seeded():
        return dict(_leaves(dataset[place], "", _DEEPEST))


def _leaves(value: Any, where: str, deeper: int) -> Iterator[tuple[str, bytes]]:
    if is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping) and deeper:
        parts = ((f"{type(key).__name__} {key}", part) for key, part in value.items())
    elif isinstance(value, list | tuple) and deeper:
        parts = ((str(i), part) for i, part in enumerate(value))
    else:
        yield where, _hash_of(value)
        return
    yield f"{where}/", struct.pack(">Q", len(value))
    for name, part in parts:
        yield from _leaves(part, f"{where}/{name}", deeper - 1)


def _hash_of(value: Any) -> bytes:
    """Return a hash of type and content; of a type that is not known, of the type alone."""
    kind, content = type(value).__name__, b""
    if isinstance(value, Tensor) and value.layout == torch.strided and not value.is_nested:
        flat = value.detach().cpu().contiguous().flatten()
        kind, content = f"{value.dtype} {tuple(value.shape)}", _ends(flat.view(torch.uint8).numpy())
    elif isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        whole = np.ascontiguousarray(value)
        kind, content = f"{whole.dtype} {whole.shape}", _ends(whole.reshape(-1).view(np.uint8))
    elif value is None or isinstance(value, bool | int | float | complex):
        content = repr(value).encode()
    elif isinstance(value, str | bytes | bytearray):
        content = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else bytes(value)
    elif callable(getattr(value, "tobytes", None)):  # images, which have a size and a mode
        kind = f"{kind} {getattr(value, 'size', '')} {getattr(value, 'mode', '')}"
        content = value.tobytes()
    return hashlib.sha256(kind.encode() + b"\n" + content).digest()


def _ends(content: np.ndarray[Any, np.dtype[np.uint8]]) -> bytes:
    if len(content) <= _MOST_BYTES:
        return content.tobytes()
    half = _MOST_BYTES // 2
    return content[:half].tobytes() + content[-half:].tobytes()


@contextmanager
def _seeded() -> Iterator[None]:
    """Let generators begin at the same place, and leave them as they were."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002
