"""The section of a privacy report about noise that is correlated over steps."""

from __future__ import annotations

from taut.report._document.blocks import Block, Paragraph, Section, Table
from taut.report._privacy.evidence import Evidence

__all__ = ["correlated_section"]

_SEEN, _HIDDEN = "seen, and counted", "hidden"
_BATCHES = {
    "fixed_order": ("which examples a step looks at: one public order", _SEEN),
    "balls_in_bins": ("in which steps of all epochs an example takes part", _HIDDEN),
}
_IN_GROUPS = ("in which steps of its public group an example takes part", _HIDDEN)


def correlated_section(evidence: Evidence) -> Section:
    """Return what is seen and what is hidden of a run; empty if its noise is independent."""
    plan, blocks = evidence.plan, list[Block]()
    if plan is not None and plan.encoder is not None:
        rows = (
            ("noisy gradients, weights and states of the optimizer, after every step", _SEEN),
            _BATCHES.get(plan.sampling.name, _IN_GROUPS),
            ("independent noise, of which that of every step is made; its keys", _HIDDEN),
            ("noise of steps that a crash has lost", "given to nobody"),
        )
        blocks = [
            Paragraph(
                "The noise of a step takes back part of the noise of earlier steps, so that the "
                "weights, which are sums of all of them, have less. Whoever learns the independent "
                "noise behind it can subtract it: `private.noise` must never be published."
            ),
            Table("What is seen, what is hidden", ("of the run", "is"), rows),
            Paragraph(
                "What is certified is the loss of all planned steps, spent with the first one: a "
                "run that ends early has cost as much."
            ),
        ]
    return Section("correlated", "Correlated noise: what is seen, what is hidden", blocks)
