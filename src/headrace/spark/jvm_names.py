"""Packages and classes of the JVM are looked up once in a process.

py4j asks the JVM at each use of a name such as `jvm.org.apache.spark`, at each of its parts; and to learn that `org` is
no class the JVM searches some 250 jars. PySpark does so at each call of a function: a twelfth of what a driver of small
batches spends in its JVM.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Names of a JVMView that are packages for good; others may be imported as classes later.
_PACKAGES = frozenset({"com", "io", "java", "javax", "org", "scala"})


def remember() -> None:
    """Let py4j keep what it has found, for every gateway of this process; a second call changes nothing."""
    from py4j import java_gateway

    for kind in (java_gateway.JVMView, java_gateway.JavaPackage):
        if kind.__getattr__.__module__ != __name__:
            kind.__getattr__ = _remembering(kind.__getattr__)


def _remembering(look: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    from py4j.java_gateway import JavaClass, JavaPackage, JVMView

    def found(self: Any, name: str) -> Any:
        value = look(self, name)
        if isinstance(value, JavaPackage):
            lasts = name in _PACKAGES if isinstance(self, JVMView) else name.islower()
        else:
            lasts = isinstance(value, JavaClass)
        if lasts:
            # Python asks `__getattr__` for what is not here alone.
            self.__dict__[name] = value
        return value

    return found
