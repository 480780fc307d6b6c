"""Matrix products: the same by either library, whatever lies how in memory."""

import pytest
import torch

from taut.training._tensors import products
from taut.training._tensors.products import (
    affine,
    inner_products,
    linear_map,
    product_of_transposed,
)

SHAPES = [(7, 3, 5), (300, 40, 9), (300, 9, 40), (20, 400, 3), (1, 1, 1), (50, 1, 4), (0, 3, 2)]


def _close(found, exact, terms):
    # Roundings of a sum of products of normal numbers, which are a few deviations long.
    bound = 4 * terms**0.5 * (1 + terms) ** 0.5 * torch.finfo(found.dtype).eps * 16
    assert found.shape == exact.shape
    assert float((found.double() - exact).abs().max() if exact.numel() else 0) <= bound


@pytest.fixture(params=["oneDNN", "MKL"])
def library(request, monkeypatch):
    if request.param == "MKL":
        monkeypatch.setattr(products, "_ONEDNN", None)
    elif products._ONEDNN is None:
        pytest.skip("torch was built without oneDNN")
    monkeypatch.setattr(products, "_LEAST_WORK", 0)
    return request.param


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("rows", "p", "d"), SHAPES)
def test_products_of_transposed(rows, p, d, dtype):
    bits = torch.Generator().manual_seed(rows)
    left, right = (torch.randn(rows, n, generator=bits, dtype=dtype) for n in (p, d))
    _close(product_of_transposed(left, right), left.double().T @ right.double(), rows)
    assert product_of_transposed(left, right).is_contiguous()


@pytest.mark.usefixtures("library")
def test_values_that_are_repeated_or_turned_in_memory():
    bits = torch.Generator().manual_seed(3)
    wide, row = torch.randn(30, 64, generator=bits), torch.randn(1, 8, generator=bits)
    for left, right in (
        (row.expand(64, 8), wide.T),
        (wide.T, row.expand(64, 8)),
        (wide.T[::2], wide.T[::2]),
    ):
        _close(product_of_transposed(left, right), left.double().T @ right.double(), len(left))
    stacked = row[None].expand(3, 64, 8)
    exact = stacked.double() @ stacked.double().transpose(1, 2)
    _close(inner_products(stacked, stacked), exact, 8)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(("one", "other"), [(4, 4), (3, 6), (1, 2)])
def test_inner_products(one, other):
    bits = torch.Generator().manual_seed(one)
    first, second = (torch.randn(5, n, 12, generator=bits) for n in (one, other))
    exact = first.double() @ second.double().transpose(1, 2)
    _close(inner_products(first, second), exact, 12)


@pytest.mark.usefixtures("library")
def test_linear_maps_take_rows_of_sequences():
    bits = torch.Generator().manual_seed(4)
    sequences, weight = torch.randn(6, 9, 20, generator=bits), torch.randn(11, 20, generator=bits)
    bias, times = torch.randn(11, generator=bits), linear_map(weight)
    for rows in sequences.unbind(1):
        exact = rows.double() @ weight.double().T
        _close(times(rows), exact, 20)
        _close(affine(rows, weight, bias), exact + bias, 20)
        _close(linear_map(weight.T)(times(rows)), exact @ weight.double(), 20 * 20)


def test_numbers_that_are_not_finite_stay_so():
    left, right = torch.ones(40, 6), torch.ones(40, 6)
    left[3, 2] = float("inf")
    right[5, 1] = float("nan")
    found = product_of_transposed(left, right)
    assert not found[2].isfinite().any()
    assert found[:, 1].isnan().all()
    assert found[0, 0] == 40
