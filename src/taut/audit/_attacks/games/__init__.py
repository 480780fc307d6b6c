"""Plans of another kind than equal steps, in numbers that a claim says all about."""
