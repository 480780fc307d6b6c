"""The words of a privacy report: the promise, what it means, and what it rests on."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from taut._base.rounding import round_down, round_up, scientific_down, scientific_up
from taut.accounting import Adjacency
from taut.report._document.blocks import plain
from taut.report._privacy.evidence import Evidence
from taut.report._privacy.findings import Findings
from taut.training import Plan

__all__ = [
    "Assumption",
    "assumptions",
    "at_least",
    "at_most",
    "attack_sentence",
    "batches",
    "item_of",
    "noise",
    "noises",
    "not_promised",
    "number",
    "plain_words",
    "promise",
    "rates",
    "relation",
    "relation_name",
    "release_name",
    "sampler_name",
    "seen_by",
    "share",
    "tiny_at_least",
    "tiny_at_most",
    "warnings_of",
]

_DIGITS = 4
_HARDLY = 20.0  # an epsilon from which on one outcome may be half a billion times as likely
_NAMES = {
    Adjacency.ADD_REMOVE: "add/remove",
    Adjacency.ADD: "add",
    Adjacency.REMOVE: "remove",
    Adjacency.REPLACE: "replace-one",
    Adjacency.ZERO_OUT: "zero-out",
}
_RELATIONS = {
    Adjacency.ADD_REMOVE: "one {unit} more or less in the training data",
    Adjacency.ADD: "one {unit} more in the training data",
    Adjacency.REMOVE: "one {unit} less in the training data",
    Adjacency.REPLACE: "one {unit} in the training data exchanged for another",
    Adjacency.ZERO_OUT: "one {unit} in the training data blanked out",
}


def at_most(value: float) -> str:
    """Return an upper bound, rounded up."""
    return "infinite" if math.isinf(value) else round_up(value, _DIGITS)


def at_least(value: float) -> str:
    """Return a lower bound, rounded down."""
    return "infinite" if math.isinf(value) else round_down(value, _DIGITS)


def noise(value: float) -> str:
    """Return a noise multiplier as it is printed everywhere: what there was, rounded down."""
    return round_down(value, 6)


def noises(plan: Plan) -> str:
    """Return the noise multiplier of a plan, from the least to the largest if it changes."""
    least, most = plan.noise_range
    return noise(least) if least == most else f"{noise(least)} to {noise(most)}, by a schedule"


def rates(plan: Plan) -> str:
    """Return the rate of a plan, from the least to the largest if it changes."""
    least, most = plan.rate_range
    return f"rate {least:.6g}" if least == most else f"rates {least:.6g} to {most:.6g}"


def batches(plan: Plan) -> str:
    """Return the expected batch of a plan, from the least to the largest if it changes."""
    if plan.rate_schedule is None:
        return f"{plan.batch_size:g}"
    least, most = (rate * plan.examples for rate in plan.rate_range)
    return f"{least:g} to {most:g}, {plan.batch_size:.6g} on average"


def release_name(release: object, evidence: Evidence) -> str:
    """Return the call that makes a release, with the noise of the plan as it is printed."""
    text, plan = str(release), evidence.plan
    if plan is None:
        return text
    sigma = plan.noise_multiplier
    return text.replace(f"sigma={sigma:g},", f"sigma={noise(sigma)},")


def number(value: float) -> str:
    """Return a number that is given, not rounded, such as a delta."""
    return re.sub(r"e([+-])0", r"e\1", f"{value:g}")


def tiny_at_most(value: float) -> str:
    """Return an upper bound on a small probability, rounded up."""
    return scientific_up(value, 3)


def tiny_at_least(value: float) -> str:
    """Return a lower bound on a small probability, rounded down."""
    return scientific_down(value, 3)


def relation_name(adjacency: Adjacency) -> str:
    """Return how a relation is called in prose."""
    return _NAMES[adjacency]


def sampler_name(name: str) -> str:
    """Return how a sampling is called in prose."""
    return name.replace("_", " ").replace("poisson", "Poisson")


def share(value: float) -> str:
    """Return an upper bound on a probability in per cent, rounded up."""
    return f"{round_up(min(100 * value, 100.0), 3)} %"


def relation(evidence: Evidence, unit: str) -> str:
    """Return what the two datasets are that cannot be told apart."""
    who = plain(unit)
    if evidence.has_owners:
        who += " with all of its examples"
    elif unit != "example":
        who += f" with a single {item_of(evidence)}"
    text = _RELATIONS[evidence.loss.adjacency].format(unit=who)
    return text if evidence.plan is not None else text.replace("the training data", "the data")


def item_of(evidence: Evidence) -> str:
    """Return what the proof is about."""
    return "training example" if evidence.plan is not None else "record"


def promise(evidence: Evidence, findings: Findings, unit: str) -> str:
    """Return the guarantee in one sentence."""
    epsilon = at_most(findings.epsilon.upper)
    # Beyond, the factor leaves the range of floats.
    is_countable = findings.epsilon.upper < 700
    factor = at_most(math.exp(findings.epsilon.upper)) if is_countable else f"e^{epsilon}"
    what = "This training run" if evidence.plan is not None else "This release"
    extra = "" if findings.delta == 0 else f", except with probability {number(findings.delta)}"
    words = (
        f"{what} is **(ε = {epsilon}, δ = {number(findings.delta)})-differentially private** under "
        f"{relation_name(evidence.loss.adjacency)} adjacency: {relation(evidence, unit)} makes "
        f"any outcome at most {factor} times as likely{extra}, even for someone who sees every "
        f"{seen_by(evidence)}."
    )
    return words if evidence.is_secure is not False else f"**As an experiment only:** {words}"


def seen_by(evidence: Evidence) -> str:
    """Return what somebody sees every one of, against whom the promise is made."""
    if evidence.plan is None:
        return "output"
    return "released state of the weights" if evidence.is_mixed else "update"


def attack_sentence(findings: Findings) -> str:
    """Return what the best attacker achieves at 5 % false alarms."""
    if findings.adjacency is Adjacency.REPLACE:
        return (
            f"An attacker who has to tell which of two candidates was used, and may take the first "
            f"for the second 5 % of the time, recognises the second at most "
            f"{share(findings.found_at(0.05))} of the time; guessing does 5 %."
        )
    return (
        f"An attacker who accepts 5 % false alarms finds at most "
        f"{share(findings.found_at(0.05))} of those who took part; guessing finds "
        f"5 %."
    )


def plain_words(evidence: Evidence, findings: Findings, unit: str) -> str:
    """Return what was promised, for readers who know nothing of differential privacy."""
    name = plain(unit)
    what = "The model was trained" if evidence.plan is not None else "The results were computed"
    found = share(findings.found_at(0.05))
    who = "it" if unit == "example" else f"that {name}"
    known = f"whether {who} took part"
    if findings.adjacency is Adjacency.REPLACE:
        known = f"with which of two versions {who} took part"
    return (
        f"{what} with random noise that hides, to a degree that can be computed, what any one "
        f"{name} has added to it. Suppose that somebody knows everything about one {name} except "
        f"{known}, sees all that is listed below, and has unlimited computing power. If they "
        f"are willing to be wrong in 5 of 100 cases where the answer is no, they are right in at "
        f"most {found} of the cases where it is yes; who looks at nothing and guesses is right in "
        f"5 %. No cleverer attack and no other data can raise that number.{_if_weak(findings)}"
    )


def _if_weak(findings: Findings) -> str:
    if findings.epsilon.upper < _HARDLY:
        return ""
    return (
        " **That is hardly a promise:** with an ε this large, some outcomes can give a member away "
        "almost surely."
    )


def _several(evidence: Evidence, name: str) -> str:
    if evidence.has_owners:
        return (
            f"**Nothing for several owners at once.** The number is for one {name} with all of its "
            "examples, as far as they were given under one name. Whoever has several names, or is "
            "spoken of in the examples of others, is protected less."
        )
    return (
        f"**Nothing for several examples at once.** The number is for one {name} with one training "
        "example. Whoever has more of them, or relatives and copies in the data, is protected "
        "less."
    )


def not_promised(evidence: Evidence, unit: str) -> tuple[str, ...]:
    """Return what readers may think was promised, and was not."""
    name = plain(unit)
    found = [
        "**No secrets about people in general.** What the data say about a whole population is "
        "learnt on purpose, and applies to those who took part as to everybody else.",
        _several(evidence, name),
        "**Nothing about what was published besides this:** losses or accuracies on training "
        "examples, logs, other models from the same data. Their cost adds to this one.",
        "**No accuracy, fairness or security.** Noise protects from what is published, not from "
        "somebody who takes the data itself.",
    ]
    if evidence.plan is None:
        found[2] = (
            "**Nothing about what else was published from the same data.** The cost of that adds "
            "to this one."
        )
        found[1] = (
            f"**Nothing for several records at once.** The number is for one {name} with one "
            "record. Whoever has more of them is protected less."
        )
    return tuple(found)


def warnings_of(evidence: Evidence, unit: str) -> tuple[str, ...]:
    """Return what must not be overlooked."""
    found = []
    plan = evidence.plan
    if evidence.is_secure is False:
        found.append(
            "Noise and batches came from a seed. Whoever knows or guesses it can subtract the "
            "noise, so this is an experiment and no promise to anybody. Train again with the "
            "secure generator, which is the default."
        )
    if plan is not None and evidence.is_unfinished:
        counted = evidence.counted_steps or 0
        done = counted if evidence.updates is None else evidence.updates
        found.append(
            f"The weights have had {done} of {plan.steps} planned updates: {counted - done} steps "
            "were taken twice, after the run had been interrupted or killed, and count twice."
            if counted >= plan.steps
            else f"The run made {done} of {plan.steps} planned updates. If it was ended because of "
            f"what came out, claim the ε of the whole plan instead: {at_most(plan.epsilon)}."
        )
    if plan is not None:
        found += [f"{plain(note)}." for note in plan.notes]
    if evidence.has_owners and unit != "owner":
        found.append(
            f"The proof is about one owner. It is about one {plain(unit)} if all examples of every "
            f"{plain(unit)} were given under one name; nothing in the run can check that."
        )
    elif unit != "example" and plan is not None and not evidence.has_owners:
        found.append(
            f"The proof is about one training example. It is about one {plain(unit)} if every "
            f"{plain(unit)} has at most one of them; nothing in the run can check that."
        )
    return tuple(found)


@dataclass(frozen=True)
class Assumption:
    """Something that must hold, whether it was checked, and by what."""

    claim: str
    status: str
    how: str


_ENFORCED, _RECORDED, _OPEN = "enforced", "recorded", "cannot be checked"


def assumptions(evidence: Evidence, findings: Findings, unit: str) -> tuple[Assumption, ...]:
    """Return what the promise rests on."""
    general = [
        Assumption(
            "Every number here follows from the loss stated above.",
            "checked",
            f"computed again for this report, by the {findings.explanation.engine} of "
            "`taut.accounting`, with bounds from both sides",
        ),
        *(
            Assumption("A bound rests on more than published proofs.", _OPEN, plain(caveat))
            for caveat in findings.explanation.caveats
        ),
    ]
    if evidence.plan is None:
        return (
            *general,
            Assumption(
                "The releases, their noise and samplers are those of the loss, and noise comes "
                "from a secure generator.",
                _OPEN,
                "a loss says what was meant to be released, not what was",
            ),
            *_always(evidence, unit),
        )
    return (*general, *_of_training(evidence), *_always(evidence, unit))


def _hidden_batches(plan: Plan, kind: str) -> tuple[Assumption, ...]:
    return (
        Assumption(
            f"Batches are drawn by {kind} sampling, afresh "
            f"{'at every step' if plan.sampling.epoch_steps == 1 else 'in every epoch'}.",
            _ENFORCED,
            "`taut.training.PrivateLoader`, from the same plan that is accounted for",
        ),
        Assumption(
            f"Nobody learns which {'examples' if plan.unit is None else 'owners'} were in a batch.",
            _OPEN,
            "depends on who could watch the machine, its logs and its timing",
        ),
    )


def _order_of_batches(sampling: str) -> Assumption:
    """Return what is known about who is in which batch of a run with correlated noise."""
    loader = "`taut.training.PrivateLoader`, from the same plan that is accounted for"
    if sampling == "fixed_order":
        return Assumption(
            "Batches come in one fixed order, which is public and hides nothing.",
            _ENFORCED,
            loader,
        )
    apart = (
        "The steps of an example are drawn in secret, once for all epochs, and stay the same after "
        "a stop."
        if sampling == "balls_in_bins"
        else "The groups of examples are public; in which steps of its group an example takes part "
        "is drawn in secret, and stays the same after a stop."
    )
    return Assumption(apart, _ENFORCED, f"{loader}, with a key that `private.noise` keeps")


def _correlated(sampling: str) -> tuple[Assumption, ...]:
    """Return what is seen and what is hidden if noise is correlated over steps."""
    return (
        _order_of_batches(sampling),
        Assumption(
            "Correlated noise: every update is seen, the independent noise behind it is hidden.",
            _OPEN,
            "the keys in `private.noise` must stay secret; with them noise can be subtracted"
            + ("" if sampling == "fixed_order" else ", and batches can be drawn again"),
        ),
        Assumption(
            "No two sums are released under the same noise.",
            _ENFORCED,
            "`taut.training.PrivateTrainer`: steps that a crash has lost are left out, and every "
            "session has a key of its own",
        ),
    )


def _of_training(evidence: Evidence) -> list[Assumption]:
    plan = evidence.plan
    assert plan is not None
    kind = sampler_name(plan.sampling.name)
    mixing = Assumption(
        "Noisy gradients, mixed states and the random numbers of the mixing stay secret.",
        _ENFORCED,
        "`taut.training.PrivateTrainer` shows none of them; callbacks and logs of your own could",
    )
    return [
        *([mixing] if evidence.is_mixed else []),
        Assumption(
            f"No {'example' if plan.unit is None else 'owner'} moves a sum of gradients by more "
            "than its clipping allows.",
            _ENFORCED,
            "`taut.training.extend.PrivateGradient`, which compares the gradients of the first "
            "batch with plain autograd; the model is checked by `taut.training.check_model`",
        ),
        *(_hidden_batches(plan, kind) if plan.encoder is None else _correlated(plan.sampling.name)),
        _generator(evidence),
        Assumption(
            "Noise is a real number.",
            _OPEN,
            "floating-point noise has a pattern in its last bits; the proof is for those who see "
            "parameters, not for those who know every sum to the last bit (Mironov 2012)",
        ),
        _counting(evidence),
        Assumption(
            "Plan, model and number of steps were chosen without these data.",
            _OPEN,
            "runs to choose a learning rate or a norm on the same data cost as much as this one, "
            "and add to it",
        ),
        Assumption(
            f"The number of {'training examples' if plan.unit is None else 'owners'}, "
            f"{plan.examples}, is no secret.",
            _OPEN,
            "it is stated in this report and, divided into the batch size, decides the sampling "
            "rate",
        ),
        Assumption(
            "The weights at the start and all public data have seen none of these examples.",
            _OPEN,
            "a model that was trained on them before has spent a loss of its own",
        ),
    ]


def _generator(evidence: Evidence) -> Assumption:
    claim = "Noise and batches come from a secure generator."
    if evidence.is_secure is None:
        return Assumption(claim, _OPEN, "not recorded: the run has not written its result")
    if not evidence.is_secure:
        return Assumption(claim, "does not hold", "the run used `SeededForExperiments`")
    return Assumption(claim, _RECORDED, "`is_secure` in the result of the run")


def _counting(evidence: Evidence) -> Assumption:
    claim = "Every update was counted before anybody could see it."
    how = "`taut.training.RunLedger`, which writes to the disk before the optimizer steps"
    if evidence.history is None:
        return Assumption(claim, _ENFORCED, f"{how}; the ledger was not read for this report")
    return Assumption(claim, _ENFORCED, f"{how}; compared now: {'; '.join(evidence.checks)}")


def _always(evidence: Evidence, unit: str) -> list[Assumption]:
    name, item = plain(unit), item_of(evidence)
    if evidence.has_owners:
        claim = f"All examples of one {name} were given under one name, and are about no other."
    elif unit != "example":
        claim = f"One {name} is one {item}."
    else:
        claim = f"Whoever is to be protected has one {item}."
    return [
        Assumption(claim, _OPEN, "only those who collected the data know"),
        Assumption(
            "Nothing else was released from the same data.",
            _OPEN,
            "if something was, add the losses and report the sum",
        ),
    ]
