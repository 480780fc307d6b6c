"""The section of a privacy report about secrets that were planted in the training data."""

from __future__ import annotations

import math
from collections.abc import Mapping

from taut.audit import Exposure
from taut.report._document.blocks import Block, Paragraph, Section, Table, plain
from taut.report._privacy.evidence import Evidence
from taut.report._privacy.wording import share

__all__ = ["exposures_section"]


def exposures_section(exposures: Mapping[str, Exposure], evidence: Evidence, unit: str) -> Section:
    """Return what models remember of planted secrets, and what anybody could find at most."""
    blocks: list[Block] = []
    if exposures:
        rows = tuple(_row(name, found) for name, found in exposures.items())
        header = ("model", "first guess is right", "mean exposure", "largest exposure")
        blocks = [
            Paragraph(
                f"Secrets were made up and planted in the training data, each in one {unit}. The "
                "exposure of a secret that is the r-th most likely of n candidates is log2(n / r) "
                "bits. This is a measurement of one attack, and proves nothing about others."
            ),
            Table("What the model remembers", header, rows, frozenset({1, 2, 3})),
            *(Paragraph(_bound(n, evidence)) for n in _sizes(exposures)),
        ]
    return Section("exposure", "Planted secrets", blocks)


def _row(name: str, found: Exposure) -> tuple[str, ...]:
    return (
        plain(name),
        f"{found.extracted} of {len(found.ranks)}",
        f"{found.mean:.1f} bits (blind: {found.blind:.1f})",
        f"{max(found.bits):.1f} of {math.log2(found.candidates):.1f} bits",
    )


def _sizes(exposures: Mapping[str, Exposure]) -> list[int]:
    return sorted({found.candidates for found in exposures.values()})


def _bound(candidates: int, evidence: Evidence) -> str:
    most = Exposure([1], candidates).most_found(evidence.loss)
    return (
        "Certified for this run: whoever knows all other data finds a secret that was drawn from "
        f"{candidates:,} values with probability at most {share(most)}, with one guess and "
        "whatever they compute."
    )
