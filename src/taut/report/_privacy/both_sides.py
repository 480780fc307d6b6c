"""The section of a privacy report about epsilon from both sides."""

from __future__ import annotations

from taut._base.rounding import round_down, round_up
from taut.audit import RunAttack
from taut.report._document.blocks import Paragraph, Plot, Section
from taut.report._privacy.plots import both_sides_plot

__all__ = ["both_sides_section"]


def both_sides_section(attack: RunAttack | None) -> Section:
    """Return what an attack reached, beside what is certified; empty if there was none."""
    if attack is None:
        return Section("both-sides", "From both sides")
    low, high = round_down(attack.epsilon_lower, 3), round_up(attack.epsilon_upper, 3)
    alt = (
        f"An attack shows that epsilon is at least {low}; it is certified to be at most {high}. "
        "The truth lies between."
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
                "code that carried it out."
            ),
            Plot("both-sides", lambda: both_sides_plot(attack, alt), alt, "The interval of ε."),
        ],
    )
