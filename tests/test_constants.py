"""Numeric constants of the certified rooms say what they bound, and no name means two numbers."""

import ast
import importlib
import tokenize
from collections import defaultdict
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

SOURCE = Path(__file__).parents[1] / "src"
MODULES = sorted(
    path
    for room in ("accounting", "matrix", "noise")
    for path in (SOURCE / "taut" / room).rglob("*.py")
)
UNSAYING = {"ROUNDING", "SAFETY", "SLACK", "MOST", "FEW", "TINY", "HAIR"}
"""Words that name no bound when they stand alone."""


def numeric(value):
    """Whether the value is a number, or an array or a tuple of numbers."""
    if isinstance(value, bool | str | bytes) or callable(value):
        return False
    try:
        return np.asarray(value).dtype.kind in "iuf" or isinstance(value, int | float)
    except (TypeError, ValueError):
        return False


def assigned(node):
    """Return the names that a statement assigns, those of a tuple one by one."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    parts = [part for t in targets for part in (t.elts if isinstance(t, ast.Tuple) else [t])]
    return [part.id for part in parts if isinstance(part, ast.Name)]


def constants(path):
    """Return name, value, statement and following statement of every module-level constant."""
    module = importlib.import_module(
        ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    )
    body = ast.parse(path.read_text()).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            for name in assigned(node):
                value = getattr(module, name)
                if name.strip("_").isupper() and numeric(value):
                    yield name, np.asarray(value).tolist(), node, after


def comments(path):
    """Return the lines that have a comment, and those that are nothing else."""
    tokens = list(tokenize.tokenize(BytesIO(path.read_bytes()).readline))
    found = [token for token in tokens if token.type == tokenize.COMMENT]
    alone = {token.start[0] for token in found if token.line.lstrip().startswith("#")}
    return {token.start[0] for token in found}, alone


def bare_numbers(path):
    """Return the lines of very small or large floats that are neither constants nor defaults."""
    tree = ast.parse(path.read_text())
    named = {
        line
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for line in range(node.lineno, node.end_lineno + 1)
    }
    defaults = {
        id(value)
        for node in ast.walk(tree)
        if isinstance(node, ast.arguments)
        for value in (*node.defaults, *node.kw_defaults)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, float):
            plain = node.value == 0 or 1e-3 <= node.value <= 1e3
            if not plain and node.lineno not in named and id(node) not in defaults:
                yield node.lineno


def is_text(node):
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE / "taut")))
def test_every_numeric_constant_says_what_it_bounds(path):
    commented, alone = comments(path)
    silent = [
        f"{name} (line {node.lineno})"
        for name, _, node, after in constants(path)
        if not is_text(after)
        and node.lineno - 1 not in alone
        and not commented & set(range(node.lineno, node.end_lineno + 1))
    ]
    assert not silent, "say in a comment or docstring what it bounds, and why that is enough"


@pytest.mark.parametrize(
    "path",
    [path for path in MODULES if not path.is_relative_to(SOURCE / "taut" / "matrix")],
    ids=lambda path: str(path.relative_to(SOURCE / "taut")),
)
def test_numbers_within_certified_engines_are_explained_where_they_stand(path):
    commented, alone = comments(path)
    silent = {line for line in bare_numbers(path) if line not in commented}
    silent -= {line for line in silent if line - 1 in alone}
    assert not silent, "say in a comment, on the line or above, what it bounds; or name it"


def test_no_name_stands_for_two_numbers():
    values = defaultdict(dict)
    for path in MODULES:
        for name, value, _, _ in constants(path):
            values[name][repr(value)] = str(path.relative_to(SOURCE))
    assert {name: found for name, found in values.items() if len(found) > 1} == {}


def test_no_constant_is_named_for_a_mere_size():
    names = {name for path in MODULES for name, _, _, _ in constants(path)}
    assert {name for name in names if name.strip("_") in UNSAYING} == set()
