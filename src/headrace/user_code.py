"""The user's own code: for which query it runs, what its functions import, and where an exception came from."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import PurePath
from types import CodeType, FrameType, ModuleType
from typing import Any

# The query, and the batch if it is called for one.
_SERVING: ContextVar[tuple[str, int | None] | None] = ContextVar("headrace_serving", default=None)


@contextmanager
def serving(query: str, batch: int | None = None) -> Iterator[None]:
    """Attribute what the user's code prints and logs in the block to this query and this batch."""
    before = _SERVING.set((query, batch))
    try:
        yield
    finally:
        _SERVING.reset(before)


def current() -> tuple[str, int | None] | None:
    """Return the query and the batch that the user's code runs for in this thread; None outside of it."""
    return _SERVING.get()


def innermost(error: BaseException, is_own: Callable[[str], bool]) -> tuple[str, int | None] | None:
    """Return the file and line of the innermost call in a file that `is_own`; None if the trace has no such file."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if is_own(frame.filename):
            return frame.filename, frame.lineno
    return None


class FreshLoader(SourceFileLoader):
    """Compiles the file each time: a cached form may be older than an edit within the same second."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


class _ProjectFinder(MetaPathFinder):
    """Finds the module below a project's root that a function of the project imports when it is called.

    While a project is loaded, its root is on Python's path; afterwards it is not, because another project may have a
    module of the same name. So the importing file decides. `imported` holds the modules that were imported so.
    """

    def __init__(self) -> None:
        self.roots: set[str] = set()
        self.imported: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        root = root_of(_IMPORTING.get() or _importing_file()) if path is None else None
        spec = None if root is None else PathFinder.find_spec(name, [root])
        if spec is not None:
            self.imported.add(name)
            if type(spec.loader) is SourceFileLoader:
                spec.loader = FreshLoader(name, spec.loader.path)
        return spec


_FINDER = _ProjectFinder()
# The file for which modules are imported that does not import them itself.
_IMPORTING: ContextVar[str] = ContextVar("headrace_importing", default="")


def add_root(root: str) -> None:
    """Let functions of the project below `root` import its modules whenever they are called."""
    _FINDER.roots.add(root)
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


def forget_imports(modules: dict[str, ModuleType]) -> None:
    """Take what functions have imported out of `modules`, by name: another project has its own, or files changed."""
    for name in [name for name in modules if name.partition(".")[0] in _FINDER.imported]:
        del modules[name]


@contextmanager
def import_as(file: str) -> Iterator[None]:
    """Import inside the block what functions of `file` would import."""
    before = _IMPORTING.set(file)
    try:
        yield
    finally:
        _IMPORTING.reset(before)


def root_of(file: str) -> str | None:
    """Return the root of the innermost project that a file belongs to; None: it belongs to none."""
    roots = [] if is_installed(file) else [root for root in _FINDER.roots if file.startswith(f"{root}/")]
    return max(roots, key=len, default=None)


def _importing_file() -> str:
    """Return the file whose statement or call imports a module."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith("importlib"):
        frame = frame.f_back
    return "" if frame is None else frame.f_code.co_filename


def is_installed(file: str) -> bool:
    """Whether a file belongs to an installed package."""
    return "site-packages" in PurePath(file).parts
