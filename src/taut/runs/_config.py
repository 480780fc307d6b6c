"""A run as a file: what TOML says, checked before anything is computed."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from taut._base.files import text_of_file
from taut.runs._sections import (
    DataSection,
    ModelSection,
    PlanSection,
    RunSection,
    TrainingSection,
)
from taut.runs._tables import check_key, mistakes_in, read_table, toml_text

__all__ = ["RunConfig"]

_SECTIONS = ("data", "model", "plan", "training", "run")


@dataclass(frozen=True)
class RunConfig:
    """Everything that `train` needs: data, model, plan, training, run.

    Attributes:
        data: where examples come from.
        model: what is trained.
        plan: what decides about privacy.
        training: how steps are taken.
        run: where files are kept.
        home: the directory that relative paths start from: that of the file.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from taut.runs import RunConfig
        >>> text = '''
        ... [data]
        ... builtin = "digits"
        ... [model]
        ... name = "mlp"
        ... widths = [64, 32, 10]
        ... [plan]
        ... batch_size = 128
        ... epochs = 10
        ... epsilon = 3.0
        ... delta = 1e-4
        ... [run]
        ... directory = "runs/digits"
        ... '''
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "digits.toml"
        ...     _ = path.write_text(text)
        ...     config = RunConfig.from_toml(path)
        >>> config.plan.epsilon, config.training.optimizer, config.directory.name
        (3.0, 'sgd', 'digits')
    """

    data: DataSection
    model: ModelSection
    plan: PlanSection
    training: TrainingSection
    run: RunSection
    home: Path

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str]) -> RunConfig:
        """Return the configuration in a file.

        Raises:
            ValueError: for a file that is no TOML, for an unknown section or key (with the nearest
                known one), a missing key, or a value of the wrong type or out of its range.
            OSError: if the file cannot be read.
        """
        file = Path(path)
        with mistakes_in(file):
            return cls._of(tomllib.loads(text_of_file(file, "what to run")), file.parent)

    @classmethod
    def _of(cls, tables: Mapping[str, Any], home: Path) -> RunConfig:
        for name in tables:
            check_key(name, _SECTIONS, "the configuration")
        for name in ("data", "model", "plan", "run"):
            if name not in tables:
                raise ValueError(f"the section [{name}] is missing")
        return cls(
            data=read_table(DataSection, tables["data"], "[data]"),
            model=ModelSection.of(tables["model"], "[model]"),
            plan=read_table(PlanSection, tables["plan"], "[plan]"),
            training=read_table(TrainingSection, tables.get("training", {}), "[training]"),
            run=read_table(RunSection, tables["run"], "[run]"),
            home=home,
        )

    @property
    def directory(self) -> Path:
        """Where the run keeps its files."""
        return self.home / self.run.directory

    @property
    def code(self) -> Path:
        """Where modules of factories are looked for."""
        return self.home / self.run.code

    @property
    def data_path(self) -> Path | None:
        """The file with examples, if they come from one."""
        return None if self.data.path is None else self.home / self.data.path

    @property
    def validation_path(self) -> Path | None:
        """The file with examples to evaluate on, if it is one of their own."""
        return None if self.data.validation is None else self.home / self.data.validation

    def moved(self, home: Path) -> RunConfig:
        """Return the same configuration with paths that start from another directory."""

        def seen_from_there(path: Path) -> str:
            try:
                return Path(os.path.relpath(path, home)).as_posix()
            except ValueError:  # on another drive
                return path.resolve().as_posix()

        data = self.data
        if self.data_path is not None:
            data = replace(data, path=seen_from_there(self.data_path))
        if self.validation_path is not None:
            data = replace(data, validation=seen_from_there(self.validation_path))
        run = replace(
            self.run,
            directory=seen_from_there(self.directory),
            code=seen_from_there(self.code),
        )
        return replace(self, data=data, run=run, home=home)

    def to_toml(self) -> str:
        """Return the configuration as TOML, for a file in the directory `home`."""
        model = {"name": self.model.name, **self.model.arguments}
        others = {name: asdict(getattr(self, name)) for name in _SECTIONS if name != "model"}
        return toml_text({name: model if name == "model" else others[name] for name in _SECTIONS})
