"""Encoders in closed form: no correlation, square roots of workloads, and one step back."""

from __future__ import annotations

from taut._base import validate
from taut.matrix._encoders.toeplitz import InverseToeplitzEncoder, ToeplitzEncoder
from taut.matrix._workloads import Workload

__all__ = ["identity", "inverse_square_root", "lambda_cgd", "square_root"]


def identity(steps: int) -> ToeplitzEncoder:
    """Return independent noise in every step, that of DP-SGD.

    Args:
        steps: number of steps.
    """
    return ToeplitzEncoder(steps, (1.0,))


def square_root(workload: Workload, bands: int | None = None) -> ToeplitzEncoder:
    """Return the banded square root of a workload (BSR).

    Without a limit on the bands it is nearly optimal for one participation. With several, as many
    bands as there are steps between two of them keep the sensitivity low.

    Args:
        workload: answers that are wanted. Learning rates are taken for equal: the encoder then
            fits less well, and is as private.
        bands: number of diagonals that are kept; None for all of them.

    The work is Kalinin and Lampert 2024; for prefix sums without bands, Fichtenberger, Henzinger
    and Upadhyay 2023.

    Example:
        >>> from taut.matrix import Workload, square_root
        >>> square_root(Workload(100), bands=3).bands
        (1.0, 0.5, 0.375)
    """
    validate.instance(Workload, workload=workload)
    return ToeplitzEncoder(
        workload.steps, workload.root_coefficients()[: _bands(workload, bands)].tolist()
    )


def inverse_square_root(workload: Workload, bands: int) -> InverseToeplitzEncoder:
    """Return the matrix whose inverse is the banded inverse square root of a workload (BISR).

    Noise needs the draws of the last ``bands - 1`` steps alone, however far correlations reach.

    Args:
        workload: answers that are wanted; learning rates are taken for equal.
        bands: number of diagonals of the inverse.

    The work is Kalinin, McKenna, Upadhyay and Lampert 2025.

    Example:
        >>> from taut.matrix import Workload, inverse_square_root
        >>> inverse_square_root(Workload(100), bands=3).bands
        (1.0, -0.5, -0.125)
    """
    validate.instance(Workload, workload=workload)
    kept = workload.root_coefficients(inverse=True)[: _bands(workload, bands)]
    return InverseToeplitzEncoder(workload.steps, kept.tolist())


def lambda_cgd(steps: int, weight: float) -> InverseToeplitzEncoder:
    """Return noise that takes back a share of the last step's noise (DP-lambda-CGD).

    Args:
        steps: number of steps.
        weight: share lambda of the last draw that is taken back, in [0, 1). The best share for a
            workload is that of ``banded_inverse(workload, bands=2)``.

    The work is Kalinin, McKenna, Pagh and Lampert 2026.

    Example:
        >>> from taut.matrix import lambda_cgd
        >>> lambda_cgd(100, 0.9).bands
        (1.0, -0.9)
    """
    share = validate.below_one(weight=weight)
    return InverseToeplitzEncoder(steps, (1.0, -share) if steps > 1 else (1.0,))


def _bands(workload: Workload, bands: int | None) -> int:
    return workload.steps if bands is None else validate.positive_integer(bands=bands)
