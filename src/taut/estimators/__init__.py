"""Estimators for scikit-learn pipelines whose fit is private, and says what it cost."""

from taut._base import surface

__all__: list[str] = []

surface.claim(globals())
