"""Tests of a loss at the data at hand, for mechanisms of any kind."""
