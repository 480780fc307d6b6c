"""Estimators that need sums of columns alone: scalings, and naive Bayes."""
