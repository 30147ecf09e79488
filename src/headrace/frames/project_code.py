"""A project's own code on Spark's workers: what its modules define, and the modules that its functions import there."""

from __future__ import annotations

import ast
import atexit
import hashlib
import shutil
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from headrace.model import Project
from headrace.spark.stream.broadcasts import end_sending_by_value, send_by_value
from headrace.user_source import parse as parse_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The variable by which Spark starts other workers for other code: a worker keeps the modules that it has imported.
_VARIABLE = "HEADRACE_PROJECT_CODE"
# Queries that start together send the same code once.
_one_at_a_time = threading.Lock()


def send_code(project: Project, spark: SparkSession) -> None:
    """Let Spark's workers have what the project's modules define, and the modules that functions import when called."""
    send_by_value(project.modules)
    contents = _files_imported_in_calls(project.root, project.modules)
    if not contents:
        return
    with _one_at_a_time:
        _send(contents, spark)


def forget_code(modules: Iterable[ModuleType]) -> None:
    """Forget modules that no query uses any more: their code, and that it is sent by value."""
    _files_imported_in_calls.cache_clear()
    for module in modules:
        # A module of the same name may have come in its place, whose name stays.
        if sys.modules.get(module.__name__, module) is module:
            sys.modules.pop(module.__name__, None)
            end_sending_by_value(module)


def _send(contents: dict[str, bytes], spark: SparkSession) -> None:
    digest = hashlib.sha256(repr(sorted(contents.items())).encode()).hexdigest()[:16]
    context = spark.sparkContext
    newest = context.environment.get(_VARIABLE, "")
    if newest.partition("-")[0] == digest:
        return
    home = Path(tempfile.mkdtemp(prefix="headrace-project-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    # Of several archives workers look into the newest one first, so one that comes again needs another name.
    name = f"{digest}-{home.name.rpartition('-')[2]}"
    with zipfile.ZipFile(home / f"{name}.zip", "w") as archive:
        for place, content in contents.items():
            archive.writestr(place, content)
    context.addPyFile(str(home / f"{name}.zip"))
    # It puts the archive on the driver's path too, where another project would find these modules.
    sys.path[:] = [place for place in sys.path if not place.endswith(f"{name}.zip")]
    context.environment[_VARIABLE] = name


@lru_cache(maxsize=8)
def _files_imported_in_calls(root: Path, modules: tuple[ModuleType, ...]) -> dict[str, bytes]:
    """Read the files of modules below the root that functions import when called, and of what these modules import.

    `modules` themselves are sent by value. What is edited later counts from the next load of the project on, as there.
    """
    files = [Path(module.__file__) for module in modules if module.__file__]
    waiting = [name for file in files for name in _imports(root, file, in_functions=True)]
    taken: set[Path] = set()
    while waiting:
        top = root / waiting.pop()
        several = top.rglob("*.py") if top.is_dir() else [top.with_name(f"{top.name}.py")]
        for file in several:
            if file not in taken and file.is_file():
                taken.add(file)
                waiting.extend(_imports(root, file, in_functions=False))
    return {str(file.relative_to(root)): file.read_bytes() for file in taken}


def _imports(root: Path, file: Path, *, in_functions: bool) -> set[str]:
    """Return the first parts of the modules that a file imports, or those of its functions alone."""
    try:
        tree, package = parse_python(file.read_bytes()), file.relative_to(root).parts[0]
    except (OSError, SyntaxError, ValueError):  # The load, or the import, reports it.
        return set()
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    parts = [node for node in ast.walk(tree) if isinstance(node, functions)] if in_functions else [tree]
    names = set[str]()
    for node in (node for part in parts for node in ast.walk(part)):
        if isinstance(node, ast.Import):
            names.update(name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add(package if node.level else str(node.module).partition(".")[0])
    return names
