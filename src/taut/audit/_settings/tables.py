"""Settings in JSON or TOML: tables that name what they configure, or are known by their keys."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from taut.audit._settings.document import Call, Document, Signature, Unread, Value, plain_name

__all__ = ["read_tables"]

_NAMES = ("path", "class_path", "_target_", "target", "class_name", "class", "name")
_ARGUMENTS = ("args", "init_args", "kwargs", "arguments")
_MOST_TABLES = 50_000  # of one file: a job of a hundred clients has a few thousand


def read_tables(data: Any, known: Mapping[str, Signature], *, deepest: int) -> Document:
    """Return the calls that tables describe, and all numbers by their keys.

    Args:
        data: what a file holds.
        known: the functions and classes that are looked for, by name.
        deepest: the most tables inside of tables.

    Raises:
        ValueError: if tables are nested too deeply, or there are too many.
    """
    if not isinstance(data, Mapping | list):
        raise ValueError("the file holds no table of settings")
    reader = _Tables(known, deepest)
    reader.visit(data, "", 0)
    facts = {name: tuple(values) for name, values in reader.facts.items()}
    return Document(tuple(reader.calls), facts)


class _Tables:
    """One walk through a file; what is taken for a call is not looked into again."""

    def __init__(self, known: Mapping[str, Signature], deepest: int) -> None:
        self.known, self.deepest, self.count = known, deepest, 0
        self.calls: list[Call] = []
        self.facts: defaultdict[str, list[Value]] = defaultdict(list)

    def visit(self, data: Any, place: str, depth: int) -> None:
        self._refuse_endless(depth)
        parts: Iterator[tuple[str, Any]]
        if isinstance(data, Mapping):
            call = self._call(data, place, depth)
            if call is not None:
                self.calls.append(call)
                if "DpEvent" in call.name:
                    return  # events inside of it are part of it
            parts = ((str(key), value) for key, value in data.items())
        else:
            parts = ((str(index), value) for index, value in enumerate(data))
        for key, value in parts:
            inner = f"{place}.{key}" if place else key
            if isinstance(value, Mapping | list):
                self.visit(value, inner, depth + 1)
            elif isinstance(data, Mapping):
                self.facts[plain_name(key)].append(Value(value, inner))

    def _refuse_endless(self, depth: int) -> None:
        self.count += 1
        if depth > self.deepest:
            raise ValueError(f"its tables are nested more than {self.deepest} deep")
        if self.count > _MOST_TABLES:
            raise ValueError(f"it has more than {_MOST_TABLES} tables and lists")

    def _call(self, data: Mapping[str, Any], place: str, depth: int) -> Call | None:
        name, inner = self._named(data, place)
        if name is None:
            return None
        arguments: dict[str, Value] = {}
        beside = () if inner is data else data.items()
        for key, value in (*inner.items(), *beside):
            if key not in _NAMES and value is not inner:
                argument, where = plain_name(str(key)), f"{place}.{key}".lstrip(".")
                said = self._value(value, depth)
                if argument in arguments and arguments[argument].value != said:
                    said = Unread(f"{argument}, which stands there in two spellings,")
                arguments[argument] = Value(said, where)
        return Call(name, arguments, place or "the file")

    def _named(self, data: Mapping[str, Any], place: str) -> tuple[str | None, Mapping[str, Any]]:
        """Return which call a table is, and the table of its arguments."""
        for key in _NAMES:
            text = data.get(key)
            name = text.rpartition(".")[2] if isinstance(text, str) else ""
            if name in self.known:
                inner = next(
                    (data[k] for k in _ARGUMENTS if isinstance(data.get(k), Mapping)), data
                )
                return name, inner
        last = place.rpartition(".")[2]
        if last in self.known:
            return last, data
        keys = {plain_name(str(key)) for key in data}
        fitting = [
            (len(wanted), signature.name)
            for signature in self.known.values()
            for wanted in signature.keys
            if wanted <= keys
        ]
        return (max(fitting, key=lambda found: found[0])[1], data) if fitting else (None, data)

    def _value(self, value: Any, depth: int) -> Any:
        """Return an argument; an event inside of an event is a call."""
        self._refuse_endless(depth)
        if isinstance(value, Mapping):
            call = self._call(value, "", depth + 1)
            return value if call is None else call
        if isinstance(value, list):
            return [self._value(part, depth + 1) for part in value]
        return value
