"""Which modules use parts of PySpark, the JVM or a library that are not public, found in their code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src" / "headrace"
# Whose own attributes a leading underscore may mark.
_OWN = {"self", "cls"}
_ATTRIBUTES = re.compile(
    r"_(j[a-z]\w*|gateway|sc|spark|get_j\w+|active_spark_context|instantiatedSession|activeSession|"
    r"streamingCheckpointManager|ensure_initialized|read_packet)$"
)
_METHODS = re.compile(r"(queryExecution|treeString|streamingQuery)$")
_MODULES = re.compile(
    r"(py4j|pyspark\.java_gateway|pyspark\.cloudpickle|pyspark\.find_spark_home|pyspark\.sql\.classic)\b"
)
# What `spark/jvm/gateway` gives of the JVM's objects.
_GIVEN = re.compile(r"headrace\.spark\.jvm\.gateway\.(gateway_of|jvm_of|java_context|java_session|execution_of)$")
_HIDDEN_OPTIONS = re.compile(r"__\w+__$")
_OPTION_METHODS = {"option", "options"}
_CAMEL_CASE = re.compile(r"[a-z]+\d*[A-Z]")
# Methods of plans and expressions in the JVM whose names are single words.
_PLAIN_WORDS = re.compile(
    "(analyzed|canonicalized|child|children|expressions|identifier|left|metadata|output|references|right|subqueries)$"
)


def users() -> dict[str, list[str]]:
    """Each module that uses a private part, as `room/module`, with the parts' names."""
    uses = {}
    for file in sorted(SOURCES.rglob("*.py")):
        parts = sorted(set(_private(ast.parse(file.read_text()))))
        if parts:
            uses[str(file.relative_to(SOURCES).with_suffix(""))] = parts
    return uses


def _private(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not (isinstance(node.value, ast.Name) and node.value.id in _OWN):
            if _ATTRIBUTES.match(node.attr) or _METHODS.match(node.attr):
                yield node.attr
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if _MODULES.match(alias.name))
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (
                name
                for name in names
                if _MODULES.match(name) or _GIVEN.match(name) or re.match(r"(pyspark|pyiceberg)\..*\._", name)
            )
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in _OPTION_METHODS:
            written = [argument.value for argument in node.args[:1] if isinstance(argument, ast.Constant)]
            yield from (str(text) for text in written if _HIDDEN_OPTIONS.match(str(text)))


def callers_of_plans() -> dict[str, list[str]]:
    """Each module outside Spark's room and the connectors that calls a method of the JVM's objects, with the names."""
    callers = {}
    for file in sorted(SOURCES.rglob("*.py")):
        name = str(file.relative_to(SOURCES).with_suffix(""))
        if not name.startswith(("spark/", "connectors/")) and (calls := sorted(set(jvm_calls(file.read_text())))):
            callers[name] = calls
    return callers


def jvm_calls(code: str) -> Iterator[str]:
    """The methods called in `code` that no public class of PySpark has, by names as the JVM's objects have them."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            if _PLAIN_WORDS.match(name) or (_CAMEL_CASE.match(name) and name not in _public_names()):
                yield name


@cache
def _public_names() -> frozenset[str]:
    import logging

    import pyspark
    from pyspark import sql
    from pyspark.sql import functions, streaming, types
    from pyspark.sql.streaming import readwriter

    modules = (pyspark, sql, functions, streaming, readwriter, types, logging)
    classes = (value for module in modules for value in vars(module).values() if isinstance(value, type))
    return frozenset(name for owner in (*modules, *classes) for name in dir(owner))
