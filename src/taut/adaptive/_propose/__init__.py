"""Propose a bound, test it privately, release within it: or refuse, at the same price."""
