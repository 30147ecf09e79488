"""A YAML text as a tree of values that know their lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import yaml
from yaml.constructor import SafeConstructor

from headrace.errors import Finding, Where

Tree: TypeAlias = "dict[str, Entry] | list[Entry] | str | int | float | bool | None"

_SCALARS = {"int": "construct_yaml_int", "float": "construct_yaml_float", "bool": "construct_yaml_bool"}
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One value and where it stands: `where` is the line of its key, or its own where it has none."""

    value: Tree
    where: Where

    def plain(self) -> Any:
        """The value without its lines."""
        if isinstance(self.value, dict):
            return {key: entry.plain() for key, entry in self.value.items()}
        if isinstance(self.value, list):
            return [entry.plain() for entry in self.value]
        return self.value


def read(text: str, file: str) -> tuple[Entry, list[Finding]]:
    """The tree of `text`, an empty mapping when it cannot be parsed, and its faults."""
    empty = Entry(value={}, where=Where(file=file, line=1))
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as fault:
        mark = fault.problem_mark or fault.context_mark
        what = f"this is no YAML: {fault.problem or fault.context}"
        where = Where(file=file, line=mark.line + 1 if mark else None)
        return empty, [Finding(code="HR101", what=what, fix="correct the indentation or quotes here", where=where)]
    except yaml.YAMLError as fault:
        what = f"this is no YAML: {str(fault).splitlines()[0]}"
        return empty, [Finding(code="HR101", what=what, fix="save the file as UTF-8 text", where=empty.where)]
    if node is None:
        return empty, []
    walk = _Walk(file)
    return walk.entry(node, None, frozenset()), walk.findings


class _Walk:
    def __init__(self, file: str) -> None:
        self.file = file
        self.findings: list[Finding] = []
        self.scalars = SafeConstructor()

    def where(self, node: yaml.Node) -> Where:
        return Where(file=self.file, line=node.start_mark.line + 1)

    def entry(self, node: yaml.Node, key: yaml.Node | None, above: frozenset[int]) -> Entry:
        where = self.where(key or node)
        if id(node) in above:
            self.findings.append(Finding(code="HR101", what="an alias contains itself", where=where))
            return Entry(value=None, where=where)
        above = above | {id(node)}
        if isinstance(node, yaml.MappingNode):
            return Entry(value=self.mapping(node, above), where=where)
        if isinstance(node, yaml.SequenceNode):
            return Entry(value=[self.entry(item, None, above) for item in node.value], where=where)
        return Entry(value=self.scalar(node), where=where)

    def mapping(self, node: yaml.MappingNode, above: frozenset[int]) -> dict[str, Entry]:
        merged: dict[str, Entry] = {}
        own: dict[str, Entry] = {}
        for key, value in node.value:
            if key.tag.endswith(":merge"):
                for entry in self.merges(value, above):
                    merged = {**entry, **merged}
            elif not isinstance(key, yaml.ScalarNode):
                self.findings.append(Finding(code="HR101", what="a key is not a text", where=self.where(key)))
            elif key.value in own:
                what = f"the key '{key.value}' stands here and at line {own[key.value].where.line}"
                fix = "keep one of the two"
                self.findings.append(Finding(code="HR102", what=what, fix=fix, where=self.where(key)))
            else:
                own[key.value] = self.entry(value, key, above)
        return {**merged, **own}

    def merges(self, node: yaml.Node, above: frozenset[int]) -> Iterator[dict[str, Entry]]:
        for part in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            value = self.entry(part, None, above).value
            if isinstance(value, dict):
                yield value

    def scalar(self, node: yaml.Node) -> Tree:
        tag = node.tag.rpartition(":")[2]
        if tag == "null":
            return None
        if tag in _SCALARS:
            try:
                value: Tree = getattr(self.scalars, _SCALARS[tag])(node)
            except (ValueError, KeyError):
                return str(node.value)
            return value
        return str(node.value)
