"""Logistic regression of several classes by noisy gradients of all records."""
