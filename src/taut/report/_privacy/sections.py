"""The sections of a privacy report."""

from __future__ import annotations

from taut.accounting import Adjacency
from taut.report._document.blocks import (
    Block,
    Cards,
    Code,
    Items,
    Notice,
    Paragraph,
    Section,
    Table,
    code,
    plain,
)
from taut.report._privacy.alternatives import Alternatives
from taut.report._privacy.correlated import correlated_section
from taut.report._privacy.evidence import Evidence
from taut.report._privacy.findings import Findings
from taut.report._privacy.number_sections import (
    alternatives_section,
    attacks_section,
    bounds_section,
    course_section,
    groups_section,
    other_accounts_section,
)
from taut.report._privacy.other_accounts import OtherAccount
from taut.report._privacy.provenance import (
    About,
    assumptions_section,
    recipe,
    recompute_section,
    record_section,
)
from taut.report._privacy.wording import (
    at_least,
    at_most,
    batches,
    noises,
    not_promised,
    number,
    plain_words,
    promise,
    rates,
    release_name,
    sampler_name,
    seen_by,
    share,
    warnings_of,
)
from taut.training import Plan

__all__ = ["model_card_section", "sections_of"]

_MOST_RELEASES = 24  # distinct ones in a table; a schedule may have a thousand
_PUBLISHED = (
    "Every update of the weights counts as published: the noisy mean gradient of every step, and "
    "with it all that can be computed from these without looking at the examples again, such as "
    "the final weights, averages of weights, checkpoints and the state of the optimizer."
)
_PUBLISHED_MIXED = (
    "The weights after every step count as published, and with them all that can be computed from "
    "these without looking at the examples again, such as averages of weights and checkpoints. "
    "Noisy gradients do not: weights were mixed at random before each step, and whoever learns a "
    "gradient or the mixing is held by the Gaussian noise alone."
)


def sections_of(
    evidence: Evidence,
    findings: Findings,
    others: tuple[OtherAccount, ...],
    alternatives: Alternatives,
    unit: str,
    about: About,
    exposures: Section,
    both_sides: Section,
) -> list[Section]:
    """Return the whole report."""
    sections = [
        _guarantee(evidence, findings, unit),
        _in_plain_words(evidence, findings, unit),
        record_section(evidence, about),
        _released(evidence),
        correlated_section(evidence),
        attacks_section(findings),
        exposures,
        both_sides,
        bounds_section(findings),
        course_section(evidence, findings),
        groups_section(findings, unit),
        other_accounts_section(findings, others),
        alternatives_section(evidence, findings, alternatives),
        assumptions_section(evidence, findings, unit),
        recompute_section(evidence),
    ]
    return [section for section in sections if section.blocks or section.parts]


def model_card_section(evidence: Evidence, findings: Findings, unit: str) -> Section:
    """Return what belongs into the card of a model."""
    blocks: list[Block] = [
        Paragraph(promise(evidence, findings, unit)),
        *(Notice(text) for text in warnings_of(evidence, unit)),
        Paragraph(plain_words(evidence, findings, unit)),
        _parameters(evidence, findings),
        Paragraph("What was not promised:"),
        Items(not_promised(evidence, unit)),
        Paragraph(recipe(evidence)[0]),
        Code(recipe(evidence)[1]),
    ]
    return Section("privacy", "Differential privacy", blocks)


def _guarantee(evidence: Evidence, findings: Findings, unit: str) -> Section:
    epsilon = findings.epsilon
    is_exchange = findings.adjacency is Adjacency.REPLACE
    cards = (
        ("ε, certified", f"≤ {at_most(epsilon.upper)}", f"at δ = {number(findings.delta)}"),
        (
            "The truth is",
            f"≥ {at_least(epsilon.lower)}",
            f"for someone who sees every {seen_by(evidence)}: against them, no proof can promise "
            "less"
            if epsilon.lower > 0
            else "nothing is known from below for such releases",
        ),
        (
            "At 5 % false alarms",
            f"≤ {share(findings.found_at(0.05))}",
            "of exchanges are recognised" if is_exchange else "of members are found",
        ),
        (
            "Attacker's advantage",
            f"≤ {share(findings.advantage)}",
            "recognised minus false alarms (total variation)"
            if is_exchange
            else "found minus falsely accused (total variation)",
        ),
    )
    blocks: list[Block] = [Paragraph(promise(evidence, findings, unit)), Cards(cards)]
    blocks += [Notice(text) for text in warnings_of(evidence, unit)]
    return Section("guarantee", "The guarantee", blocks)


def _in_plain_words(evidence: Evidence, findings: Findings, unit: str) -> Section:
    promised = Section(
        "promised", "What was promised", [Paragraph(plain_words(evidence, findings, unit))]
    )
    omitted = Section(
        "not-promised", "What was not promised", [Items(not_promised(evidence, unit))]
    )
    return Section("plain-words", "In plain words", (), [promised, omitted])


def _released(evidence: Evidence) -> Section:
    blocks: list[Block] = []
    if evidence.description is not None:
        blocks.append(Paragraph(plain(evidence.description)))
    plan = evidence.plan
    if plan is not None:
        blocks.append(Paragraph(_PUBLISHED if plan.mixing is None else _PUBLISHED_MIXED))
        if plan.clipping.releases_more:
            blocks.append(
                Paragraph(
                    "The clipping publishes more than gradients at every step, such as a noisy "
                    "count; the loss below covers that too."
                )
            )
    shown = evidence.loss.terms[:_MOST_RELEASES]
    rows = [(f"{n}", code(release_name(r, evidence))) for r, n in shown]
    if len(evidence.loss.terms) > len(shown):
        rest = evidence.loss.terms[_MOST_RELEASES:]
        rows.append((f"{sum(n for _, n in rest)}", f"{len(rest)} further releases of this kind"))
    blocks.append(Table("What the accountant counts", ("times", "release"), tuple(rows)))
    if plan is not None:
        blocks.append(_settings(evidence))
    return Section("released", "What was released", blocks)


def _counted(plan: Plan) -> str:
    if plan.unit is None:
        return "training examples"
    return f"owners, {plan.unit.examples_each} examples of each in a step"


def _settings(evidence: Evidence) -> Table:
    plan = evidence.plan
    assert plan is not None
    rows = [
        (_counted(plan), f"{plan.examples}"),
        ("expected batch", batches(plan)),
        ("sampling", f"{sampler_name(plan.sampling.name)}, {rates(plan)}"),
        ("steps planned", f"{plan.steps} ({plan.epochs:.4g} epochs)"),
        ("steps counted", f"{evidence.counted_steps}"),
    ]
    if evidence.updates is not None:
        rows.append(("updates in the final weights", f"{evidence.updates}"))
    rows += [
        ("clipping", code(repr(plan.clipping))),
        ("noise multiplier", noises(plan)),
        *([] if plan.mixing is None else [("mixing", code(repr(plan.mixing)))]),
        ("randomness", _randomness(evidence)),
    ]
    return Table("How it was trained", ("setting", "value"), tuple(rows))


def _randomness(evidence: Evidence) -> str:
    if evidence.is_secure is None:
        return "not recorded"
    return "secure generator" if evidence.is_secure else "a seed, for an experiment"


def _parameters(evidence: Evidence, findings: Findings) -> Table:
    bounds = (
        ("ε (certified upper bound)", at_most(findings.epsilon.upper)),
        ("ε (certified lower bound)", at_least(findings.epsilon.lower)),
        ("δ", f"{number(findings.delta)}"),
        ("adjacency", code(evidence.loss.adjacency)),
        ("advantage of an attacker, at most", share(findings.advantage)),
    )
    rest = () if evidence.plan is None else _settings(evidence).rows
    return Table("The promise and its settings", ("quantity", "value"), (*bounds, *rest))
