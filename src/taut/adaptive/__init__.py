"""Data-adaptive release: noise that fits the data at hand, and choices that are paid for.

Quantities that depend on the data are a :class:`Secret` until a mechanism has added noise.
"""

from taut._base import surface
from taut.adaptive._secret import Secret

__all__ = ["Secret"]

surface.claim(globals())
