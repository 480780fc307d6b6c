"""One setting under way: values looked up in call, file and options, with their places."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from taut._base import validate
from taut.audit._settings.document import Call, Document, Unread, Value

__all__ = ["ALIASES", "Reader"]

ALIASES: Mapping[str, tuple[str, ...]] = {
    "delta": ("delta", "target_delta", "dp_delta"),
    "examples": (
        *("examples", "num_examples", "number_of_examples", "train_size", "dataset_size"),
        *("sample_size", "num_train_examples", "n_train", "num_train_samples", "train_samples"),
    ),
    "batch_size": ("batch_size", "train_batch_size", "lot_size"),
    "epochs": ("epochs", "num_epochs", "n_epochs", "max_epochs", "num_train_epochs"),
    "steps": ("steps", "num_steps", "train_steps", "max_steps", "num_train_steps", "iterations"),
    "clients": ("clients", "num_clients", "num_supernodes"),
    "rounds": ("rounds", "num_rounds", "num_server_rounds"),
    "parameters": ("parameters", "num_parameters", "total_params"),
}
"""Names by which files call what a statement about privacy needs."""
_INSTEAD: Mapping[str, tuple[str, ...]] = {"clients": ("min_available_clients",)}
_LARGEST = 1e18  # of any setting: beyond, sizes and steps leave the precision of floats
_MOST_SHOWN = 60  # characters of a value that an answer repeats


class Reader:
    """Looks up values for one call, and keeps what was read and what was not.

    Args:
        call: the call that configures privacy.
        document: the file around it.
        given: values that whoever asks has added, by name; they go before those of the file.
        own_first: whether arguments of the call go before those that were given.
    """

    def __init__(
        self,
        call: Call,
        document: Document,
        given: Mapping[str, float],
        *,
        own_first: bool = False,
    ) -> None:
        self.call, self.document, self.given = call, document, given
        self.own_first = own_first
        self.read: dict[str, str] = {}
        self.missing: list[str] = []

    def as_called(self) -> Reader:
        """Return a reader for which the arguments of the call go before values that were given.

        A tool that finds noise for a budget sees its own arguments, whatever is asked about it.
        """
        return Reader(self.call, self.document, self.given, own_first=True)

    def own(self, name: str, default: Any = None) -> Any:
        """Return an argument of the call itself; an expression counts as missing."""
        found = self.call.arguments.get(name)
        if found is None or found.value is None:
            return default
        if isinstance(found.value, Unread | Call):
            text = found.value.text if isinstance(found.value, Unread) else _shown(found.value)
            self.missing.append(
                f"{name}: {text} is not a literal in this file; write the value down"
            )
            return default
        self._note(name, found)
        return found.value

    def number(self, name: str, *own: str) -> float | None:
        """Return a number that was given, is an argument, or stands once around the call.

        Args:
            name: the name of the value, as options call it.
            *own: names of arguments of the call that hold it.
        """
        if self.given.get(name) is not None and not self._goes_first(own):
            self.read[name] = f"{self.given[name]!r} (given)"
            return self.given[name]
        for key in own:
            value = self.own(key)
            if value is not None:
                return self._number(key, value)
            if self.is_open(key):  # what stands around the call is not what it says
                return None
        around = self.document.around(ALIASES.get(name, (name,)))
        around = around or self.document.around(_INSTEAD.get(name, ()))
        if len(around) > 1:
            listed = ", ".join(f"{_shown(v.value)} ({v.where})" for v in around[:4])
            self.missing.append(f"{name}: the file has several, {listed}; {_remedy(name)}")
            return None
        if around:
            self._note(name, around[0])
            return self._number(name, around[0].value)
        return None

    def beside(self, name: str) -> float | None:
        """Return a number among the arguments themselves, if it is there."""
        return self.number(name, name) if name in self.call.arguments else None

    def needed(self, name: str, why: str, *own: str) -> float | None:
        """Return a number, and note what is missing without it.

        Args:
            name: the name of the value.
            why: what it is needed for.
            *own: names of arguments of the call that hold it.
        """
        before = len(self.missing)
        found = self.number(name, *own)
        if found is None and len(self.missing) == before:
            self.missing.append(f"{name}: {why}; {_remedy(name)}")
        return found

    def flag(self, name: str, default: bool) -> bool | None:
        """Return an argument that is true or false, None if the file leaves it open."""
        found = self.call.arguments.get(name)
        if found is None:
            return default
        if isinstance(found.value, bool):
            self._note(name, found)
            return found.value
        if self.own(name) is not None or found.value is None:
            self.missing.append(f"{name}: {_shown(found.value)} is neither true nor false")
        return None

    def is_open(self, name: str) -> bool:
        """Say whether the call gives an argument that the file does not show."""
        found = self.call.arguments.get(name)
        return found is not None and isinstance(found.value, Unread | Call)

    def steps_for(self, *epochs: str) -> int | None:
        """Return the steps that were given in the place of passes over the data, if any.

        Args:
            *epochs: names of arguments of the call that hold those.
        """
        if self.given.get("steps") is None or self._goes_first(epochs):
            return None
        return self.whole("steps", self.number("steps"))

    def _goes_first(self, own: tuple[str, ...]) -> bool:
        found = [self.call.arguments.get(key) for key in own]
        return self.own_first and any(value is not None and value.is_number for value in found)

    def nested(self, name: str) -> Call | None:
        """Return the call whose result is an argument, such as the loader of a training loop."""
        found = self.call.arguments.get(name)
        return found.value if found is not None and isinstance(found.value, Call) else None

    def whole(self, name: str, value: float | None) -> int | None:
        """Return a number as a count of at least one.

        Raises:
            ValueError: if it is none.
        """
        if value is None:
            return None
        number = self._number(name, value)
        try:
            return validate.positive_integer(
                **{name: int(number) if number.is_integer() else number}
            )
        except ValueError as error:
            raise ValueError(f"{self.call.where}: {str(error).split('; convert')[0]}") from None

    def delta(self, records: int | None = None, *own: str) -> float | None:
        """Return delta; None, and a note, if it is missing, or no promise for so many records.

        Args:
            records: how many there are, if that is known.
            *own: names of arguments of the call that hold it.
        """
        found = self.needed("delta", "every epsilon is one at a delta", *own)
        if found is None:
            return None
        level = validate.below_one(delta=found)
        if records is not None and level * records >= 1:
            self.missing.append(
                f"delta {level!r} is not below 1/{records}: publishing one whole record at random "
                "would be allowed; choose a smaller one"
            )
            return None
        return level

    def _number(self, name: str, value: Any) -> float:
        try:
            number = validate.non_negative(**{name: value})
            if number > _LARGEST:
                raise ValueError(f"{name} must be at most {_LARGEST:g}, got {name}={value!r}")
            return number
        except ValueError as error:
            raise ValueError(f"{self.call.where}: {str(error).split('; convert')[0]}") from None

    def _note(self, name: str, found: Value) -> None:
        self.read[name] = f"{_shown(found.value)} ({found.where})"


def _shown(value: Any) -> str:
    if isinstance(value, Call):
        return f"{value.name}(...)"
    text = value.text if isinstance(value, Unread) else repr(value)
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 3] + "..."


def _remedy(name: str) -> str:
    """Return what to do about a value that is missing."""
    if name not in ALIASES:
        return "write it down in the file"
    return f"give it with --{name.replace('_', '-')}"
