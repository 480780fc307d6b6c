"""What a privacy report rests on, and how a reader computes it again."""

from __future__ import annotations

import platform
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata

import numpy as np
import scipy

import taut
from taut.report._document.blocks import Block, Code, Paragraph, Section, Table, code, plain
from taut.report._privacy.evidence import Evidence
from taut.report._privacy.findings import Findings
from taut.report._privacy.wording import assumptions

__all__ = [
    "About",
    "assumptions_section",
    "recipe",
    "recompute_section",
    "record_section",
    "versions",
]

_OPEN = "not stated"


@dataclass(frozen=True)
class About:
    """By what a report is filed.

    Attributes:
        date: on which it was written, in ISO form.
        owner: who answers for it, if that was said.
        dataset: what the data are called, if that was said.
    """

    date: str
    owner: str | None = None
    dataset: str | None = None


def record_section(evidence: Evidence, about: About) -> Section:
    """Return by what the report is filed, and what the run has recorded about itself."""
    rows = [
        ("report written", about.date),
        ("owner", _OPEN if about.owner is None else plain(about.owner)),
        ("dataset", _OPEN if about.dataset is None else plain(about.dataset)),
    ]
    if evidence.plan is not None:
        recorded = evidence.versions or {}
        names = ", ".join(f"{plain(name)} {plain(v)}" for name, v in recorded.items())
        day = "not recorded" if evidence.finished is None else plain(evidence.finished)
        rows += [("run finished", day), ("run computed with", names or "not recorded")]
    return Section("record", "Record", [Table("For the files", ("item", "entry"), tuple(rows))])


def assumptions_section(evidence: Evidence, findings: Findings, unit: str) -> Section:
    rows = tuple((a.claim, a.status, a.how) for a in assumptions(evidence, findings, unit))
    introduction = "The promise holds if all of this does."
    if evidence.plan is not None:
        introduction += (
            " **Enforced** means that the code of `taut.training` does it or refuses to run; that "
            "this code was run, and unchanged, cannot be seen from its files. **Checked** means "
            "that this report has computed it again; **recorded**, that the run has written it "
            "down."
        )
    blocks: list[Block] = [
        Paragraph(introduction),
        Table("What must hold", ("that", "status", "by what"), rows),
    ]
    return Section("assumptions", "Assumptions", blocks)


def recompute_section(evidence: Evidence) -> Section:
    introduction, lines = recipe(evidence)
    blocks: list[Block] = [Paragraph(introduction), Code(lines)]
    if evidence.files:
        rows = tuple((code(file.name), code(file.sha256)) for file in evidence.files)
        blocks.append(Table("Files, by SHA-256", ("file", "hash"), rows))
    names = tuple((name, version) for name, version in versions().items())
    blocks.append(Table("This report was computed with", ("package", "version"), names))
    if evidence.plan is not None:
        blocks.append(
            Paragraph(
                "These versions are those of this computation; those of the run are in its record."
            )
        )
    return Section("recompute", "Recompute it", blocks)


def recipe(evidence: Evidence) -> tuple[str, str]:
    """Return how to compute the promise again: a sentence, and lines to run."""
    if evidence.result is not None:
        return (
            "Whoever has `statement.json`, which is written beside this page, computes the number "
            "again without the data or the weights, by `taut verify statement.json` or in Python:",
            "from pathlib import Path\n"
            "from taut.training import TrainingResult\n\n"
            'text = Path("statement.json").read_text()\n'
            "print(TrainingResult.from_json(text).epsilon)",
        )
    if evidence.kind == "run":
        return (
            "Whoever has the ledger computes the number again without the data or the weights:",
            "from taut.training import RunHistory\n\n"
            'history = RunHistory.read("ledger.jsonl")\n'
            f"print(history.loss.epsilon_bounds(delta={evidence.delta!r}))",
        )
    return (
        "The loss is in `report.json`, which is written beside this page:",
        "import json\n"
        "from pathlib import Path\n"
        "import taut\n\n"
        'report = json.loads(Path("report.json").read_text())\n'
        'loss = taut.PrivacyLoss.from_dict(report["loss"])\n'
        f"print(loss.epsilon_bounds(delta={evidence.delta!r}))",
    )


def versions() -> dict[str, str]:
    """Return the versions of what computes."""
    found = {
        "taut": taut.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }
    with suppress(metadata.PackageNotFoundError):
        found["torch"] = metadata.version("torch")
    return found
