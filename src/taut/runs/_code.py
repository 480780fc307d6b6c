"""Code that a file names: run only if its reader has said so, and only if it is their own.

A configuration comes from whoever wrote it. What it may choose are numbers and names of ours; a
name such as "module:factory" would let it choose what is run. So the module has to be named once
more by the person at the keyboard, and has to lie below their working directory, with every file
that importing it executes. Nothing is executed before that is known.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import inspect
import os
import sys
import sysconfig
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from torch import nn

from taut._base.spelling import did_you_mean

__all__ = ["allowed_factory", "check_allowed", "names_code", "typed_factory"]

_LOADED: set[str] = set()  # by us: another run in this process may have a module of the same name


def names_code(name: str) -> bool:
    """Return whether a model's name is one of a module and what it holds."""
    return ":" in name


def check_allowed(name: str, allow_code: str | None, where: str = "[model]") -> None:
    """Refuse code that the caller has not named; import nothing.

    Args:
        name: "package.module:factory", as a file has it.
        allow_code: the module that the caller allows.
        where: how messages call the place of the name.

    Raises:
        ValueError: naming the module, and how to allow it.
    """
    module = name.partition(":")[0]
    if allow_code == module:
        return
    given = "" if allow_code is None else f", and you have allowed {allow_code!r}"
    raise ValueError(
        f"{where} {name!r} would run code of the module {module!r}{given}. A file cannot allow "
        f"that by itself: read the module, and if you trust it, add --allow-code {module} (in "
        f"Python: allow_code={module!r})"
    )


def allowed_factory(name: str, allow_code: str | None, code: Path) -> Callable[..., Any]:
    """Return the function or class that a name stands for.

    Args:
        name: "package.module:factory", as a file has it.
        allow_code: the module that the caller allows.
        code: the directory that the module is looked for in; below the working directory.

    **Guarantee**: nothing is executed but source files below the working directory, links
    followed, outside of installed packages: the module, and the packages that it is in. What it
    imports in turn is its own affair. The factory is defined in such a file as well: a module that
    has imported `os.system` does not offer it.

    Raises:
        ValueError: if the module was not allowed, is not there or lies elsewhere, or does not
            define the factory.
    """
    check_allowed(name, allow_code)
    module_name, _, attribute = name.partition(":")
    root = Path.cwd().resolve()
    module = _loaded(_specs(module_name, code.resolve(), root), code.resolve())
    factory = getattr(module, attribute, None)
    if not callable(factory):
        names = [key for key, value in vars(module).items() if callable(value)]
        raise ValueError(
            f"[model] {module_name!r} has no function {attribute!r}{did_you_mean(attribute, names)}"
        )
    if not _is_own(factory, root):
        raise ValueError(
            f"[model] {name!r} must be a function, or a class of models, that is defined below "
            f"{root}, got {factory!r}; write a function there that makes the model"
        )
    made: Callable[..., Any] = factory
    return made


def typed_factory(name: str, where: str) -> Callable[..., Any]:
    """Return what a name on the command line stands for: whoever types it means to run it.

    Args:
        name: "package.module:factory", looked for in the working directory first.
        where: how messages call the place of the name.

    Raises:
        ValueError: if there is no such module, or no such function in it.
    """
    module, _, attribute = name.partition(":")
    here = os.fspath(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{where} {name}: {error}") from None
    if not callable(found):
        raise ValueError(f"{where} {name} must be a function that makes a model, got {found!r}")
    made: Callable[..., Any] = found
    return made


def _specs(module: str, code: Path, root: Path) -> list[ModuleSpec]:
    """Return where a module and the packages around it are; execute nothing."""
    found: list[ModuleSpec] = []
    places: Sequence[str] = [os.fspath(code)]
    parts = module.split(".")
    importlib.invalidate_caches()
    for end in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:end]), list(places))
        if not all(part.isidentifier() for part in parts) or spec is None:
            raise ValueError(
                f"[model] cannot import {module!r}: there is no such module in {code}; modules are "
                "looked for in [run] code, and must lie below the working directory"
            )
        _check_place(spec, root)
        found.append(spec)
        places = spec.submodule_search_locations or []
    return found


def _check_place(spec: ModuleSpec, root: Path) -> None:
    if not isinstance(spec.loader, SourceFileLoader) or spec.origin is None:
        raise ValueError(
            f"[model] {spec.name!r} is no file of Python source; a package needs an __init__.py"
        )
    if not _is_below(Path(spec.origin), root):
        raise ValueError(
            f"[model] {spec.name!r} is {Path(spec.origin).resolve()}, which is not below the "
            f"working directory {root}, or belongs to an installed package; copy the code there, "
            "or start from the directory that holds it"
        )


def _is_below(file: Path, root: Path) -> bool:
    """Return whether a file lies in the working directory, and is not part of an installation."""
    real = file.resolve()
    paths = sysconfig.get_paths()
    installed = [Path(paths[key]).resolve() for key in ("stdlib", "platstdlib")]
    return (
        real.is_file()  # code that was made on the way has a name, and no file
        and real.is_relative_to(root)
        and not {"site-packages", "dist-packages"} & set(real.parts)
        and not any(real.is_relative_to(place) for place in installed)
    )


def _loaded(specs: Sequence[ModuleSpec], code: Path) -> ModuleType:
    """Import modules from where they were found, the packages first."""
    if os.fspath(code) not in sys.path:
        # Last: nothing that lies there takes the place of what other modules import.
        sys.path.append(os.fspath(code))
    for spec in specs:
        _load(spec)
    return sys.modules[specs[-1].name]


def _load(spec: ModuleSpec) -> None:
    known = sys.modules.get(spec.name)
    if known is not None and _file(known) == _file_of(spec):
        return
    if known is not None and spec.name not in _LOADED:
        raise ValueError(
            f"[model] a module {spec.name!r} is loaded already, from "
            f"{getattr(known, '__file__', None) or 'Python itself'}; rename yours"
        )
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[spec.name]
        reason = str(error).strip().split("\n")[0]
        raise ValueError(
            f"[model] cannot import {spec.name!r} from {spec.origin}: {type(error).__name__}: "
            f"{reason}"
        ) from error
    _LOADED.add(spec.name)
    package, _, last = spec.name.rpartition(".")
    if package:
        setattr(sys.modules[package], last, module)


def _file(module: ModuleType) -> Path | None:
    spec = module.__spec__
    return None if spec is None or spec.origin is None else _file_of(spec)


def _file_of(spec: ModuleSpec) -> Path:
    assert spec.origin is not None
    return Path(spec.origin).resolve()


def _is_own(factory: Any, root: Path) -> bool:
    """Return whether a function, or a class of models, is defined in a file below the root."""
    made = inspect.unwrap(factory)
    if isinstance(made, FunctionType):
        return _is_below(Path(made.__code__.co_filename), root)
    if isinstance(made, type) and issubclass(made, nn.Module):
        home = sys.modules.get(made.__module__)
        file = getattr(home, "__file__", None)
        return file is not None and _is_below(Path(file), root)
    return False
