"""The section of a privacy report about epsilon from both sides."""

from __future__ import annotations

from taut._base.rounding import round_down, round_up
from taut.audit import RunAttack
from taut.report._document.blocks import Paragraph, Plot, Section
from taut.report._privacy.plots import both_sides_plot

__all__ = ["both_sides_section"]


def both_sides_section(attack: RunAttack | None, steps: int | None) -> Section:
    """Return what an attack reached, beside what is certified; empty if there was none.

    Args:
        attack: the attack.
        steps: how many steps the run has taken since, or then; None if that is not known.
    """
    if attack is None:
        return Section("both-sides", "From both sides")
    low, high = round_down(attack.epsilon_lower, 3), round_up(attack.epsilon_upper, 3)
    alt = (
        f"An attack shows that epsilon is at least {low}; it is certified to be at most {high}. "
        "The truth lies between."
    )
    older = ""
    if steps is not None and attack.steps < steps:
        older = (
            f" It is about the first {attack.steps} of {steps} steps: taut audit attacks all of "
            "them."
        )
    return Section(
        "both-sides",
        "From both sides",
        [
            Paragraph(
                f"The best attack on the mechanism that the run states was simulated "
                f"{attack.trials:,} times on each of two neighbouring datasets. It reaches ε of at "
                f"least {low} at δ = {attack.delta:g}, with confidence {attack.confidence:g}; "
                f"certified is at most {high}. An attack on the statement says nothing about the "
                f"code that carried it out.{older}"
            ),
            Plot("both-sides", lambda: both_sides_plot(attack, alt), alt, "The interval of ε."),
        ],
    )
