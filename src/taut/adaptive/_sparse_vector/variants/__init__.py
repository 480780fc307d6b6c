"""Mechanisms that are made of comparisons with a noisy threshold."""
