"""Budgets that are charged before a release."""

import pytest

import taut
from taut.accounting import Ledger, charge
from taut.errors import BudgetExceeded


class Book:
    def __init__(self):
        self.losses = []

    def spend(self, loss):
        self.losses.append(loss)


def test_whatever_takes_losses_is_a_ledger():
    book, loss = Book(), taut.pure(0.5)
    assert isinstance(book, Ledger)
    charge(book, loss)
    assert book.losses == [loss]


def test_nobody_need_keep_a_budget():
    charge(None, taut.pure(0.5))


def test_a_refusal_comes_through():
    with pytest.raises(BudgetExceeded):
        charge(taut.PrivacyFilter(epsilon=0.1, delta=1e-9), taut.gaussian(sigma=1))


def test_a_number_is_no_ledger():
    with pytest.raises(TypeError, match=r"must have a method spend\(loss\), .* got float"):
        charge(1.0, taut.pure(0.5))
