"""A line that Spark or a Python worker says, with what it tells of itself, as JSON in the driver's standard error."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

# Begins such a line, as log4j2.properties and Python workers write it; nothing that is read by people contains it.
MARK = "\x1e"
Destination: TypeAlias = Literal["log", "stderr", "both"]


@dataclass(frozen=True, kw_only=True)
class Said:
    """One line; what it does not tell is None.

    to: whether it is for the log, for standard error, or for both. thread: that of the JVM, which tells the query.
    """

    message: str
    to: Destination = "both"
    level: str = "info"
    logger: str | None = None
    thread: str | None = None
    query: str | None = None
    batch: int | None = None

    def line(self) -> str:
        """As a marked line."""
        facts = {name: value for name, value in vars(self).items() if value is not None}
        return f"{MARK}{json.dumps(facts)}\n"

    @classmethod
    def read(cls, line: str) -> Said:
        """What a line of standard error says; one without a mark, or one that another has cut, is taken as it is."""
        before, mark, marked = line.partition(MARK)
        if mark and not before.strip():
            try:
                return cls._made(json.loads(marked))
            except (ValueError, TypeError, KeyError):
                pass
        return cls(message=line.rstrip("\n"))

    @classmethod
    def _made(cls, facts: dict[str, Any]) -> Said:
        batch = facts.get("batch")
        texts = {name: str(facts[name]) or None for name in ("logger", "thread", "query") if facts.get(name)}
        level = str(facts.get("level") or "info").lower()
        return cls(
            message=str(facts["message"]).rstrip("\n"),
            to=facts.get("to", "both"),
            level={"warn": "warning", "fatal": "error"}.get(level, level),
            batch=None if batch is None else int(batch),
            **texts,
        )
