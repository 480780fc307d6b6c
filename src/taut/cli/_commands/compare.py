"""``taut compare``: methods side by side, at equal privacy and equally many gradients."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from taut.cli._page import INTERRUPTED, mistakes_explained, print_json
from taut.cli._run_options import AllowCodeOption, DeltaOption, JsonOption, left_out

if TYPE_CHECKING:
    from taut.comparison import Comparison


def _read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Take the options that the command line leaves out from a file."""
    if path is None:
        return None
    import tomllib

    with mistakes_explained():
        known = {parameter.name for parameter in context.command.params}
        given = {}
        try:
            options = tomllib.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:  # of the encoding, or of TOML
            raise ValueError(f"{path}: not valid TOML: {error}") from None
        for key, value in options.items():
            name = key.replace("-", "_")
            if name not in known or name in ("config", "allow_code"):
                raise ValueError(f"{path} sets {key!r}, which is no option of this command")
            given[name] = ",".join(map(str, value)) if isinstance(value, list) else value
        context.default_map = given
    return path


_DataArgument = Annotated[
    str, typer.Argument(help="An .npz file with x_train, y_train, x_test, y_test; or 'demo'.")
]
_ModelOption = Annotated[
    str, typer.Option(help="Model: linear, mlp, TanhCNN, ResNet20, or module:factory.")
]
_ArmsOption = Annotated[str | None, left_out("Ways to train, comma-separated.", "all")]
_LearningRatesOption = Annotated[str, typer.Option(help="Learning rates to try, comma-separated.")]
_ExtendOption = Annotated[
    int, typer.Option(help="Learning rates an arm may add while its best lies at the edge.")
]
_TuningSeedsOption = Annotated[
    int | None, left_out("How many seeds choose the learning rate.", "all")
]
_OutOption = Annotated[
    Path | None, typer.Option(help="Directory of results; an interrupted comparison resumes there.")
]
_PredictOnlyOption = Annotated[
    bool, typer.Option("--predict-only", help="Only predict the noise; train nothing.")
]
_ConfigOption = Annotated[
    Path | None,
    typer.Option(help="TOML file with any of these options.", callback=_read_config, is_eager=True),
]


def compare(
    context: typer.Context,
    data: _DataArgument,
    *,
    epsilon: Annotated[float, typer.Option(help="Epsilon of every run.")],
    delta: DeltaOption,
    gradients: Annotated[int, typer.Option(help="Gradients of examples that a run may compute.")],
    batch_size: Annotated[int, typer.Option(help="Expected number of examples in a step.")],
    model: _ModelOption = "mlp",
    norm: Annotated[float, typer.Option(help="Clipping norm.")] = 1.0,
    arms: _ArmsOption = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds that every arm is trained with.")] = 5,
    learning_rates: _LearningRatesOption = "0.5",
    extend: _ExtendOption = 0,
    tuning_seeds: _TuningSeedsOption = None,
    momentum: Annotated[float, typer.Option(help="Momentum of SGD.")] = 0.0,
    confidence: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    out: _OutOption = None,
    predict_only: _PredictOnlyOption = False,
    config: _ConfigOption = None,  # noqa: ARG001 (its callback has read it)
    allow_code: AllowCodeOption = None,
    json: JsonOption = False,
) -> None:
    """Train one model in several private ways, at equal privacy.

    First the noise of every arm is predicted, then every arm is trained with the same seeds and
    learning rates, on equally many gradients. It ends with a table of intervals and CPU times and,
    from three seeds on, a recommendation. With --out it also writes table.md, runs.csv,
    comparison.json and a picture. Runs are experiments: compare on public data or on data like
    yours, never on those that you protect.

    Example: taut compare demo --epsilon 2 --delta 1e-5 --gradients 5000 --batch-size 500 --seeds 3
    """
    with mistakes_explained():
        from taut.comparison import Comparison, Settings, predict
        from taut.comparison import compare as run
        from taut.runs import read_task

        source = context.get_parameter_source("model")
        typed = source is None or source.name != "DEFAULT_MAP"
        task = read_task(data, model, momentum=momentum, typed=typed, allow_code=allow_code)
        settings = Settings(
            examples=len(task.train),
            batch_size=batch_size,
            gradients=gradients,
            epsilon=epsilon,
            delta=delta,
            norm=norm,
        )
        names = None if arms is None else [name.strip() for name in arms.split(",")]
        predicted = predict(settings, task.sizes, arms=names, public_gradients=task.gradients(0))
        if predict_only:
            print_json(predicted.to_dict()) if json else print(predicted)
            return
        print(f"Warning: {Comparison.experiment}\n", file=sys.stderr)
        if not json:
            print(f"{predicted}\n", flush=True)
        with _interruption_explained(out):
            found = run(
                task,
                settings,
                arms=names,
                seeds=seeds,
                learning_rates=_numbers(learning_rates),
                extend=extend,
                tuning_seeds=tuning_seeds,
                confidence=confidence,
                out_dir=out,
            )
        print_json(found.to_dict()) if json else print(found)
        if out is not None:
            _draw(found, out / "comparison.svg")


def _numbers(text: str) -> list[float]:
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise ValueError(
            f"--learning-rates must be numbers separated by commas, got {text!r}"
        ) from None


def _draw(found: "Comparison", path: Path) -> None:
    from taut.report import plot_comparison

    try:
        plot_comparison(found, path)
    except ImportError as error:
        print(f"No picture: {error}", file=sys.stderr)


@contextmanager
def _interruption_explained(out: Path | None) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        hint = "" if out is None else "; the same command goes on where it stopped"
        print(f"Stopped{hint}.", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
