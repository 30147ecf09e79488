"""The table that a result lies in: created on first use, compared on every later one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headrace.contract import SinkRun
from headrace.errors import Finding, SinkFault
from headrace.sinks.sql.dialect import Connection, Dialect, ExistingTable, identifiers, rows_of
from headrace.sinks.sql.ledger import Owner
from headrace.sinks.sql.limits import Limit, narrowed
from headrace.sinks.sql.types import ResultColumn


@dataclass(frozen=True, kw_only=True)
class ResultTable:
    """A table's name, its key, and the columns of the result."""

    name: str
    key: tuple[str, ...]
    columns: tuple[ResultColumn, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def key_columns(self) -> tuple[ResultColumn, ...]:
        return tuple(column for column in self.columns if column.name in self.key)

    def changes(
        self, there: ExistingTable | None, dialect: Dialect, life: SinkRun, owner: Owner | None, *, adds: bool
    ) -> Iterator[str]:
        """The statements that make the table fit, in order; raises SinkFault with every difference that stays.

        `adds`: columns that are missing are added, as nullable ones; never those of the key.
        """
        if there is None:
            yield self._create(dialect)
            return
        known = {column.name.lower() for column in there.columns}
        added = [column for column in self.columns if column.name.lower() not in known] if adds else []
        added = [column for column in added if column.name not in self.key]
        differences = list(self._differences(there, dialect, added))
        if life.mode == "update" and dialect.replaces_by_any_unique:
            differences += self._other_unique(there)
        if differences:
            raise SinkFault(
                [
                    Finding(
                        code="HR406",
                        what=f"table '{self.name}' does not fit the result of query '{life.query}': {difference}",
                        fix=self._way_out(difference, adds, owner),
                    )
                    for difference in differences
                ]
            )
        for column in added:
            declared = dialect.declare(column, self.key_columns)
            yield f"ALTER TABLE {dialect.quote(self.name)} ADD COLUMN {dialect.quote(column.name)} {declared}"

    def limits(self, there: ExistingTable, dialect: Dialect) -> dict[str, Limit]:
        """What each column of the table takes, as far as it is less than every value of its type."""
        known = {column.name.lower(): column for column in there.columns}
        found = {}
        for column in self.columns:
            own = Limit(required=column.name in self.key, key=column.name in self.key)
            limit = narrowed(column, known[column.name.lower()].limit).within(own)
            if limit != Limit():
                found[column.name] = limit
        return found

    def _way_out(self, difference: str, adds: bool, owner: Owner | None) -> str:
        if not adds and owner is not None and difference.startswith("it has no column"):
            return "set on_schema_change to add, or change the table by ALTER TABLE"
        return "change the table by ALTER TABLE, or write to another table"

    def _create(self, dialect: Dialect) -> str:
        parts = [
            f"{dialect.quote(column.name)} {dialect.declare(column, self.key_columns)}"
            + (" NOT NULL" if column.name in self.key else "")
            for column in self.columns
        ]
        if self.key:
            parts.append(f"PRIMARY KEY ({identifiers(dialect, self.key)})")
        suffix = dialect.create_suffix(self.columns, self.key)
        return f"CREATE TABLE {dialect.quote(self.name)} ({', '.join(parts)}){suffix}"

    def _differences(self, there: ExistingTable, dialect: Dialect, added: Sequence[ResultColumn]) -> Iterator[str]:
        columns = {column.name.lower(): column for column in there.columns}
        for column in self.columns:
            found = columns.get(column.name.lower())
            if column in added:
                continue
            if found is None:
                yield f"it has no column '{column.name}'"
            elif reason := dialect.misfit(found, column, key=column.name in self.key):
                yield f"column '{column.name}' is declared {found.declared or 'without a type'}, {reason}"
        ours = {name.lower() for name in self.names}
        for name, found in columns.items():
            if found.required and name not in ours:
                yield f"its column '{found.name}' takes no NULL, and the result has no such column"
        key = frozenset(name.lower() for name in self.key)
        if key and key not in {frozenset(name.lower() for name in unique) for unique in there.unique}:
            yield f"it has no primary key or unique index on ({', '.join(self.key)})"

    def _other_unique(self, there: ExistingTable) -> Iterator[str]:
        """A row could replace one with another key, in silence."""
        key, ours = ({name.lower() for name in names} for names in (self.key, self.names))
        for unique in there.unique:
            names = {name.lower() for name in unique}
            if names <= ours and not key <= names:
                shown = ", ".join(sorted(unique))
                yield f"its unique index on ({shown}) would let a row replace one with another key; drop the index"

    def require_ours(self, connection: Connection, dialect: Dialect, life: SinkRun, owner: Owner | None) -> None:
        """Rows of somebody else would be mixed with the result, or deleted by complete mode."""
        if owner is not None and (owner.query, owner.generation) == (life.query, life.generation):
            return
        if not list(rows_of(connection, f"SELECT 1 FROM {dialect.quote(self.name)} LIMIT 1")):
            if owner is None or owner.query == life.query:
                return
            what = f"table '{self.name}' belongs to query '{owner.query}'"
        elif owner is None:
            what = f"table '{self.name}' already holds rows that no query wrote"
        elif owner.query == life.query:
            what = f"table '{self.name}' still holds the result of generation {owner.generation} of '{life.query}'"
        else:
            what = f"table '{self.name}' already holds the result of query '{owner.query}'"
        raise SinkFault(Finding(code="HR407", what=what, fix="write to another table, or drop this one"))


def require_columns(names: Sequence[str], key: Sequence[str]) -> Iterator[str]:
    """What is wrong with the result's column names and the key, for any database."""
    folded: dict[str, str] = {}
    for name in names:
        if name.lower() in folded:
            yield f"columns '{folded[name.lower()]}' and '{name}' differ only by case, which a database ignores"
        folded[name.lower()] = name
    for name in key:
        if name not in names:
            yield f"the key names column '{name}', which the result does not have"
