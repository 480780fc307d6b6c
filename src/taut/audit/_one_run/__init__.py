"""Audits of one training run, from many canaries."""
