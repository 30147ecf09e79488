"""A project's Python files, each run once a load under a name of its own."""

from __future__ import annotations

import importlib.util
import itertools
import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, cast

from headrace.declare import DECLARED, collecting
from headrace.declare.location import shown
from headrace.errors import Finding, HeadraceError, Where, nearest
from headrace.spark.ddl import SchemaError
from headrace.spark.deferred import deferring
from headrace.user_code import innermost, is_installed

_load_number = itertools.count(1)
_borrowed: dict[str, ModuleType] = {}
_of_root: dict[Path, tuple[ModuleType, ...]] = {}


def project_modules(root: Path) -> tuple[ModuleType, ...]:
    """The modules that the last load of the project at `root` ran or imported from below it."""
    return _of_root.get(root, ())


def run(root: Path, files: Sequence[Path]) -> tuple[list[tuple[str, Any]], list[Finding]]:
    """Run `files` and return what they declare, by name and in order, with every fault of theirs."""
    runner = _Runner(root, files, next(_load_number))
    before = dict(sys.modules)
    with collecting() as findings, _importing(root, runner, before), deferring():
        for file in files:
            try:
                runner.module(file)
            except HeadraceError as error:
                findings.extend(error.findings)
            except (Exception, SystemExit) as error:
                findings.append(_finding(error, file, root))
    _of_root[root] = tuple(runner.modules.values()) + _below(root, before)
    return list(_declared(runner.modules.values())), findings


class _Fresh(SourceFileLoader):
    """Compiles the file each time: a cached form may be older than an edit within the same second."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


class _Runner:
    """Runs the project's files, also when one of them imports another by its plain name, so that each runs once."""

    def __init__(self, root: Path, files: Sequence[Path], number: int) -> None:
        self.prefix = f"headrace_project_{number}_"
        self.by_name = {file.stem: file for file in files if file.parent == root}
        self.modules: dict[Path, ModuleType] = {}

    def module(self, file: Path) -> ModuleType:
        if file in self.modules:
            return self.modules[file]
        name = self.prefix + file.stem
        loader = _Fresh(name, str(file))
        module = importlib.util.module_from_spec(ModuleSpec(name, loader, origin=str(file)))
        module.__file__ = str(file)
        self.modules[file] = sys.modules[name] = module
        if file.stem not in sys.modules and self.by_name.get(file.stem) == file:
            sys.modules[file.stem] = module
        loader.exec_module(module)
        return module

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, cast(Any, self)) if path is None and name in self.by_name else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self.module(self.by_name[spec.name])

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is left to do: `create_module` ran it."""


@contextmanager
def _importing(root: Path, runner: _Runner, before: dict[str, ModuleType]) -> Iterator[None]:
    """Let the project's files import each other, and forget what an earlier load had imported under plain names."""
    for name, module in _borrowed.items():
        if sys.modules.get(name) is module:
            del sys.modules[name]
            before.pop(name, None)
    _borrowed.clear()
    sys.path.insert(0, str(root))
    sys.meta_path.insert(0, cast(Any, runner))
    # As in _Fresh, for the modules that the project's files import: no compiled form is left that could be out of date.
    writes_none, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = writes_none
        sys.meta_path.remove(cast(Any, runner))
        if str(root) in sys.path:
            sys.path.remove(str(root))
        own = set(runner.modules.values()) | set(_below(root, before))
        _borrowed.update(
            (name, module)
            for name, module in sys.modules.items()
            if name not in before and module in own and not name.startswith(runner.prefix)
        )


def _below(root: Path, before: Mapping[str, ModuleType]) -> tuple[ModuleType, ...]:
    """Modules imported since `before` whose files lie below `root`, but for installed packages."""
    # Thousands of modules are loaded, few of them by the project: only those are asked for their file.
    new = {name: module for name, module in list(sys.modules.items()) if name not in before}
    found = []
    for name, module in new.items():
        file = None if name.startswith("headrace_project_") else getattr(module, "__file__", None)
        if file is not None and Path(file).is_relative_to(root) and "site-packages" not in Path(file).parts:
            found.append(module)
    return tuple(dict.fromkeys(found))


def _declared(modules: Any) -> Iterator[tuple[str, Any]]:
    """What the modules declare, each thing once, under its own name or the first variable that holds it."""
    seen: set[int] = set()
    for module in modules:
        for variable, thing in list(vars(module).items()):
            if isinstance(thing, DECLARED) and id(thing) not in seen:
                seen.add(id(thing))
                yield thing.name or variable, thing


def _finding(error: BaseException, file: Path, root: Path) -> Finding:
    """One sentence about an exception of a user's file, at the innermost line that is the user's."""
    where = Where(file=shown(file), line=1)
    if isinstance(error, SyntaxError) and error.filename:
        where = Where(file=shown(error.filename), line=error.lineno)
    elif found := innermost(error, lambda file: Path(file).is_relative_to(root) and not is_installed(file)):
        where = Where(file=shown(found[0]), line=found[1])
    said = str(error.msg if isinstance(error, SyntaxError) else error).strip().split("\n")[0]
    what = f"{type(error).__name__}: {said}" if said else type(error).__name__
    if isinstance(error, SchemaError):
        what = error.what
    elif type(error).__module__.startswith("pyspark."):
        what = re.sub(r"^\w+: \[[A-Z_.]+\] ", "PySpark says: ", what)
    fix = _fix(error)
    return Finding(code="HR114", what=f"{file.name} cannot be loaded: {what}", fix=fix, where=where)


def _fix(error: BaseException) -> str:
    """What to do about an exception of a user's file, as far as its kind tells."""
    text = str(error)
    if isinstance(error, SchemaError):
        return error.fix
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"install the package that provides '{error.name}', or put {error.name}.py beside headrace.yml"
    if "SESSION" in text or (isinstance(error, AttributeError) and text.startswith("'NoneType' object")):
        return (
            "no session is there while the project is loaded; read data in a function that asks for it by its "
            "parameter: @hr.table def rows(spark): return spark.read..."
        )
    if isinstance(error, KeyError) and re.fullmatch(r"'[A-Z][A-Z0-9_]*'", text):
        name = text.strip("'")
        return f"export {name}=..., or write os.environ.get({text}); options of sources and sinks take ${{{name}}}"
    unknown = re.search(r"(query|view|table)\(\) got an unexpected keyword argument '(\w+)'", text)
    if unknown:
        options = {"query": ("sink", "mode", "trigger", "name"), "view": ("name",), "table": ("name", "refresh")}
        return f"the options of @hr.{unknown[1]} are {', '.join(options[unknown[1]])}"
    known: list[str] = []
    if isinstance(error, AttributeError) and isinstance(error.obj, ModuleType):
        known = list(getattr(error.obj, "__all__", ())) or [name for name in dir(error.obj) if not name.startswith("_")]
    elif isinstance(error, NameError) and error.__traceback__ is not None:
        last = list(traceback.walk_tb(error.__traceback__))[-1][0]
        known = [*last.f_locals, *last.f_globals]
    near = nearest(str(getattr(error, "name", "")), known) if known else ""
    if near.startswith("did you mean"):
        return near
    return "the file is run when the project is loaded; correct this line"
