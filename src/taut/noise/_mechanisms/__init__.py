"""Noise as a mechanism: its loss, its releases, its certificate."""
