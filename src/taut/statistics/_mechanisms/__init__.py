"""Mechanisms for sorted values and for exact sums: what is drawn, and what it costs."""
