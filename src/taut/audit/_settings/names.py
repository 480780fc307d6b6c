"""What the names of a program stand for, where nothing but one assignment can have decided it."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["Names", "called"]

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_Made = ast.expr | None


@dataclass(eq=False)
class _Scope:
    """One scope, and all that binds names in it: an expression, or None for what is not simple."""

    node: ast.AST
    parent: _Scope | None
    bound: defaultdict[str, list[_Made]] = field(default_factory=lambda: defaultdict(list))
    unpacked: defaultdict[str, list[ast.expr]] = field(default_factory=lambda: defaultdict(list))
    elsewhere: dict[str, bool] = field(default_factory=dict)  # declared global, or nonlocal


class Names:
    """The scopes of a program, as Python has them.

    A name is known where one assignment binds it, and nothing else in its scope does: no parameter,
    import, loop, pattern, second assignment or later import of everything.

    Args:
        tree: the program.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.module = _Scope(tree, None)
        self.scopes = [self.module]
        self.places: dict[int, _Scope] = {}
        self.everything = 0  # the last line that imports all names of a module
        seen: list[tuple[_Scope, str, _Made, ast.expr | None]] = []
        taken: set[int] = set()
        waiting: list[tuple[ast.AST, _Scope]] = [(tree, self.module)]
        while waiting:
            node, scope = waiting.pop()
            self.places[id(node)] = scope
            if isinstance(node, ast.Global | ast.Nonlocal):
                scope.elsewhere |= dict.fromkeys(node.names, isinstance(node, ast.Global))
            if isinstance(node, ast.ImportFrom) and any(a.name == "*" for a in node.names):
                self.everything = max(self.everything, node.lineno)
            owner = scope
            while isinstance(node, ast.NamedExpr) and isinstance(owner.node, _COMPREHENSIONS):
                owner = owner.parent or self.module
            seen += ((owner, *binding) for binding in _bindings(node, taken))
            waiting += self._parts(node, scope)
        for scope, name, made, unpacked in seen:
            owner = self._owner(scope, name)
            if unpacked is not None:
                owner.unpacked[name].append(unpacked)
            else:
                owner.bound[name].append(made)

    def _parts(self, node: ast.AST, scope: _Scope) -> Iterator[tuple[ast.AST, _Scope]]:
        if not isinstance(node, (*_FUNCTIONS, *_COMPREHENSIONS, ast.ClassDef)):
            yield from ((part, scope) for part in ast.iter_child_nodes(node))
            return
        inner = _Scope(node, scope)
        self.scopes.append(inner)
        own = {id(part) for part in _inside(node)}
        for part in ast.iter_child_nodes(node):
            if isinstance(part, ast.arguments):  # defaults are made outside
                yield from ((arg, inner) for arg in _parameters(part))
                outer = [*part.defaults, *(d for d in part.kw_defaults if d is not None)]
                yield from ((default, scope) for default in outer)
            else:
                yield part, inner if id(part) in own else scope

    def _owner(self, scope: _Scope, name: str) -> _Scope:
        """Return the scope that a binding belongs to."""
        found: _Scope | None = scope
        if scope.elsewhere.get(name) is True:
            return self.module
        if name in scope.elsewhere:
            found = scope.parent
            while found is not None and name not in found.bound:
                found = found.parent
        return self.module if found is None else found

    def _scope(self, node: ast.Name) -> _Scope | None:
        """Return the scope that a name is looked up in."""
        start = self.places.get(id(node), self.module)
        scope: _Scope | None = self._owner(start, node.id)
        while scope is not None:
            hidden = isinstance(scope.node, ast.ClassDef) and scope is not start
            if not hidden and (node.id in scope.bound or node.id in scope.unpacked):
                return scope
            scope = scope.parent
        return None

    def meaning(self, node: ast.Name) -> ast.expr | None:
        """Return the expression that a name stands for, None if nothing says so for sure.

        A call may be unpacked into the name again: `..., loader = make_private(..., loader)`.
        """
        scope = self._scope(node)
        return None if scope is None else self._single(scope, node.id)

    def is_parsed(self, node: ast.Name, usual: frozenset[str], parsers: frozenset[str]) -> bool:
        """Say whether a name stands for the options of a command line.

        Args:
            node: the name.
            usual: names that parameters have which hold options.
            parsers: functions that return options.
        """
        scope = self._scope(node)
        if scope is None:
            return False
        made = [*scope.bound.get(node.id, []), *scope.unpacked.get(node.id, [])]
        if all(value is not None and called(value) in parsers for value in made):
            return True
        return made == [None] and node.id in usual and isinstance(scope.node, _FUNCTIONS)

    def _single(self, scope: _Scope, name: str) -> ast.expr | None:
        made, unpacked = scope.bound.get(name, []), scope.unpacked.get(name, [])
        if len(made) != 1 or made[0] is None:
            return None
        value = made[0]
        if unpacked and not isinstance(value, ast.Call):
            return None
        if scope is self.module and value.lineno < self.everything:
            return None
        return value

    def constants(self) -> Iterator[tuple[str, ast.expr, bool]]:
        """Yield assigned names, what was assigned, and whether nothing else binds the name."""
        for scope in self.scopes:
            for name, made in scope.bound.items():
                single = self._single(scope, name)
                for value in made:
                    if value is not None:
                        yield name, value, single is value


def called(node: ast.AST) -> str:
    """Return the last name of a called function or class, empty for anything else."""
    if not isinstance(node, ast.Call):
        return ""
    function = node.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _inside(node: ast.AST) -> list[ast.AST]:
    """Return the parts of a function, class or comprehension that its own scope holds."""
    if isinstance(node, ast.Lambda):
        return [node.body]
    if isinstance(node, _COMPREHENSIONS):
        return list(ast.iter_child_nodes(node))
    return list(getattr(node, "body", []))


def _parameters(arguments: ast.arguments) -> list[ast.arg]:
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [*named, *(arg for arg in (arguments.vararg, arguments.kwarg) if arg is not None)]


def _bindings(node: ast.AST, taken: set[int]) -> Iterator[tuple[str, _Made, ast.expr | None]]:
    """Yield the names that a node binds itself, with what is assigned or what is unpacked.

    Args:
        node: the node; those that hold it came before.
        taken: names in the text, by identity, that an assignment around them has accounted for.
    """
    match node:
        case ast.Assign(targets=[ast.Name() as target], value=value):
            taken.add(id(target))
            yield target.id, value, None
        case ast.AnnAssign(target=ast.Name() as target, value=value) if value is not None:
            taken.add(id(target))
            yield target.id, value, None
        case ast.Assign(targets=[ast.Tuple(elts=parts)], value=ast.Call() as value):
            names = [part for part in parts if isinstance(part, ast.Name)]
            taken.update(id(name) for name in names)
            yield from ((name.id, None, value) for name in names)
        case ast.NamedExpr(target=ast.Name() as target):
            taken.add(id(target))
            yield target.id, None, None
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) if id(node) not in taken:
            yield name, None, None
        case ast.arg(arg=name):
            yield name, None, None
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name, None, None
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            yield from ((a.asname or a.name.partition(".")[0], None, None) for a in names)
        case ast.ExceptHandler(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name, None, None
        case ast.MatchAs(name=str(name)) | ast.MatchMapping(rest=str(name)):
            yield name, None, None
