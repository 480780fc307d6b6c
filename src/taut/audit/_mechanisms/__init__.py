"""Audits of single mechanisms, by their exact likelihood ratios."""
