"""What a query is, as readable data: the layout of its state, its meaning, and its ends."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

# One more with each change of how a plan is written down: forms of two formats differ without a change of the query.
FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class OperatorForm:
    """A stateful operator: its kind, the expressions of its keys and values in Spark's order, and what feeds it.

    further: what else decides what the state means, by its name. feeds: where the rows come from, for each side.
    """

    kind: str
    keys: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    further: Mapping[str, str] = field(default_factory=dict)
    feeds: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class QueryForm:
    """One form of a query.

    operators: the layout of its state. feed: where the rows of the result come from; columns: the expression of each
    column of the result. watermarks: milliseconds, by column.
    definitions: long expressions, which stand elsewhere by a digest. python: what each Python function means, by the
    digest that stands for it. tables: the rows of bounded inputs, by the table's name or the kind of the input.
    changes: how its rows change the table of its sink; empty where they are rows of the result.
    sources, sink: what identifies each. settings: those of Spark that change what an expression means.
    declared: a digest of the code as it is written, without layout and comments. pieces: the same of the query (its
    name is empty), and of each view and table that feeds it.
    python_version: which ran them. packages: the versions of the installed packages that they use.
    unreadable: why the plan could not be read, if so.
    """

    operators: tuple[OperatorForm, ...] = ()
    feed: str = ""
    columns: tuple[tuple[str, str], ...] = ()
    watermarks: Mapping[str, int] = field(default_factory=dict)
    definitions: Mapping[str, str] = field(default_factory=dict)
    python: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    sink: Mapping[str, Any] = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)
    mode: str = "append"
    settings: Mapping[str, str] = field(default_factory=dict)
    declared: str = ""
    pieces: Mapping[str, str] = field(default_factory=dict)
    spark: str = ""
    python_version: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    unreadable: str = ""
    format: int = FORMAT

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that change with the layout, the meaning and the mode, and not with versions."""
        parts = [
            [asdict(operator) for operator in self.operators],
            self.feed,
            sorted(self.columns),
            self.watermarks,
            self.mode,
            self.settings,
            *([self.changes] if self.changes else []),
        ]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]

    def as_dict(self) -> dict[str, Any]:
        """The form as plain data, for the manifest."""
        return asdict(self)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> QueryForm:
        """The form that `as_dict` gave; raises TypeError, KeyError or ValueError for anything else."""
        if not data:
            raise ValueError("no form of it was kept")
        if int(data["format"]) > FORMAT:
            raise ValueError(f"its format is {data['format']}, and this version of Headrace knows {FORMAT}")
        parts = dict(data)
        parts["operators"] = tuple(
            OperatorForm(
                kind=str(operator["kind"]),
                keys=tuple(operator["keys"]),
                values=tuple(operator["values"]),
                further=dict(operator["further"]),
                feeds=tuple(operator["feeds"]),
            )
            for operator in data["operators"]
        )
        parts["columns"] = tuple((str(name), str(text)) for name, text in data["columns"])
        return cls(**parts)
