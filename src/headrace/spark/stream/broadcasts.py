"""Python values and code on their way to the workers: sent once as broadcasts, or with each task."""

from __future__ import annotations

import hashlib
import io
import pickle
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import SparkSession

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
# The names of those that are computed again while a query runs, by Spark's number.
_refreshed: dict[int, str] = {}
# What the loader puts before the name of a file, with the number of the load.
_LOADED = re.compile(r"^headrace_project_(\d+)_")


def broadcast(spark: SparkSession, value: Any, *, refreshed: str | None = None) -> Broadcast[Any]:
    """A broadcast variable that holds `value`; its classes may be of the project's own files.

    refreshed: its name, if it is computed again while the query runs: what it holds is not what the query means.
    """
    from pyspark import Broadcast, cloudpickle

    class ByValue(Broadcast[Any]):
        """Sends what the workers cannot import as it is; Spark's own way asks them to import it."""

        def dump(self, value: Any, file: IO[bytes]) -> None:
            cloudpickle.dump(value, file)  # type: ignore[no-untyped-call]
            file.close()

    context = spark.sparkContext
    made: Any = ByValue(context, value, context._pickled_broadcast_vars)
    # What is pickled later, and looked at by its class, is a plain one.
    made.__class__ = Broadcast
    if refreshed is not None:
        _refreshed[int(made._jbroadcast.id())] = refreshed
    return made  # type: ignore[no-any-return]


def refreshed_name(value: Any) -> str | None:
    """The name of a broadcast that is computed again while its query runs; None for others."""
    number = getattr(value, "_jbroadcast", None)
    return None if number is None else _refreshed.get(int(number.id()))


def release(value: Broadcast[Any]) -> None:
    """Let workers and the driver forget a value that no query uses any more."""
    _refreshed.pop(int(value._jbroadcast.id()), None)
    value.destroy()


def digest(value: Any) -> str:
    """The same text for equal values, in whatever order sets and dicts hold them."""
    return hashlib.sha256(_content(value)).hexdigest()


def _content(value: Any) -> bytes:
    kind = type(value)
    if kind in _PLAIN:
        return f"{kind.__name__} {value!r}".encode(errors="surrogatepass")
    if kind is dict:
        return _join(kind, sorted(digest([key, item]).encode() for key, item in value.items()))
    if kind in (set, frozenset):
        return _join(kind, sorted(digest(item).encode() for item in value))
    if kind in (list, tuple):
        return _join(kind, [digest(item).encode() for item in value])
    return pickle_value(value)


def _join(kind: type, parts: list[bytes]) -> bytes:
    return b"\0".join([kind.__name__.encode(), *parts])


def send_by_value(modules: Iterable[ModuleType]) -> None:
    """Let Spark's Python workers have what `modules` define.

    Spark pickles a user's function with the copy of cloudpickle inside PySpark, which keeps its own record of such
    modules: a call of the package of that name does not reach it. It takes only modules that Python knows, and may be
    given those of a former load again.
    """
    from pyspark import cloudpickle

    for module in modules:
        sys.modules.setdefault(module.__name__, module)
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def end_sending_by_value(module: ModuleType) -> None:
    """Forget that a module is sent by value, if it is."""
    from pyspark import cloudpickle

    with suppress(ValueError):  # It was never sent.
        cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]


def pickle_value(value: Any) -> bytes:
    """A value that a later process can take up, with classes of the user's by their names."""
    return pickle.dumps(value)


def unpickle_value(data: bytes) -> Any:
    """What `kept` was given; its classes are those of the project as it is loaded now."""
    return _Loaded(io.BytesIO(data)).load()


class _Loaded(pickle.Unpickler):
    """Finds the classes of a project's file whichever load of it they were kept by."""

    def find_class(self, module: str, name: str) -> Any:
        if (loaded := _LOADED.match(module)) is not None:
            stem = module[loaded.end() :]
            loads = [
                (int(match[1]), name)
                for name in sys.modules
                if (match := _LOADED.match(name)) and name[match.end() :] == stem
            ]
            module = max(loads)[1] if loads else module
        return super().find_class(module, name)
