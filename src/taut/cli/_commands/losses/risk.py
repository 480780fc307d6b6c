"""``taut risk``: what an attacker can do with the outputs of a run."""

from typing import Annotated

import typer

from taut._base.rounding import round_down, round_up
from taut.cli._page import mistakes_explained, print_json, print_rows
from taut.cli._run_options import DeltaOption, JsonOption, LossOptions, takes_options

_DIGITS = 4  # of printed numbers; JSON has all of them


_FprOption = Annotated[
    float, typer.Option(help="Share of others that an attacker may falsely accuse.")
]
_PriorOption = Annotated[
    float, typer.Option(help="Probability of membership before any output is seen.")
]


@takes_options
def risk(
    *,
    delta: DeltaOption,
    options: LossOptions,
    fpr: _FprOption = 0.01,
    prior: _PriorOption = 0.5,
    json: JsonOption = False,
) -> None:
    """Certify what an attacker can do: true positives, guesses, and the mu of Gaussian privacy.

    Example: taut risk --sigma 1 --rate 0.01 --steps 10000 --delta 1e-5 --fpr 0.01
    """
    with mistakes_explained():
        total, _ = options.read()
        epsilon, fit = total.epsilon_bounds(delta), total.gdp(delta)
        found, error = total.tpr(fpr), total.bayes_risk(prior)
        if json:
            print_json(
                {
                    "epsilon": epsilon._asdict(),
                    "delta": delta,
                    "mu": fit.mu._asdict(),
                    "regret": fit.regret,
                    "fpr": fpr,
                    "tpr": found,
                    "prior": prior,
                    "bayes_risk": error,
                    "adjacency": str(total.adjacency),
                    "loss": total.to_dict(),
                }
            )
            return
        print_rows(
            [
                ("epsilon", f"{round_up(epsilon.upper, _DIGITS)} at delta {delta:g}"),
                (
                    "mu",
                    f"{round_up(fit.mu.upper, _DIGITS)} (Gaussian privacy but for {delta:g}; "
                    f"at least {round_down(fit.mu.lower, _DIGITS)}, "
                    f"regret at most {round_up(fit.regret, 2)})",
                ),
                (
                    "members found",
                    f"{round_up(100 * found, _DIGITS)} % at most, "
                    f"with {100 * fpr:g} % of others accused",
                ),
                (
                    "wrong guesses",
                    f"{round_down(100 * error, _DIGITS)} % at least, "
                    f"where {100 * prior:g} % are members",
                ),
                ("adjacency", str(total.adjacency)),
            ]
        )
