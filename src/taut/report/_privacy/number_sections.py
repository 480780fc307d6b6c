"""The sections of a privacy report that are made of numbers: what the loss says, and others say."""

from __future__ import annotations

from dataclasses import replace

from taut.accounting import Adjacency
from taut.report._document.blocks import Block, Paragraph, Plot, Section, Table, plain
from taut.report._privacy.alternatives import Alternatives
from taut.report._privacy.evidence import Evidence
from taut.report._privacy.findings import ALARMS, Findings
from taut.report._privacy.other_accounts import OtherAccount
from taut.report._privacy.plots import course_plot, profile_plot, tradeoff_plot
from taut.report._privacy.wording import (
    at_least,
    at_most,
    attack_sentence,
    noise,
    number,
    relation_name,
    sampler_name,
    share,
    tiny_at_least,
    tiny_at_most,
)

__all__ = [
    "alternatives_section",
    "attacks_section",
    "bounds_section",
    "course_section",
    "groups_section",
    "other_accounts_section",
]


def attacks_section(findings: Findings) -> Section:
    is_exchange = findings.adjacency is Adjacency.REPLACE
    axes = (
        "How often the best attacker recognises the second of two candidates, against how often "
        "the first is taken for it."
        if is_exchange
        else "The share of members that the best attacker finds, against the share of others that "
        "are falsely accused."
    )
    difference = (
        "Exchanges recognised minus false alarms"
        if is_exchange
        else "Members found minus others accused"
    )
    chance = "which one is used" if is_exchange else "who takes part"
    alt = (
        f"{axes} {attack_sentence(findings)} The dotted diagonal is guessing; everything above the "
        "curve is impossible."
    )
    rows = tuple(
        (f"{100 * rate:g} %", share(findings.found_at(rate)), f"{100 * rate:g} %")
        for rate in ALARMS
    )
    blocks: list[Block] = [
        Paragraph(f"**{attack_sentence(findings)}**"),
        Plot("tradeoff", lambda: tradeoff_plot(findings, alt), alt, "The trade-off curve."),
        Table(
            "The best attacker, whoever it is",
            ("false alarms", "found, at most", "by guessing"),
            rows,
            frozenset({1, 2}),
        ),
        Paragraph(
            f"{difference} is at most {share(findings.advantage)} for every "
            "attacker: the total variation distance, which is δ at ε = 0. If a coin toss "
            f"decides {chance}, nobody can guess its outcome correctly more than "
            f"{share(0.5 + findings.advantage / 2)} of the time."
        ),
        Paragraph(
            "In terms of Gaussian differential privacy: but for "
            f"δ = {number(findings.delta)} the run reveals no more than one Gaussian release with "
            f"μ = {at_most(findings.gaussian.mu.upper)}. The regret of this description is at most "
            f"{share(findings.gaussian.regret)}."
        ),
    ]
    return Section("attacks", "What an attacker can find", blocks)


def bounds_section(findings: Findings) -> Section:
    epsilon = findings.epsilon
    alt = (
        f"δ falls as ε grows; the promise is the point ε = {at_most(epsilon.upper)}, "
        f"δ = {number(findings.delta)}. Crosses mark the lower bound where there is one."
    )
    rows = tuple(
        (number(level), at_least(b.lower), at_most(b.upper)) for level, b in findings.other_deltas
    )
    profile = tuple(
        (f"{p.epsilon:.4g}", tiny_at_least(p.delta.lower), tiny_at_most(p.delta.upper))
        for p in findings.profile
    )
    blocks: list[Block] = [
        Paragraph(
            f"At δ = {number(findings.delta)} the truth is between "
            f"{at_least(epsilon.lower)} and {at_most(epsilon.upper)}. The upper bound "
            "is the promise. The lower bound says how much a better proof could still gain"
            + (
                ": some neighbours really are as easy to tell apart, for an attacker who sees all "
                "that is released."
                if epsilon.lower > 0
                else "; for releases known by Rényi divergences alone none is at hand."
            )
        ),
        Plot(
            "profile",
            lambda: profile_plot(findings, alt),
            alt,
            "One run, every δ. Marks are certified; lines between them guide the eye.",
        ),
    ]
    if rows:
        blocks.append(_bounds_table("The same run at other δ", "δ", "ε", rows))
    curve = _bounds_table("Numbers of the curve", "ε", "δ", profile)
    return Section("bounds", "Both bounds, and other δ", [*blocks, replace(curve, is_folded=True)])


def _bounds_table(title: str, at: str, of: str, rows: tuple[tuple[str, str, str], ...]) -> Table:
    return Table(title, (at, f"{of}, at least", f"{of}, at most"), rows, frozenset({1, 2}))


def course_section(evidence: Evidence, findings: Findings) -> Section:
    course = findings.course
    if not course:
        return Section("course", "Over the run")
    planned = None if evidence.plan is None else evidence.plan.epsilon
    alt = (
        f"ε grows from {at_most(course[0].epsilon)} after the first step to "
        f"{at_most(course[-1].epsilon)} after {course[-1].steps}, fast at first and then ever "
        "more slowly."
    )
    rows = tuple((f"{p.steps}", at_most(p.epsilon)) for p in course)
    blocks: list[Block] = [
        Plot(
            "course",
            lambda: course_plot(findings, planned, alt),
            alt,
            "What was spent after so many steps. Dots are certified; lines guide the eye.",
        ),
        Paragraph(
            "An earlier point is the promise of a run that was planned to stop there. A run that "
            "is stopped because of what came out keeps the promise of the whole plan."
        ),
        Table(
            "Numbers of the curve", ("steps", "ε, at most"), rows, frozenset({1}), is_folded=True
        ),
    ]
    return Section("course", "Over the run", blocks)


def groups_section(findings: Findings, unit: str) -> Section:
    title = "People with several examples"
    if not findings.groups:
        return Section("groups", title)
    one = ("1", at_least(findings.epsilon.lower), at_most(findings.epsilon.upper))
    rows = tuple(
        (f"{g.size}", at_least(g.epsilon.lower), at_most(g.epsilon.upper)) for g in findings.groups
    )
    name = plain(unit) if unit != "example" else "person"
    blocks: list[Block] = [
        Paragraph(
            f"If one {name} has several training examples, the promise to that {name} is weaker. "
            "These are certified too, for adding or removing all of them at once "
            "(`taut.accounting.group_poisson`)."
        ),
        Table(
            f"At δ = {number(findings.delta)}",
            ("examples", "ε, at least", "ε, at most"),
            (one, *rows),
            frozenset({1, 2}),
        ),
    ]
    return Section("groups", title, blocks)


def other_accounts_section(findings: Findings, others: tuple[OtherAccount, ...]) -> Section:
    title = "What other accountants would have said"
    if not others:
        return Section("other-accounts", title)
    upper = findings.epsilon.upper
    rows = [
        ("This report", at_most(upper), "proved", "", "certified from both sides"),
        *(
            (
                other.method,
                at_most(other.epsilon),
                "proved" if other.is_bound else "estimate",
                f"{100 * (other.epsilon / upper - 1):+.1f} %" if upper > 0 else "",
                other.note,
            )
            for other in others
        ),
    ]
    blocks: list[Block] = [
        Paragraph(
            "The same loss by other methods. All were computed here by taut; no other tool was "
            "run. Divergences are computed to some nine digits."
        ),
        Table(
            f"ε at δ = {number(findings.delta)}",
            ("method", "ε", "kind", "against this report", "note"),
            tuple(rows),
            frozenset({1, 3}),
        ),
    ]
    return Section("other-accounts", title, blocks)


def alternatives_section(evidence: Evidence, findings: Findings, found: Alternatives) -> Section:
    title = "Alternatives at equal compute"
    plan = evidence.plan
    if plan is None or not (found.samplers or found.batches):
        return Section("alternatives", title)
    steps = evidence.counted_steps
    samplers = tuple(
        (
            f"{sampler_name(a.name)}, {relation_name(a.adjacency)}",
            at_most(a.epsilon) if a.epsilon is not None else "",
            _noise(a.noise_multiplier),
        )
        for a in found.samplers
    )
    own = (
        f"**This run** ({sampler_name(plan.sampling.name)}, {relation_name(plan.adjacency)})",
        at_most(findings.epsilon.upper),
        noise(plan.noise_multiplier),
    )
    batches = sorted(
        [
            (plan.batch_size, steps or 0, plan.noise_multiplier, True),
            *((a.batch_size, a.steps, a.noise_multiplier, False) for a in found.batches),
        ],
        key=lambda row: row[0],
    )
    blocks: list[Block] = [
        Table(
            "Other ways to draw batches: as many steps, batches as large",
            ("batches", "ε at this noise", "noise multiplier for this ε"),
            (own, *samplers),
            frozenset({1, 2}),
        ),
        Paragraph(
            "Relations differ: add/remove hides whether a record is there, replace hides what it "
            "says, at twice the sensitivity. No amplification is claimed for shuffled epochs."
        ),
        Table(
            f"Other batch sizes: as many gradients, the same ε ≤ {at_most(findings.epsilon.upper)}",
            ("expected batch", "steps", "noise multiplier", "noise of a mean gradient"),
            tuple(
                (
                    f"**{size:g}**" if is_own else f"{size:g}",
                    f"{count}",
                    noise(multiplier) if is_own and multiplier is not None else _noise(multiplier),
                    "" if multiplier is None else f"{multiplier / size:.3g}",
                )
                for size, count, multiplier, is_own in batches
            ),
            frozenset({1, 2, 3}),
        ),
        Paragraph(
            "The noise of a mean gradient is the multiplier over the batch, in clipping norms. How "
            "gradients are clipped (whole, in groups, in subspaces) does not change ε at a given "
            "multiplier; it changes where the noise goes."
        ),
        *_beside_mixing(evidence),
    ]
    return Section("alternatives", title, blocks)


def _beside_mixing(evidence: Evidence) -> list[Block]:
    if evidence.plan is None or evidence.plan.mixing is None:
        return []
    text = (
        "This run has uniform noise besides, which the multiplier leaves out; the other lines have "
        "Gaussian noise alone."
    )
    return [Paragraph(text)]


def _noise(value: float | None) -> str:
    return "none found" if value is None else at_most(value)
