"""Settings in Python: a program is parsed and looked through, and no line of it is run."""

from __future__ import annotations

import ast
import itertools
import operator
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from taut.audit._settings.document import (
    DATA_LOADER,
    HIDDEN,
    SET,
    Call,
    Document,
    Signature,
    Unread,
    Value,
    plain_name,
)
from taut.audit._settings.names import Names, called

__all__ = ["read_source"]

_MOST_HOPS = 20  # from a name to its literal; programs take one or two
_MOST_SHOWN = 60  # characters of an expression that a message repeats
_MOST_LOOKS = 100_000  # at expressions: names that hold each other twice multiply without end
_LARGEST = 1e18  # of a number in arithmetic, so that no power takes the memory of the machine
_PARSERS = frozenset(
    {"parse_args", "parse_known_args", "parse_arguments", "get_args", "get_arguments"}
)
_HOLDERS = frozenset({"args", "arguments", "opt", "opts", "options"})  # as parameters
_COMPOSE = Signature("compose", ("event", "count"))
_PARTS = {part.name: part for part in (DATA_LOADER, _COMPOSE)}  # calls that are no settings
_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.comprehension, ast.ListComp, ast.GeneratorExp)
_ANYTHING = "*"  # in the place of a name
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}


def read_source(text: str, known: Mapping[str, Signature], name: str, *, deepest: int) -> Document:
    """Return the calls of known functions in a program, and constants around them.

    Arguments are literals, arithmetic on literals, names that one assignment and nothing else binds
    in their scope, and options of `argparse` with a default. Everything else is `Unread`.

    Args:
        text: the program.
        known: the functions and classes that are looked for, by name.
        name: the name of the file, for messages.
        deepest: the most calls inside of calls.

    Raises:
        ValueError: if it is not Python, or nested too deeply.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a stranger's escapes and comparisons
            tree = ast.parse(text)
        return _Program(tree, known, deepest).document()
    except (RecursionError, MemoryError):
        raise ValueError(f"{name}: the program is nested too deeply") from None
    except SyntaxError as error:
        raise ValueError(f"{name} is not Python: {error.msg} (line {error.lineno})") from None


class _Program:
    """One file: its assignments, its options, and its calls."""

    def __init__(self, tree: ast.Module, known: Mapping[str, Signature], deepest: int) -> None:
        self.known, self.deepest, self.looks = known, deepest, 0
        self.nodes = list(ast.walk(tree))
        self.names = Names(tree)
        loops = [node for node in self.nodes if isinstance(node, _LOOPS)]
        self.repeated = {id(part) for loop in loops for part in ast.walk(loop)}
        self.under_way: set[int] = set()
        self.options: dict[str, Value] = {}
        self.options = dict(self._options())

    def document(self) -> Document:
        inner: set[int] = set()
        calls, sums = [], [node for node in self.nodes if self._composed(node) is not None]
        for node in self.nodes:  # outer calls come before those inside of them
            if not isinstance(node, ast.Call) or id(node) in inner:
                continue
            call, name = self._composed(node, others=len(sums) - 1), called(node)
            if call is None and name in self.known:
                call = self._call(node, 0)
            if call is None or not self.known[call.name].fits(call):
                continue
            calls.append(call)
            if "DpEvent" in call.name:
                inner |= {id(part) for part in ast.walk(node)}
        return Document(tuple(calls), self._facts())

    def _composed(self, node: ast.AST, *, others: int = 0) -> Call | None:
        """Return what an accountant is told by `compose(event, count)`, as one event.

        Args:
            node: any node.
            others: how many other such calls there are: the sum is of all that one accountant sees.
        """
        if not isinstance(node, ast.Call) or called(node) != _COMPOSE.name:
            return None
        call = self._call(node, 0)
        event = call.arguments.get("event")
        if event is None or not isinstance(event.value, Call) or "DpEvent" not in event.value.name:
            return None
        count = {"count": Value(1, call.where), **call.arguments}
        if others or id(node) in self.repeated:
            said = "the number of times that it is composed, in a loop or by several calls,"
            count["count"] = Value(Unread(said), call.where)
        return Call("SelfComposedDpEvent", count, call.where)

    def _facts(self) -> dict[str, tuple[Value, ...]]:
        found: defaultdict[str, list[Value]] = defaultdict(list)
        for name, assigned, is_single in self.names.constants():
            said = self.value(assigned) if is_single else Unread(f"{name}, bound more than once")
            found[plain_name(name)].append(Value(said, f"line {assigned.lineno}"))
        for name, value in self.options.items():
            found[plain_name(name)].append(value)
        for node in self.nodes:
            for name, given in _named(node):
                found[plain_name(name)].append(Value(self.value(given), f"line {given.lineno}"))
            for name, given in _set(node):
                found[SET + name].append(Value(self.value(given), f"line {given.lineno}"))
        return {name: tuple(values) for name, values in found.items()}

    def _options(self) -> Iterator[tuple[str, Value]]:
        """Yield options of a command line that have a default, and nothing sets otherwise."""
        found: defaultdict[str, list[Value]] = defaultdict(list)
        for node in self.nodes:
            if called(node) == "add_argument" and isinstance(node, ast.Call):
                name, value = self._option_of(node)
                found[name].append(value)
        changed = {name for node in self.nodes for name in _changed(node)}
        for name, values in found.items():
            if len(values) > 1:
                yield name, Value(Unread(f"{name}, an option twice"), values[0].where)
            elif name in changed or _ANYTHING in changed:
                yield name, Value(Unread(f"{name}, an option that is set later"), values[0].where)
            elif values[0].value is not None:
                yield name, values[0]

    def _option_of(self, node: ast.Call) -> tuple[str, Value]:
        """Return where `argparse` puts an option, and its default."""
        words = [part.value for part in node.args if isinstance(part, ast.Constant)]
        names = [word for word in words if isinstance(word, str)]
        long = next((n for n in names if n.startswith("--")), next(iter(names), ""))
        given = {k.arg: k.value for k in node.keywords}
        place = given.get("dest")
        if isinstance(place, ast.Constant) and isinstance(place.value, str):
            name = place.value
        else:
            name = long.lstrip("-") if place is None else ""
        value = self.value(given["default"]) if "default" in given else None
        return plain_name(name), Value(value, f"line {node.lineno}, default of {long}")

    def _call(self, node: ast.Call, depth: int) -> Call:
        if depth > self.deepest:
            raise ValueError(f"its calls are nested more than {self.deepest} deep")
        name = called(node)
        where = f"line {node.lineno}"
        keywords = {
            plain_name(k.arg): self._argument(k.value, where, depth)
            for k in node.keywords
            if k.arg is not None
        }
        plain = list(itertools.takewhile(_has_a_place, node.args))
        positional = [self._argument(arg, where, depth) for arg in plain]
        if len(plain) < len(node.args) or any(k.arg is None for k in node.keywords):
            keywords[HIDDEN] = Value(Unread("arguments behind a star"), where)
        signature = self.known.get(name, _PARTS.get(name))
        if signature is None:
            if len(positional) > 1 or any(value.is_number for value in positional):
                keywords[HIDDEN] = Value(Unread("arguments without a name"), where)
            signature = Signature(name)
        return Call(name, signature.bound(positional, keywords), where)

    def _argument(self, node: ast.expr, where: str, depth: int) -> Value:
        option = self._option(node)
        return option if option is not None else Value(self.value(node, depth), where)

    def _option(self, node: ast.expr) -> Value | None:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found = self.options.get(plain_name(node.attr))
            if found is not None and self.names.is_parsed(node.value, _HOLDERS, _PARSERS):
                return found
        return None

    def value(self, node: ast.expr, depth: int = 0, hops: int = 0) -> Any:
        """Return what an expression is without running it, or `Unread`."""
        self.looks += 1
        if self.looks > _MOST_LOOKS:
            raise ValueError("its names refer to each other too often")
        if hops > _MOST_HOPS:
            return Unread("a chain of names")
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self._of_name(node, depth, hops)
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                number = self.value(inner, depth, hops + 1)
                return -number if _is_number(number) else _unread(node)
            case ast.BinOp():
                return self._arithmetic(node, depth, hops)
            case ast.List() | ast.Tuple():
                return [self.value(part, depth + 1, hops + 1) for part in node.elts]
            case ast.Call() if called(node):
                return self._call(node, depth + 1)
        option = self._option(node)
        return option.value if option is not None else _unread(node)

    def _of_name(self, name: ast.Name, depth: int, hops: int) -> Any:
        """Return what a name stands for; `model = wrap(model)` stands for itself no further."""
        node = self.names.meaning(name)
        if node is None or id(node) in self.under_way:
            return Unread(name.id)
        self.under_way.add(id(node))
        try:
            return self.value(node, depth, hops + 1)
        finally:
            self.under_way.discard(id(node))

    def _arithmetic(self, node: ast.BinOp, depth: int, hops: int) -> Any:
        apply = _ARITHMETIC.get(type(node.op))
        left = self.value(node.left, depth, hops + 1)
        right = self.value(node.right, depth, hops + 1)
        if apply is None or not (_is_number(left) and _is_number(right)):
            return _unread(node)
        if max(abs(left), abs(right)) > _LARGEST or (apply is operator.pow and abs(right) > 64):
            return _unread(node)
        try:
            result = apply(left, right)
        except (ArithmeticError, ValueError):
            return _unread(node)
        return result if _is_number(result) else _unread(node)


def _named(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield what a node names beside variables: arguments, attributes, and keys of tables.

    `self.epochs = epochs` passes on a value that stands elsewhere.
    """
    if isinstance(node, ast.Call):
        order = _PARTS[called(node)].positional if called(node) in _PARTS else ()
        yield from zip(order, itertools.takewhile(_has_a_place, node.args), strict=False)
        yield from ((k.arg, k.value) for k in node.keywords if k.arg is not None)
        return
    pairs: list[tuple[str | None, ast.expr]] = []
    if isinstance(node, ast.Dict):
        pairs = [(_key(key), value) for key, value in zip(node.keys, node.values, strict=True)]
    elif isinstance(node, ast.Assign):
        pairs = [(_place(target), node.value) for target in node.targets]
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        pairs = [(_place(node.target), node.value)]
    elif isinstance(node, ast.AugAssign) and (name := _place(node.target)) is not None:
        yield name, node.target
    yield from ((name, value) for name, value in pairs if name and _last_name(value) != name)


def _set(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield the attributes that a node sets, if not to what another one of that name holds."""
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value is not None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            if isinstance(target, ast.Attribute) and _last_name(node.value) != target.attr:
                yield target.attr, target if isinstance(node, ast.AugAssign) else node.value
    elif isinstance(node, ast.Call) and called(node) == "setattr" and len(node.args) == 3:
        name = _key(node.args[1])
        if name is not None:
            yield name, node.args[2]


def _has_a_place(argument: ast.expr) -> bool:
    return not isinstance(argument, ast.Starred)


def _key(node: ast.expr | None) -> str | None:
    """Return a constant key of a table."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return None


def _place(target: ast.expr) -> str | None:
    """Return the name of an attribute or a key that is assigned to."""
    if isinstance(target, ast.Attribute):
        return target.attr
    return _key(target.slice) if isinstance(target, ast.Subscript) else None


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _changed(node: ast.AST) -> Iterator[str]:
    """Yield the options that a node may set, whatever their defaults are."""
    if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
        yield plain_name(node.attr)
    if isinstance(node, ast.Call) and called(node) == "set_defaults":
        yield from (_ANYTHING if k.arg is None else plain_name(k.arg) for k in node.keywords)
    if isinstance(node, ast.Call) and called(node) == "setattr" and len(node.args) > 1:
        name = node.args[1]
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            yield plain_name(name.value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _unread(node: ast.expr) -> Unread:
    text = ast.unparse(node)
    return Unread(text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 3] + "...")
