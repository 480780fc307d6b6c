"""Settings in Python: a program is parsed and looked through, and no line of it is run."""

from __future__ import annotations

import ast
import operator
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from taut.audit._settings.document import Call, Document, Signature, Unread, Value, plain_name

__all__ = ["read_source"]

_MOST_HOPS = 20  # from a name to its literal; programs take one or two
_MOST_SHOWN = 60  # characters of an expression that a message repeats
_MOST_LOOKS = 100_000  # at expressions: names that hold each other twice multiply without end
_LARGEST = 1e18  # of a number in arithmetic, so that no power takes the memory of the machine
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

    Arguments are literals, arithmetic on literals, names that are assigned once in the file, and
    options of `argparse` with a default. Everything else is `Unread`.

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
        self.assigned: dict[str, ast.expr] = {}
        self.made: dict[str, ast.Call] = {}
        self.under_way: set[str] = set()
        written: Counter[str] = Counter()
        simple: Counter[str] = Counter()
        for node in self.nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                written[node.id] += 1
            for target, value in _assignments(node):
                self.assigned[target] = value
                simple[target] += 1
                if isinstance(value, ast.Call):
                    self.made[target] = value
        # A loader that becomes private keeps its name: `..., loader = make_private(..., loader)`.
        self.made = {k: v for k, v in self.made.items() if simple[k] == 1}
        self.assigned = {k: v for k, v in self.assigned.items() if written[k] == 1}
        self.options = dict(self._options())

    def document(self) -> Document:
        inner: set[int] = set()
        calls = []
        for node in self.nodes:  # outer calls come before those inside of them
            name = _called(node)
            if name in self.known and isinstance(node, ast.Call) and id(node) not in inner:
                call = self._call(node, 0)
                if self.known[name].fits(call):
                    calls.append(call)
                if "DpEvent" in name:
                    inner |= {id(part) for part in ast.walk(node)}
        return Document(tuple(calls), self._facts())

    def _facts(self) -> dict[str, tuple[Value, ...]]:
        found: defaultdict[str, list[Value]] = defaultdict(list)
        for name, assigned in self.assigned.items():
            where = f"line {assigned.lineno}"
            found[plain_name(name)].append(Value(self.value(assigned), where))
        for name, value in self.options.items():
            found[plain_name(name)].append(value)
        for node in self.nodes:
            for keyword in node.keywords if isinstance(node, ast.Call) else ():
                if keyword.arg is not None:
                    said = Value(self.value(keyword.value), f"line {keyword.value.lineno}")
                    found[plain_name(keyword.arg)].append(said)
        return {name: tuple(values) for name, values in found.items()}

    def _options(self) -> Iterator[tuple[str, Value]]:
        """Yield options of a command line that have a default."""
        for node in self.nodes:
            if _called(node) != "add_argument" or not isinstance(node, ast.Call):
                continue
            names = [
                arg.value
                for arg in node.args
                if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
            ]
            long = next((n for n in names if n.startswith("--")), None)
            given = {k.arg: k.value for k in node.keywords}
            if long is not None and "default" in given:
                value = self.value(given["default"])
                where = f"line {node.lineno}, default of {long}"
                yield plain_name(long.lstrip("-")), Value(value, where)

    def _call(self, node: ast.Call, depth: int) -> Call:
        if depth > self.deepest:
            raise ValueError(f"its calls are nested more than {self.deepest} deep")
        name = _called(node)
        where = f"line {node.lineno}"
        keywords = {
            plain_name(k.arg): self._argument(k.value, where, depth)
            for k in node.keywords
            if k.arg is not None
        }
        positional = [self._argument(arg, where, depth) for arg in node.args]
        if any(k.arg is None for k in node.keywords):
            keywords["**"] = Value(Unread("**arguments"), where)
        signature = self.known.get(name, Signature(name))
        return Call(name, signature.bound(positional, keywords), where)

    def _argument(self, node: ast.expr, where: str, depth: int) -> Value:
        option = self._option(node)
        return option if option is not None else Value(self.value(node, depth), where)

    def _option(self, node: ast.expr) -> Value | None:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return self.options.get(plain_name(node.attr))
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
            case ast.Name(id=name) if name in self.assigned or name in self.made:
                return self._of_name(name, depth, hops)
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                number = self.value(inner, depth, hops + 1)
                return -number if _is_number(number) else _unread(node)
            case ast.BinOp():
                return self._arithmetic(node, depth, hops)
            case ast.List() | ast.Tuple():
                return [self.value(part, depth + 1, hops + 1) for part in node.elts]
            case ast.Call() if _called(node):
                return self._call(node, depth + 1)
        option = self._option(node)
        return option.value if option is not None else _unread(node)

    def _of_name(self, name: str, depth: int, hops: int) -> Any:
        """Return what a name stands for; `model = wrap(model)` stands for itself no further."""
        if name in self.under_way:
            return Unread(name)
        self.under_way.add(name)
        try:
            node = self.assigned.get(name) or self.made[name]
            return self.value(node, depth, hops + 1)
        finally:
            self.under_way.discard(name)

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


def _called(node: ast.AST) -> str:
    """Return the last name of a called function or class, empty for anything else."""
    if not isinstance(node, ast.Call):
        return ""
    function = node.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _assignments(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)]):
            yield name, node.value
        case ast.AnnAssign(target=ast.Name(id=name), value=value) if value is not None:
            yield name, value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _unread(node: ast.expr) -> Unread:
    text = ast.unparse(node)
    return Unread(text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 3] + "...")
