"""Empirical lower bounds on epsilon."""
