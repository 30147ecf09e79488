"""A table that is already there, as its database tells of it, and what about it would change or lose rows."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Literal

from headrace.connectors.sql.limits import Limit

_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
# What stands before NEW.column where a value is assigned to it, and not only read.
_ASSIGNS = re.compile(
    r"(?:^|;|,|>>|\bbegin|\bthen|\belse|\bloop|\bset|\binto|\bcall\b[^;]*)\s*$", re.IGNORECASE | re.DOTALL
)
_NEW = re.compile(r"\bnew\b(?:\s*\.\s*[\"`]?(\w+)[\"`]?)?", re.IGNORECASE)
_RETURN = re.compile(r"\breturn\b\s*([^;]*);", re.IGNORECASE)


@dataclass(frozen=True)
class ExistingColumn:
    """A column of a table that is already there.

    required: it takes no NULL and has no default. limit: what it takes beyond its type. blocker: why it takes no value
    of a result as it is, whatever its type. key_blocker: why it cannot be of the key. constant: a row that does not
    name it gets a value that another row has too.
    """

    name: str
    declared: str
    required: bool
    limit: Limit = field(default_factory=Limit)
    blocker: str = ""
    key_blocker: str = ""
    constant: bool = False


@dataclass(frozen=True)
class ExistingIndex:
    """A set of columns that no two rows may share; `loose`: why it takes different rows for the same, or nothing."""

    name: str
    columns: frozenset[str]
    loose: str = ""


@dataclass(frozen=True)
class Blocker:
    """Why a table cannot hold a result, and what to do."""

    code: Literal["HR465", "HR466"]
    what: str
    fix: str


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """Code that the database runs with each write.

    changes_rows: it gets each row before it is written, may give another one back or, if it `returns`, none. readable:
    its text tells all that it does. deletes_only: it runs for rows that are deleted.
    """

    name: str
    body: str
    changes_rows: bool
    returns: bool = False
    readable: bool = True
    deletes_only: bool = False

    def harm(self, table: str, columns: Collection[str]) -> str | None:
        """What it may do to the rows of a result with these columns; None: it leaves them as they are."""
        body = _COMMENT.sub(" ", self.body)
        if re.search(r"\braise\s*\(\s*ignore\b|02TRG", body, re.IGNORECASE):
            return "leaves rows out"
        name = rf"(?:[\w\"`\[\]]+\.)?[\"`\[]?{re.escape(table)}[\"`\]]?(?!\w)"
        writes = r"\b(?:update(?:\s+or\s+\w+)?(?:\s+only)?|delete\s+from(?:\s+only)?|into|truncate(?:\s+table)?)\s+"
        if re.search(writes + name, body, re.IGNORECASE):
            return "writes the table itself"
        if not self.changes_rows:
            return None
        if not self.readable:
            return "gets each row before it is written and may change it"
        return self._harm_to_row(body, {column.lower() for column in columns})

    def _harm_to_row(self, body: str, columns: set[str]) -> str | None:
        if self.returns:
            kept = "old" if self.deletes_only else "new"
            if {value.strip().lower() for value in _RETURN.findall(body)} != {kept}:
                return "may leave rows out"
        for found in _NEW.finditer(body):
            head = body[: found.start()]
            if found[1] is None:
                if not re.search(r"\breturn\s*$", head, re.IGNORECASE):
                    return "may put another row in the place of one"
            elif found[1].lower() in columns and _ASSIGNS.search(head):
                return f"changes column '{found[1]}'"
        return None


@dataclass(frozen=True, kw_only=True)
class ExistingTable:
    """A table that is already there.

    unique: each set of columns that no two rows may share. blockers: why it cannot hold any result. elsewhere: the
    schema that it lies in, if Headrace's own tables lie in another one.
    """

    columns: tuple[ExistingColumn, ...]
    unique: tuple[ExistingIndex, ...]
    blockers: tuple[Blocker, ...] = ()
    triggers: tuple[Trigger, ...] = ()
    elsewhere: str = ""

    def refusals(self, name: str, columns: Collection[str]) -> Iterator[Blocker]:
        """Why the table, of this name, cannot hold rows with these columns as they are."""
        yield from self.blockers
        for trigger in self.triggers:
            if harm := trigger.harm(name, columns):
                yield Blocker(
                    "HR466",
                    f"its trigger '{trigger.name}' {harm}",
                    f"drop the trigger {trigger.name}, or let it run after the row is written and leave this table",
                )
