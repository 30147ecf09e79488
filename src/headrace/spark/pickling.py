"""What of the driver's Python code Spark sends to its workers as it is, because they cannot import it."""

from __future__ import annotations

import io
import pickle
import re
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

# What the loader puts before the name of a file, with the number of the load.
_LOADED = re.compile(r"^headrace_project_(\d+)_")


def send_by_value(modules: Iterable[ModuleType]) -> None:
    """Let Spark's Python workers have what `modules` define.

    Spark pickles a user's function with the copy of cloudpickle inside PySpark, which keeps its own record of such
    modules: what the package of that name is told does not reach it.
    """
    from pyspark import cloudpickle

    for module in modules:
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def kept(value: Any) -> bytes:
    """A value that a later process can take up, with classes of the user's by their names."""
    return pickle.dumps(value)


def taken_up(data: bytes) -> Any:
    """What `kept` was given; its classes are those of the project as it is loaded now."""
    return _Loaded(io.BytesIO(data)).load()


class _Loaded(pickle.Unpickler):
    """Finds the classes of a project's file whichever load of it they were kept by."""

    def find_class(self, module: str, name: str) -> Any:
        if (found := _LOADED.match(module)) is not None:
            stem = module[found.end() :]
            loads = [
                (int(match[1]), each)
                for each in sys.modules
                if (match := _LOADED.match(each)) and each[match.end() :] == stem
            ]
            module = max(loads)[1] if loads else module
        return super().find_class(module, name)
