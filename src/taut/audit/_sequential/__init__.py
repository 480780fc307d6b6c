"""Audits that look at every run as it comes, and stop when a claim is refuted."""
