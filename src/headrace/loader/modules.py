"""A project's files: its root, its headrace.yml, and its Python files, each run once a load under a name of its own."""

from __future__ import annotations

import ast
import importlib.util
import itertools
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, cast

from headrace.declare.declarations import DECLARED
from headrace.declare.faults import collect, display_path
from headrace.declare.variables import NO_HOME, NoText, expand_home, read_text
from headrace.errors import Finding, HeadraceError, ProjectError, Where, nearest
from headrace.spark.ddl import SchemaError
from headrace.spark.plans.deferred import defer
from headrace.units import Duration
from headrace.user_code import FreshLoader, add_root, forget_imports, innermost, is_installed, root_of
from headrace.user_source import parse as parse_python

LIMIT_VARIABLE = "HEADRACE_LOAD_TIMEOUT"
LIMIT = Duration.parse("60 seconds")
# After so many it is said which file is being loaded.
QUIET_SECONDS = 5.0
_OWN_NAMES = "headrace_project_"
_load_number = itertools.count(1)
_borrowed: dict[str, ModuleType] = {}
DOCUMENTS = ("headrace.yml", "headrace.yaml")
_NOT_OURS = re.compile(r"(test_.*|.*_test|conftest|setup|_.*)\.py\Z")
_MENTIONS = re.compile(rb"\bheadrace\b")
# Conditions that do not hold while a project is loaded.
_NEVER = re.compile(r"(typing\.)?TYPE_CHECKING\Z|__name__ == '__main__'\Z")


class _TookTooLong(BaseException):
    """A file of the project has not come to its end within the limit; no `except Exception` of it takes this."""


def run(
    root: Path, files: Sequence[Path], limit: Duration
) -> tuple[list[tuple[str, Any]], list[Finding], tuple[ModuleType, ...]]:
    """Run `files`, each for `limit` at most: what they declare, by name and in order, their faults, and the modules.

    Those are the ones that were run, or imported from below `root`.
    """
    runner = _Runner(root, files, next(_load_number))
    before = dict(sys.modules)
    with collect() as findings, _import_by_plain_names(root, runner, before), defer():
        for file in files:
            try:
                with _limit_time(file, root, limit):
                    runner.module(file)
            except HeadraceError as error:
                findings.extend(error.findings)
            except (Exception, SystemExit, _TookTooLong) as error:
                findings.append(_finding(error, file, root))
    return list(_declarations(runner.modules.values())), findings, (*runner.modules.values(), *_below(root, before))


@contextmanager
def _limit_time(file: Path, root: Path, limit: Duration) -> Iterator[None]:
    """Say on stderr at which line the file is if that takes long, and end it after `limit`.

    Only the main thread can be ended, by a signal, also where it waits: SIGURG, which does nothing if it comes late.
    """
    thread, done = threading.current_thread(), threading.Event()

    def raise_in(*_: object) -> None:
        if not done.is_set():
            raise _TookTooLong(f"it has not come to its end within {limit.text}")

    def watch() -> None:
        if limit.seconds > QUIET_SECONDS and not done.wait(QUIET_SECONDS):
            where = _line_of(thread, root) or Where(file=display_path(file))
            message = f"{file.name} is still being loaded after {QUIET_SECONDS:g} seconds, and is at this line"
            print(Finding(code="HR114", what=message, where=where, severity="note"), file=sys.stderr, flush=True)
        if ends and not done.wait(max(0.0, limit.seconds - QUIET_SECONDS) or limit.seconds):
            signal.pthread_kill(cast(int, thread.ident), signal.SIGURG)

    ends = thread is threading.main_thread()
    before = signal.signal(signal.SIGURG, raise_in) if ends else None
    threading.Thread(target=watch, name=f"load of {file.name}", daemon=True).start()
    try:
        yield
    finally:
        done.set()
        if ends:
            signal.signal(signal.SIGURG, before or signal.SIG_DFL)


def _line_of(thread: threading.Thread, root: Path) -> Where | None:
    """The line of a file below `root` at which a thread is."""
    frame: FrameType | None = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        file = frame.f_code.co_filename
        if Path(file).is_relative_to(root) and not is_installed(file):
            return Where(file=display_path(file), line=frame.f_lineno)
        frame = frame.f_back
    return None


class _Runner:
    """Runs the project's files, also when one of them imports another by its plain name, so that each runs once."""

    def __init__(self, root: Path, files: Sequence[Path], number: int) -> None:
        self.prefix = f"{_OWN_NAMES}{number}_"
        self.by_name = {file.stem: file for file in files if file.parent == root}
        self.modules: dict[Path, ModuleType] = {}

    def module(self, file: Path) -> ModuleType:
        if file in self.modules:
            return self.modules[file]
        name = self.prefix + file.stem
        loader = FreshLoader(name, str(file))
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
def _import_by_plain_names(root: Path, runner: _Runner, before: dict[str, ModuleType]) -> Iterator[None]:
    """Let the project's files import each other, and forget what an earlier load had imported under plain names."""
    for name, module in _borrowed.items():
        if sys.modules.get(name) is module:
            del sys.modules[name]
            before.pop(name, None)
    _borrowed.clear()
    for modules in (sys.modules, before):
        forget_imports(modules)
    add_root(str(root))
    sys.path.insert(0, str(root))
    sys.meta_path.insert(0, cast(Any, runner))
    # As in FreshLoader, for the modules that the project's files import: no compiled form is left to be out of date.
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


def remember_modules() -> Callable[[], None]:
    """Return a function that gives Python the modules of projects as they are now, whatever is loaded until then."""
    borrowed, before = dict(_borrowed), dict(sys.modules)

    def put_back() -> None:
        for name, module in list(sys.modules.items()):
            is_own = name.startswith(_OWN_NAMES) or root_of(str(getattr(module, "__file__", None))) is not None
            if is_own and before.get(name) is not module:
                del sys.modules[name]
        for name, module in before.items():
            sys.modules.setdefault(name, module)
        _borrowed.clear()
        _borrowed.update(borrowed)

    return put_back


def _below(root: Path, before: Mapping[str, ModuleType]) -> tuple[ModuleType, ...]:
    """Modules imported since `before` whose files lie below `root`, but for installed packages."""
    # Thousands of modules are loaded, few of them by the project: only those are asked for their file.
    new = {name: module for name, module in list(sys.modules.items()) if name not in before}
    result = []
    for name, module in new.items():
        file = None if name.startswith(_OWN_NAMES) else getattr(module, "__file__", None)
        if file is not None and Path(file).is_relative_to(root) and not is_installed(file):
            result.append(module)
    return tuple(dict.fromkeys(result))


def _declarations(modules: Any) -> Iterator[tuple[str, Any]]:
    """What the modules declare, each thing once, under its own name or the first variable that holds it."""
    seen: set[int] = set()
    for module in modules:
        for variable, thing in list(vars(module).items()):
            if isinstance(thing, DECLARED) and id(thing) not in seen:
                seen.add(id(thing))
                yield thing.name or variable, thing


def _finding(error: BaseException, file: Path, root: Path) -> Finding:
    """Return the finding for an exception of a user's file, at the innermost line that is the user's."""
    where = Where(file=display_path(file), line=1)
    if isinstance(error, SyntaxError) and error.filename:
        where = Where(file=display_path(error.filename), line=error.lineno)
    elif place := innermost(error, lambda file: Path(file).is_relative_to(root) and not is_installed(file)):
        where = Where(file=display_path(place[0]), line=place[1])
    text = str(error.msg if isinstance(error, SyntaxError) else error).strip().split("\n")[0]
    message, fix = f"{type(error).__name__}: {text}" if text else type(error).__name__, _fix(error)
    if isinstance(error, _TookTooLong):
        message, fix = text, "put what waits into a function that is called when a query starts, as @hr.table def "
        fix += f"rows(spark): ..., or allow more: export {LIMIT_VARIABLE}='5 minutes'"
    elif isinstance(error, SchemaError):
        message, fix = error.what, error.fix
    elif isinstance(error, SyntaxError) and "codec can't decode" in text:
        fix = "save the file as UTF-8 text"
        try:  # Python does not name the line.
            read_text(file)
        except NoText as wrong:
            message, where = str(wrong), replace(where, line=wrong.line or where.line)
    elif type(error).__module__.startswith("pyspark."):
        message = re.sub(r"^\w+: \[[A-Z_.]+\] ", "PySpark says: ", message)
    return Finding(code="HR114", what=f"{file.name} cannot be loaded: {message}", fix=fix, where=where)


def _fix(error: BaseException) -> str:
    """Say what to do about an exception of a user's file, by its kind."""
    text = str(error)
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"install the package that provides '{error.name}', or put {error.name}.py next to headrace.yml"
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
    names: list[str] = []
    if isinstance(error, AttributeError) and isinstance(error.obj, ModuleType):
        names = list(getattr(error.obj, "__all__", ())) or [name for name in dir(error.obj) if not name.startswith("_")]
        if error.obj.__name__ == "headrace":
            names.remove("once")  # Spark has deprecated that trigger.
    elif isinstance(error, NameError) and error.__traceback__ is not None:
        last = list(traceback.walk_tb(error.__traceback__))[-1][0]
        names = [*last.f_locals, *last.f_globals]
    near = nearest(str(getattr(error, "name", "")), names) if names else ""
    if near.startswith("did you mean"):
        return near
    return "the file is run when the project is loaded; correct this line"


@dataclass(frozen=True, kw_only=True)
class ProjectFiles:
    """The files of a project.

    modules: the Python files that are loaded when `headrace.yml` does not name them: those at the top that import
        headrace as they are loaded, for no other can declare anything, and a script next to them must not be run.
    passed_over: Python files at the top that are not loaded.
    """

    root: Path
    document: Path | None
    modules: tuple[Path, ...]
    passed_over: tuple[Path, ...] = ()


def find(path: str | Path) -> ProjectFiles:
    """The project at `path`: a directory, its `headrace.yml` or one Python file. Raises ProjectError if none is."""
    try:
        given = expand_home(path)
    except ValueError as error:
        problem = f"there is no project at '{path}': {error}"
        raise ProjectError(code="HR100", what=problem, fix=NO_HOME) from None
    if given.is_file() and given.suffix == ".py":
        return ProjectFiles(root=given.resolve().parent, document=None, modules=(given.resolve(),))
    if given.is_file() and given.suffix in {".yml", ".yaml"}:
        return _directory(given.resolve().parent, given.resolve())
    if given.is_dir():
        root = given.resolve()
        # A directory or a broken link of that name is reported when it is read.
        there = [root / name for name in DOCUMENTS if os.path.lexists(root / name)]
        document = there[0] if there else None
        if len(there) > 1:
            problem = f"{' and '.join(DOCUMENTS)} are both there, and only one can be read"
            where = Where(file=display_path(there[1]), line=1)
            raise ProjectError(code="HR101", what=problem, fix="keep one of the two", where=where)
        return _directory(root, document)
    problem = "is neither a directory, a headrace.yml nor a Python file" if given.exists() else "does not exist"
    fix = "give the directory of a project, or make one: headrace init NAME"
    raise ProjectError(code="HR100", what=f"there is no project at '{display_path(given)}', which {problem}", fix=fix)


def _directory(root: Path, document: Path | None) -> ProjectFiles:
    files = sorted(root.glob("*.py"))
    modules = [file for file in files if not _NOT_OURS.match(file.name) and _imports_headrace(file)]
    place = ProjectFiles(
        root=root,
        document=document,
        modules=tuple(modules),
        passed_over=tuple(file for file in files if file not in modules),
    )
    if document is None and not modules:
        raise ProjectError(nothing_at(place))
    return place


def nothing_at(place: ProjectFiles) -> Finding:
    """The finding that nothing is declared at `place`, with what was looked for."""
    files = [file.name for file in (*place.modules, *place.passed_over)]
    python = f"Python files that declare a query (found: {', '.join(files)})" if files else "Python files (found: none)"
    return Finding(
        code="HR100",
        what=f"there is no project in '{display_path(place.root)}'; looked for {', '.join(DOCUMENTS)} and {python}",
        fix="go to a project's directory, or make one: headrace init NAME",
    )


def _imports_headrace(file: Path) -> bool:
    """Whether the file imports headrace outside of functions; one that cannot be read is loaded, which reports it."""
    try:
        text = file.read_bytes()
        return bool(_MENTIONS.search(text)) and any(map(_is_import, _loaded_statements(parse_python(text).body)))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return True


def _loaded_statements(statements: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that a load may run, those inside of `if`, `try` and the like too."""
    for statement in statements:
        yield statement
        parts = [getattr(statement, part, []) for part in ("body", "orelse", "finalbody")]
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if isinstance(statement, ast.If) and _NEVER.match(ast.unparse(statement.test)):
            parts = [statement.orelse]
        parts += [part.body for part in (*getattr(statement, "handlers", []), *getattr(statement, "cases", []))]
        for part in parts:
            yield from _loaded_statements(part)


def _is_import(statement: ast.stmt) -> bool:
    names = [alias.name for alias in statement.names] if isinstance(statement, ast.Import) else []
    if isinstance(statement, ast.ImportFrom) and not statement.level:
        names = [statement.module or ""]
    return any(name.partition(".")[0] == "headrace" for name in names)
