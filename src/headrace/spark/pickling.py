"""What of the driver's Python code Spark sends to its workers as it is, because they cannot import it."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType


def send_by_value(modules: Iterable[ModuleType]) -> None:
    """Let Spark's Python workers have what `modules` define.

    Spark pickles a user's function with the copy of cloudpickle inside PySpark, which keeps its own record of such
    modules: what the package of that name is told does not reach it.
    """
    from pyspark import cloudpickle

    for module in modules:
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
