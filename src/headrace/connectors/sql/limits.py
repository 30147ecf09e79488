"""A table that is already there, as its database describes it, and the values that its columns take."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from headrace.connectors.sql.types import ISO, ResultColumn, rows
from headrace.contract import OptionError

if TYPE_CHECKING:
    import pyarrow as pa

# A value in a message is cut off after this many characters.
SHOWN = 300
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
# What stands before NEW.column where a value is assigned to it, and not only read.
_ASSIGNS = re.compile(
    r"(?:^|;|,|>>|\bbegin|\bthen|\belse|\bloop|\bset|\binto|\bcall\b[^;]*)\s*$", re.IGNORECASE | re.DOTALL
)
_NEW = re.compile(r"\bnew\b(?:\s*\.\s*[\"`]?(\w+)[\"`]?)?", re.IGNORECASE)
_RETURN = re.compile(r"\breturn\b\s*([^;]*);", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Limit:
    """What one column of a table takes.

    required: no NULL. key: the column is of the key. characters, size: the longest text, in characters, or the longest
    value, in bytes. low, high: the smallest and the largest number. first, last: the same for a date or timestamp.
    finite: no NaN and no infinity. no_zero: no zero character.
    """

    required: bool = False
    key: bool = False
    characters: int | None = None
    size: int | None = None
    low: int | Decimal | None = None
    high: int | Decimal | None = None
    first: datetime | None = None
    last: datetime | None = None
    finite: bool = False
    no_zero: bool = False


_INTEGERS = {"tinyint": 1 << 7, "smallint": 1 << 15, "int": 1 << 31, "bigint": 1 << 63}


def digits_limit(precision: int, scale: int) -> Limit:
    """Return the limit of a decimal number of so many digits, `scale` of them behind the point."""
    high = (Decimal(10) ** precision - 1).scaleb(-scale)
    return Limit(low=-high, high=high)


def narrow(column: ResultColumn, limit: Limit) -> Limit:
    """`limit` without the bounds that every value of the column's type keeps anyway."""
    if limit.low is None or limit.high is None:
        return limit
    if column.kind == "integer":
        size = _INTEGERS[column.type.simpleString()]
        low, high = int(max(limit.low, -size)), int(min(limit.high, size - 1))
        every = (low, high) == (-size, size - 1)
        return replace(limit, low=None if every else low, high=None if every else high)
    whole = Decimal(10) ** (column.precision - column.scale)
    if column.kind != "decimal" or limit.high + 1 >= whole:
        return replace(limit, low=None, high=None)
    step = Decimal(1).scaleb(-column.scale)
    return replace(limit, low=Decimal(limit.low).quantize(step), high=Decimal(limit.high).quantize(step))


@dataclass(frozen=True)
class BadRow:
    """A row that the table would not take: why, its values by column, and what to do, where the reason says it."""

    reason: str
    values: Mapping[str, Any]
    fix: str = ""

    def __str__(self) -> str:
        text = ", ".join(f"{name}={value!r}" for name, value in self.values.items())
        return f"({text})" if len(text) <= SHOWN else f"({text[:SHOWN]}...)"


def split_invalid(
    table: pa.Table, columns: Sequence[ResultColumn], limits: Mapping[str, Limit]
) -> tuple[pa.Table, list[BadRow]]:
    """Return the rows that the table takes, and those that it does not, each with the first reason found."""
    import pyarrow as pa
    import pyarrow.compute as pc

    reasons: dict[int, tuple[str, str]] = {}
    for column in columns:
        limit = limits.get(column.name)
        if limit is None:
            continue
        array = table.column(column.name)
        for wrong, reason, fix in _faults(array, column, limit):
            for at in pc.indices_nonzero(pc.fill_null(wrong, False)).to_pylist():
                reasons.setdefault(at, (reason, fix))
    if not reasons:
        return table, []
    bad = sorted(reasons)
    invalid = [
        replace(row, fix=reasons[at][1])
        for at, row in zip(
            bad, bad_rows(table.take(pa.array(bad)), columns, [reasons[at][0] for at in bad]), strict=True
        )
    ]
    keep = pa.array([at not in reasons for at in range(table.num_rows)])
    return table.filter(keep), invalid


def bad_rows(table: pa.Table, columns: Sequence[ResultColumn], reasons: Sequence[str]) -> list[BadRow]:
    """Return the rows of `table` with the reasons why they are bad."""
    names = [column.name for column in columns]
    values = rows(table, columns, ISO)
    return [BadRow(reason, dict(zip(names, row, strict=True))) for reason, row in zip(reasons, values, strict=True)]


def mark_shared_keys(table: pa.Table, key: Sequence[str]) -> Any:
    """Return which rows of `table`, sorted by `key`, have the key of a neighbour: an Arrow array of booleans."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if table.num_rows < 2:
        return pa.array([False] * table.num_rows, pa.bool_())
    same: Any = None
    for name in key:
        column = table.column(name).combine_chunks()
        equal = pc.fill_null(pc.equal(column[1:], column[:-1]), False)
        same = equal if same is None else pc.and_(same, equal)
    no = pa.array([False])
    return pc.or_(pa.concat_arrays([no, same]), pa.concat_arrays([same, no]))


def _faults(array: Any, column: ResultColumn, limit: Limit) -> Iterator[tuple[Any, str, str]]:
    """Yield, for each limit, the values beyond it, the reason, and what the query can do."""
    import pyarrow as pa
    import pyarrow.compute as pc

    name = column.name
    if limit.required and array.null_count:
        reason = f"column '{name}' of the key is NULL" if limit.key else f"column '{name}' takes no NULL"
        yield pc.is_null(array), reason, f"give it a value: coalesce({name}, ...)"
    if limit.characters is not None and column.kind in ("text", "json"):
        reason = f"column '{name}' takes at most {limit.characters} characters"
        fix = f"shorten it: substring({name}, 1, {limit.characters}), or let the table's column take longer texts"
        yield pc.greater(pc.utf8_length(array), limit.characters), reason, fix
    if limit.size is not None:
        reason = f"column '{name}' takes at most {limit.size} bytes"
        yield pc.greater(pc.binary_length(array), limit.size), reason, "let the table's column take longer values"
    if limit.no_zero and column.kind in ("text", "json"):
        # Spark's to_json escapes it; a backslash of the text itself is two.
        zero = r"\x00" if column.kind == "text" else r"(?:^|[^\\])(?:\\\\)*\\u0000"
        fix = f"take the character out: replace({name}, char(0), '')"
        yield pc.match_substring_regex(array, zero), f"column '{name}' takes no zero character", fix
    if limit.finite and column.kind in ("float", "double"):
        reason = f"column '{name}' takes neither NaN nor infinity"
        yield pc.invert(pc.is_finite(array)), reason, "write NULL for such a value"
    between = f"column '{name}' takes values from {limit.low} to {limit.high}"
    if limit.high is None:
        between = f"column '{name}' takes no value below {limit.low}"
    for bound, beyond in ((limit.low, pc.less), (limit.high, pc.greater)):
        if bound is not None:
            yield beyond(array, pa.scalar(bound, array.type)), between, "give the table's column a larger type"
    for moment, beyond in ((limit.first, pc.less), (limit.last, pc.greater)):
        if moment is not None:
            days = pa.types.is_date(array.type)
            scalar = pa.scalar(moment.date() if days else moment, pa.date32() if days else pa.timestamp("us"))
            plain = array if days else array.cast(pa.timestamp("us"))
            upto = f" to {limit.last}" if limit.last else " on"
            reason = f"column '{name}' takes times from {limit.first}{upto}"
            yield beyond(plain, scalar), reason, "look where such a time comes from, or write NULL for it"


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


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """Code that the database runs with each write.

    changes_rows: it gets each row before it is written, may give another one back or, if it `returns`, none. readable:
    its text shows all that it does. deletes_only: it runs for rows that are deleted.
    """

    name: str
    body: str
    changes_rows: bool
    returns: bool = False
    readable: bool = True
    deletes_only: bool = False

    def harm(self, table: str, columns: Collection[str]) -> str | None:
        """Return what it may do to the rows of a result with these columns; None: it leaves them as they are."""
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
        for name in _NEW.finditer(body):
            head = body[: name.start()]
            if name[1] is None:
                if not re.search(r"\breturn\s*$", head, re.IGNORECASE):
                    return "may put another row in the place of one"
            elif name[1].lower() in columns and _ASSIGNS.search(head):
                return f"changes column '{name[1]}'"
        return None


@dataclass(frozen=True, kw_only=True)
class ExistingTable:
    """A table that is already there.

    unique: each set of columns that no two rows may share. blockers: why it cannot hold any result. elsewhere: the
    schema that it lies in, if Headrace's own tables lie in another one.
    """

    columns: tuple[ExistingColumn, ...]
    unique: tuple[ExistingIndex, ...]
    blockers: tuple[OptionError, ...] = ()
    triggers: tuple[Trigger, ...] = ()
    elsewhere: str = ""

    def refusals(self, name: str, columns: Collection[str]) -> Iterator[OptionError]:
        """Yield why the table, of this name, cannot hold rows with these columns as they are."""
        yield from self.blockers
        for trigger in self.triggers:
            if harm := trigger.harm(name, columns):
                yield OptionError(
                    what=f"its trigger '{trigger.name}' {harm}",
                    fix=f"drop the trigger {trigger.name}, or let it run after the row is written and leave this table",
                )
