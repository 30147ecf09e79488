"""Typed looks at a YAML tree: each returns what it wants or records why it cannot."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from headrace.declare import Variables
from headrace.errors import Finding, Where, nearest
from headrace.load.document import Entry


@dataclass(kw_only=True)
class Reading:
    """Reads one document's entries, filling in variables; `findings` holds what was wrong."""

    variables: Variables
    findings: list[Finding] = field(default_factory=list)

    def fault(self, code: str, what: str, fix: str, where: Where) -> None:
        """Record one fault."""
        self.findings.append(Finding(code=code, what=what, fix=fix, where=where))

    def mapping(
        self, entry: Entry | None, what: str, keys: Collection[str] | None = None, *, example: str = "key: value"
    ) -> dict[str, Entry]:
        """The entries of a mapping, only those of `keys` if they are given; an absent one is empty."""
        if entry is None or entry.value is None:
            return {}
        if not isinstance(entry.value, dict):
            fix = (
                f"write it as keys and values; its keys are {', '.join(keys)}" if keys else f"write it as {{{example}}}"
            )
            self.fault("HR104", f"{what} is not a mapping", fix, entry.where)
            return {}
        if keys is None:
            return entry.value
        for key, value in entry.value.items():
            if key not in keys:
                self.fault("HR103", f"{what} has no key '{key}'", nearest(key, keys), value.where)
        return {key: value for key, value in entry.value.items() if key in keys}

    def text(self, entry: Entry | None, what: str, *, may_be_empty: bool = False) -> str | None:
        """A text with its variables filled in; numbers are taken as they are written."""
        if entry is None or entry.value is None:
            return None
        if isinstance(entry.value, (dict, list)):
            self.fault("HR104", f"{what} is not a text", "write one text here, in quotes if need be", entry.where)
            return None
        value = entry.value
        if isinstance(value, str) and not value.strip() and not may_be_empty:
            self.fault("HR104", f"{what.rstrip(',')} is empty", "write a text here, or leave the key out", entry.where)
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        before = len(self.findings)
        text = str(self.variables.expand(str(value), entry.where, self.findings))
        return text if len(self.findings) == before else None

    def texts(self, entry: Entry | None, what: str) -> dict[str, str]:
        """A mapping of texts, such as settings of Spark."""
        entries = self.mapping(entry, what)
        found = {key: self.text(value, f"{what}, {key},", may_be_empty=True) for key, value in entries.items()}
        return {key: text for key, text in found.items() if text is not None}

    def many(self, entry: Entry, what: str) -> list[tuple[str, Where]]:
        """A list of texts, or one text in its place."""
        items = entry.value if isinstance(entry.value, list) else [entry]
        found = [(self.text(item, what), item.where) for item in items]
        return [(text, where) for text, where in found if text is not None]
