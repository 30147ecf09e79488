"""Which modules use parts of PySpark, the JVM or a library that are not public, found in their code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
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
_HIDDEN_OPTIONS = re.compile(r"__\w+__$")
_OPTION_METHODS = {"option", "options"}


def users() -> dict[str, list[str]]:
    """Each module that uses a private part, as `room/module`, with the parts' names."""
    found = {}
    for file in sorted(SOURCES.rglob("*.py")):
        parts = sorted(set(_private(ast.parse(file.read_text()))))
        if parts:
            found[str(file.relative_to(SOURCES).with_suffix(""))] = parts
    return found


def _private(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not (isinstance(node.value, ast.Name) and node.value.id in _OWN):
            if _ATTRIBUTES.match(node.attr) or _METHODS.match(node.attr):
                yield node.attr
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names if _MODULES.match(each.name))
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{each.name}" for each in node.names]
            yield from (name for name in names if _MODULES.match(name) or re.match(r"(pyspark|pyiceberg)\..*\._", name))
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in _OPTION_METHODS:
            written = [each.value for each in node.args[:1] if isinstance(each, ast.Constant)]
            yield from (str(each) for each in written if _HIDDEN_OPTIONS.match(str(each)))
