"""The privacy report of a training run, for those who publish it and for those who review it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taut._base.json_numbers import json_numbers
from taut.accounting import Adjacency, Bounds, PrivacyLoss
from taut.audit import Exposure, RunAttack
from taut.errors import UnsoundConfiguration
from taut.report._document.blocks import Section, inline_html, markdown_of, plain, unmarked
from taut.report._document.html import html_page
from taut.report._privacy.alternatives import Alternative, Alternatives, alternatives
from taut.report._privacy.both_sides import both_sides_section
from taut.report._privacy.evidence import Evidence, evidence_of
from taut.report._privacy.exposures import exposures_section
from taut.report._privacy.findings import Findings
from taut.report._privacy.other_accounts import OtherAccount, other_accounts
from taut.report._privacy.provenance import About, versions
from taut.report._privacy.sections import model_card_section, sections_of
from taut.report._privacy.wording import (
    assumptions,
    attack_sentence,
    not_promised,
    plain_words,
    promise,
    warnings_of,
)

if TYPE_CHECKING:
    from taut.training import TrainingResult

__all__ = ["PrivacyReport", "privacy_report"]

SCHEMA = "taut.privacy-report/1"
_LONGEST_NAME = 80


def privacy_report(
    source: TrainingResult | PrivacyLoss | str | os.PathLike[str],
    unit: str = "example",
    *,
    title: str = "Privacy report",
    owner: str | None = None,
    dataset: str | None = None,
    date: str | None = None,
    description: str | None = None,
    delta: float | None = None,
    files: Iterable[str | os.PathLike[str]] = (),
    exposures: Mapping[str, Exposure] | None = None,
    attack: RunAttack | None = None,
) -> PrivacyReport:
    """Return the privacy report of a training run, or of any privacy loss.

    Args:
        source: a `TrainingResult`, the `run_dir` of a `PrivateTrainer`, finished or not, or a
            loss. In a directory, the ledger, the plan and the result are compared with each other.
        unit: what one example stands for, such as "patient". The proof is about examples: it is
            about patients if each has one, which the report says. After a plan with
            `unit=Owners(...)`, what one owner stands for.
        title: what the report is about; the heading says that it is a privacy report.
        owner: the person or team that answers for it.
        dataset: the name of the data.
        date: the day of the report in ISO form, today by default.
        description: what was released, in words; needed for a loss.
        delta: probability delta of the promise; needed for a loss. Runs have one in their plan.
        files: further files to name with their SHA-256, such as the weights that are published.
        exposures: exposure of secrets that were planted in the data, by the name of the model that
            was asked for them, such as this one and one that was trained without privacy.
        attack: what an attack on the mechanism reached, from :func:`taut.audit.attack_plan`; it
            must be about this delta, and no more than is certified.

    **Guarantee**: every number is one that the accountant certifies, rounded to the safe side, or
    is called an estimate. Nothing is read that depends on the examples, and nothing of the sort is
    in any output: not the losses of a private log, nor how many examples were dropped. What is
    said of planted secrets is what was given, and called a measurement.

    Raises:
        ValueError: if something needed is missing, a file is damaged, or nothing was released.
        UnsoundConfiguration: if the files of a run contradict each other, or no finite epsilon is
            proved.

    Example:
        >>> import taut
        >>> from taut.report import privacy_report
        >>> counts = 3 * taut.laplace(scale=20)
        >>> report = privacy_report(
        ...     counts, unit="household", delta=1e-6, description="Three counts of a census."
        ... )
        >>> round(report.epsilon.upper, 2), report.adjacency.value
        (0.15, 'add_remove')
    """
    names = {"unit": unit, "title": title, "owner": owner, "dataset": dataset, "date": date}
    for name, text in names.items():
        if text is None and name not in ("unit", "title"):
            continue
        if not isinstance(text, str) or not text.strip() or len(text) > _LONGEST_NAME:
            raise ValueError(
                f"{name} must be a name of at most {_LONGEST_NAME} characters, got {name}={text!r}"
            )
    today = datetime.now(UTC).date().isoformat()
    evidence = evidence_of(source, delta=delta, description=description, files=files)
    if evidence.has_owners and unit == "example":
        unit = "owner"
    return PrivacyReport(
        title=_heading(" ".join(title.split())),
        unit=" ".join(unit.split()),
        _evidence=evidence,
        _findings=Findings(evidence),
        _about=About(date or today, owner, dataset),
        _exposures=dict(exposures or {}),
        _attack=_checked(attack, evidence),
    )


def _checked(attack: RunAttack | None, evidence: Evidence) -> RunAttack | None:
    """Return an attack with the bound that the evidence certifies, if both are about one delta."""
    if attack is None:
        return None
    certified = evidence.loss.epsilon(evidence.delta)
    if attack.delta != evidence.delta:
        raise ValueError(
            f"attack must be at the delta of the promise, {evidence.delta!r}, got "
            f"{attack.delta!r}; run taut audit again"
        )
    if attack.epsilon_lower > certified:
        raise UnsoundConfiguration(
            f"an attack reaches epsilon {attack.epsilon_lower:g}, and {certified:g} is certified: "
            "the statement is refuted, or the attack is not about this run; run taut audit again"
        )
    steps = evidence.steps_to_attack
    if steps is not None and attack.steps > steps:
        raise ValueError(
            f"attack must be on at most the {steps} steps of the run, got one on {attack.steps}; "
            "run taut audit again"
        )
    return replace(attack, epsilon_upper=certified)


def _heading(title: str) -> str:
    return title if "privacy report" in title.lower() else f"Privacy report: {title}"


@dataclass(frozen=True)
class PrivacyReport:
    """What was promised, how it is known, and what it rests on; see :func:`privacy_report`.

    Attributes:
        title: the heading of the page.
        unit: what one example stands for, or one owner of several.

    **Guarantee**: all outputs state the same numbers, and none holds anything that depends on the
    examples but through the releases that are accounted for. HTML is one file that loads nothing
    and runs nothing. The same evidence and date give the same text on the same versions.

    Example:
        >>> import taut
        >>> from taut.report import privacy_report
        >>> report = privacy_report(
        ...     taut.gaussian(sigma=4.0), delta=1e-6, description="A noisy mean of clipped ages."
        ... )
        >>> print(report.to_markdown().splitlines()[0])
        # Privacy report
    """

    title: str
    unit: str
    _evidence: Evidence
    _findings: Findings
    _about: About
    _exposures: Mapping[str, Exposure] = field(default_factory=dict)
    _attack: RunAttack | None = None

    @property
    def epsilon(self) -> Bounds:
        """Certified bounds on epsilon at `delta`, for all that the evidence counts.

        `epsilon.upper` is the promise; `epsilon.lower` says how little of it is slack.
        """
        return self._findings.epsilon

    @property
    def delta(self) -> float:
        """The delta of the promise."""
        return self._findings.delta

    @property
    def adjacency(self) -> Adjacency:
        """Which datasets count as neighbours."""
        return self._findings.adjacency

    @property
    def statement(self) -> str:
        """The guarantee in one sentence, without markup."""
        return unmarked(promise(self._evidence, self._findings, self.unit))

    @cached_property
    def _others(self) -> tuple[OtherAccount, ...]:
        return other_accounts(self._evidence, self._findings.epsilon)

    @cached_property
    def _alternatives(self) -> Alternatives:
        return alternatives(self._evidence, self._findings.epsilon.upper)

    @cached_property
    def _sections(self) -> list[Section]:
        return sections_of(
            self._evidence,
            self._findings,
            self._others,
            self._alternatives,
            self.unit,
            self._about,
            exposures_section(self._exposures, self._evidence, self.unit),
            both_sides_section(self._attack, self._evidence.steps_to_attack),
        )

    def to_html(self) -> str:
        """Return the report as one HTML page, with pictures if matplotlib is installed.

        Without it, words stand for them.
        """
        return self._page

    @cached_property
    def _page(self) -> str:
        return html_page(self.title, self._subtitle, self._sections)

    def to_markdown(self) -> str:
        """Return the report as Markdown, with words for pictures."""
        body = markdown_of(self._sections)
        return f"# {plain(self.title)}\n\n{self._subtitle}\n\n{body}\n"

    def to_model_card(self) -> str:
        """Return a section for the card of a model, such as the README of a model repository."""
        section = model_card_section(self._evidence, self._findings, self.unit)
        return markdown_of([section]) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """Return every number of the report, ready for JSON."""
        evidence, findings = self._evidence, self._findings
        return {
            "schema": SCHEMA,
            "title": self.title,
            "unit": self.unit,
            "date": self._about.date,
            "owner": self._about.owner,
            "dataset": self._about.dataset,
            "run": {"finished": evidence.finished, "versions": evidence.versions},
            "statement": self.statement,
            "plain_words": unmarked(plain_words(evidence, findings, self.unit)),
            "not_promised": [unmarked(text) for text in not_promised(evidence, self.unit)],
            "warnings": [unmarked(text) for text in warnings_of(evidence, self.unit)],
            "description": evidence.description,
            "epsilon": _interval(findings.epsilon),
            "delta": findings.delta,
            "adjacency": str(findings.adjacency),
            "engine": str(findings.explanation.engine),
            "is_secure": evidence.is_secure,
            "attack": {
                "sentence": attack_sentence(findings),
                "advantage": findings.advantage,
                "curve": [
                    {"false_alarms": a.false_alarms, "found": a.found} for a in findings.attacks
                ],
            },
            "exposures": {
                name: {"ranks": list(found.ranks), "candidates": found.candidates}
                for name, found in self._exposures.items()
            },
            "simulated_attack": None if self._attack is None else self._attack.to_dict(),
            "profile": [
                {"epsilon": p.epsilon, "delta": _interval(p.delta)} for p in findings.profile
            ],
            "other_deltas": [
                {"delta": level, "epsilon": _interval(b)} for level, b in findings.other_deltas
            ],
            "course": [{"steps": p.steps, "epsilon": p.epsilon} for p in findings.course],
            "groups": [
                {"examples": g.size, "epsilon": _interval(g.epsilon)} for g in findings.groups
            ],
            "other_accounts": [
                {
                    "method": other.method,
                    "epsilon": other.epsilon,
                    "is_bound": other.is_bound,
                    "note": other.note,
                }
                for other in self._others
            ],
            "alternatives": {
                "samplers": [_alternative(a) for a in self._alternatives.samplers],
                "batches": [_alternative(a) for a in self._alternatives.batches],
            },
            "assumptions": [
                {
                    "claim": unmarked(a.claim),
                    "status": a.status,
                    "how": unmarked(a.how),
                }
                for a in assumptions(evidence, findings, self.unit)
            ],
            "checks": [unmarked(check) for check in evidence.checks],
            "files": {file.name: file.sha256 for file in evidence.files},
            "versions": versions(),
            "steps": {
                "counted": evidence.counted_steps,
                "updates": evidence.updates,
            },
            "plan": None if evidence.plan is None else evidence.plan.to_dict(),
            "loss": evidence.loss.to_dict(),
        }

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON text; "Infinity" stands where JSON has no number."""
        return json.dumps(
            json_numbers(self.to_dict()), indent=2, ensure_ascii=False, allow_nan=False
        )

    def write(self, directory: str | os.PathLike[str]) -> Path:
        """Write the report into a directory, which is made if it does not exist.

        Files: `index.html`, `report.md`, `report.json`, `model_card.md`, and `statement.json` for
        a run that has ended, from which the promise can be computed again.

        Returns:
            the path of `index.html`.
        """
        texts = {
            "index.html": self.to_html(),
            "report.md": self.to_markdown(),
            "report.json": self.to_json(),
            "model_card.md": self.to_model_card(),
        }
        if self._evidence.result is not None:
            written = self._evidence.statement
            texts["statement.json"] = written or self._evidence.result.to_json()
        place = Path(directory)
        place.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (place / name).write_text(text, encoding="utf-8")
        return place / "index.html"

    @property
    def _subtitle(self) -> str:
        plan = self._evidence.plan
        if plan is None:
            return f"Computed with taut {versions()['taut']}."
        counted = "training examples" if plan.unit is None else "owners"
        return (
            f"{self._evidence.counted_steps} steps of private gradient descent on "
            f"{plan.examples} {counted}. Computed with taut {versions()['taut']}."
        )

    def _repr_html_(self) -> str:
        """Show the promise in a notebook."""
        return f"<p>{inline_html(promise(self._evidence, self._findings, self.unit))}</p>"

    def __repr__(self) -> str:
        return f"<PrivacyReport: epsilon <= {self.epsilon.upper:.4g} at delta = {self.delta:g}>"


def _interval(bounds: Bounds) -> dict[str, float]:
    return {"lower": bounds.lower, "upper": bounds.upper}


def _alternative(found: Alternative) -> dict[str, Any]:
    return {
        "name": found.name,
        "adjacency": str(found.adjacency),
        "epsilon": found.epsilon,
        "noise_multiplier": found.noise_multiplier,
        "batch_size": found.batch_size,
        "steps": found.steps,
    }
