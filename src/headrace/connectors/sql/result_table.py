"""The table that a result lies in: created on first use, compared on every later one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.connectors.exactly_once import require_own_generation
from headrace.connectors.result_findings import find_same_names
from headrace.connectors.sql.dialect import Dialect, WriteTarget
from headrace.connectors.sql.ledger import Ledger, Owner
from headrace.connectors.sql.limits import ExistingTable, Limit, narrow
from headrace.connectors.sql.system_tables import OwnLines
from headrace.connectors.sql.types import ResultColumn, columns
from headrace.contract import SinkContext
from headrace.errors import Finding, SinkError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True, kw_only=True)
class ResultTable:
    """A table's name, its key, and the columns of the result; `spelled`: the name as the sink has it."""

    name: str
    key: tuple[str, ...]
    columns: tuple[ResultColumn, ...]
    spelled: str = ""

    def with_real_name(self, lines: OwnLines) -> ResultTable:
        """Return the table under the database's own spelling: one table has one owner, however it is spelled."""
        return replace(self, name=lines.dialect.real_name(lines.connection, self.name), spelled=self.name)

    def owner(self, ledger: Ledger) -> Owner | None:
        """Whose result the table holds, also where it was entered under the name as the sink spells it."""
        return ledger.owner(self.name) or ledger.owner(self.spelled or self.name)

    def has_rows(self, lines: OwnLines) -> bool:
        """Whether the table, which is there, holds any row."""
        return bool(lines.select(f"SELECT 1 FROM {lines.quote(self.name)} LIMIT 1"))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def key_columns(self) -> tuple[ResultColumn, ...]:
        return tuple(column for column in self.columns if column.name in self.key)

    def target(self, *, replaces: bool) -> WriteTarget:
        """Return the table as rows are written to it; `replaces`: a row replaces the one with its key."""
        return WriteTarget(table=self.name, columns=self.columns, key=self.key, replaces=replaces)

    def changes(
        self, lines: OwnLines, there: ExistingTable | None, owner: Owner | None, *, adds: bool
    ) -> Iterator[str]:
        """Yield the statement that makes a missing table; raises SinkError with every difference of an existing one.

        `adds`: missing columns are no difference, as `additions` adds them.
        """
        dialect, context = lines.dialect, lines.context
        if there is None:
            yield self._create(dialect)
            return
        added = self._missing(there) if adds else []
        findings = [
            self._refusal(context, blocker.what, blocker.fix) for blocker in there.refusals(self.name, self.names)
        ]
        findings += [
            self._refusal(context, difference, fix or self._way_out(difference, adds, owner))
            for difference, fix in self._differences(there, dialect, added, context)
        ]
        if findings:
            raise SinkError(findings)

    def additions(self, there: ExistingTable, dialect: Dialect) -> list[str]:
        """Return the statements that add the columns that are missing, as nullable ones; never those of the key."""
        return [
            f"ALTER TABLE {dialect.quote(self.name)} ADD COLUMN {dialect.quote(column.name)} "
            f"{dialect.declare(column, self.key_columns)}"
            for column in self._missing(there)
        ]

    def _missing(self, there: ExistingTable) -> list[ResultColumn]:
        present = {column.name.lower() for column in there.columns}
        return [column for column in self.columns if column.name.lower() not in present and column.name not in self.key]

    def limits(self, there: ExistingTable, dialect: Dialect) -> dict[str, Limit]:
        """Return the limit of each column of the table that takes less than every value of its type.

        A column that is still to be added has the limit of its declaration.
        """
        column_limits = {dialect.column_key(column.name): column.limit for column in there.columns}
        limits = {}
        for column in self.columns:
            limit = narrow(column, column_limits.get(dialect.column_key(column.name)) or dialect.limit_of(column))
            key = column.name in self.key
            limit = replace(limit, required=limit.required or key, key=key)
            if limit != Limit():
                limits[column.name] = limit
        return limits

    def _refusal(self, context: SinkContext, fault: str, fix: str) -> Finding:
        return Finding(
            code="HR406",
            what=f"table '{self.name}' does not fit the result of query '{context.query}': {fault}",
            fix=fix,
        )

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
            parts.append(f"PRIMARY KEY ({dialect.identifiers(self.key)})")
        suffix = dialect.create_suffix(self.columns, self.key)
        return f"CREATE TABLE {dialect.quote(self.name)} ({', '.join(parts)}){suffix}"

    def _differences(
        self, there: ExistingTable, dialect: Dialect, added: Sequence[ResultColumn], context: SinkContext
    ) -> Iterator[tuple[str, str]]:
        """Yield what about the table's columns and indexes does not fit, each with what to do if that is known."""
        columns = {dialect.column_key(column.name): column for column in there.columns}
        spellings = {column.name.lower(): column.name for column in there.columns}
        for column in self.columns:
            there_column = columns.get(dialect.column_key(column.name))
            if column in added:
                continue
            key = column.name in self.key
            if there_column is None and (other := spellings.get(column.name.lower())):
                fix = f"select the column AS {other}, or rename the table's column"
                yield f"it has no column '{column.name}', but one that is spelled '{other}'", fix
            elif there_column is None:
                yield f"it has no column '{column.name}'", ""
            elif (
                reason := there_column.blocker
                or (key and there_column.key_blocker)
                or dialect.incompatible(there_column, column)
            ):
                yield f"column '{column.name}' is declared {there_column.declared or 'without a type'}, {reason}", ""
        ours = set(map(dialect.column_key, self.names))
        for name, there_column in columns.items():
            if there_column.required and name not in ours:
                yield f"its column '{there_column.name}' takes no NULL, and the result has no such column", ""
        others = context.mode == "update" and dialect.replaces_by_any_unique
        yield from self._index_differences(there, dialect, others=others)

    def _index_differences(self, there: ExistingTable, dialect: Dialect, *, others: bool) -> Iterator[tuple[str, str]]:
        """`others`: a row replaces one that shares any unique index with it, silently, and not the key's alone."""
        key, ours = (set(map(dialect.column_key, names)) for names in (self.key, self.names))
        columns = {dialect.column_key(column.name): column for column in there.columns}
        indexes = [(index, set(map(dialect.column_key, index.columns))) for index in there.unique]
        drop = "drop the index, or write to another table"
        if key and not any(names == key and not index.loose for index, names in indexes):
            shown = ", ".join(self.key)
            fix = f"add a plain unique index on ({shown}), or write to another table"
            yield f"it has no primary key or unique index on ({shown})", fix
        for index, names in indexes:
            shown = ", ".join(sorted(index.columns))
            if index.loose and (others or names == key):
                yield f"its unique index {index.name} on ({shown}) {index.loose}", drop
            elif (
                others and not key <= names and all(columns[name].constant for name in names - ours if name in columns)
            ):
                yield (
                    f"its unique index on ({shown}) would let a row replace one with another key; drop the index",
                    drop,
                )

    def require_same_schema(self, owner: Owner | None, elsewhere: str) -> None:
        """Raise for a table in another schema than its ledger's, `elsewhere`."""
        if owner is None and elsewhere:
            fault = (
                f"table '{self.name}' lies in schema '{elsewhere}', which is not the first of this user's search path"
            )
            fix = f"give the sink the option schema: {elsewhere}, so that the ledger lies next to the table"
            raise SinkError(code="HR407", what=fault, fix=fix)

    def require_same_key(self, ledger: Ledger, owner: Owner | None) -> None:
        """Raise SinkError for a table without a batch that Headrace made for another key, which the table keeps."""
        made_for = owner.made_for if owner is not None and owner.is_of(ledger.context) else None
        if made_for is None or set(made_for) == set(self.key) or ledger.last() is not None:
            return
        if self.has_rows(ledger):
            return
        former, now = (f"the key ({', '.join(key)})" if key else "no key" for key in (made_for, self.key))
        again = f"; or give key: {', '.join(made_for)} again" if made_for else ""
        drop = ledger.dialect.quote(self.name).replace("%%", "%")
        raise SinkError(
            self._refusal(
                ledger.context,
                f"Headrace made it with {former}, and the sink has {now}",
                f"it is empty and no batch is in: DROP TABLE {drop}, and the next start makes it as declared{again}",
            )
        )

    def require_ours(self, lines: OwnLines, owner: Owner | None, elsewhere: str) -> None:
        """Raise for a table whose rows would be mixed with the result, or deleted by complete mode."""
        context = lines.context
        self.require_same_schema(owner, elsewhere)
        if owner is not None and owner.is_of(context):
            return
        if owner is not None and owner.application not in (context.application, ""):
            project = f"project '{owner.project}'" if owner.project != context.project else "another storage directory"
            fault = (
                f"table '{self.name}' belongs to query '{owner.query}' of {project} (application {owner.application})"
            )
            fix = "write to another table; or drop this one, if nothing runs that query any more"
            raise SinkError(code="HR407", what=fault, fix=fix)
        if owner is not None and owner.query_id == context.query_id and owner.generation > context.generation:
            # An empty one too: what it held was set aside, and this generation would go on without it.
            require_own_generation(f"table '{self.name}'", context, owner.generation)
        if not self.has_rows(lines):
            if owner is None or owner.query_id == context.query_id:
                return
            fault = f"table '{self.name}' belongs to query '{owner.query}'"
        elif owner is None:
            fault = f"table '{self.name}' already holds rows that no query wrote"
        elif owner.query_id == context.query_id:
            fault = f"table '{self.name}' still holds the result of generation {owner.generation} of '{context.query}'"
        else:
            fault = f"table '{self.name}' already holds the result of query '{owner.query}'"
        raise SinkError(code="HR407", what=fault, fix="write to another table, or drop this one")


def result_table(name: str, key: Sequence[str], schema: StructType, context: SinkContext) -> ResultTable:
    """Return the table for a result of `schema`; raises SinkError with every column that does not fit."""
    fitting, refused = columns(schema)
    lacking = [
        f"the key names column '{column}', which the result does not have"
        for column in key
        if column not in schema.names
    ]
    wrong = [*refused, *find_same_names(schema.names), *lacking]
    if wrong:
        columns_ = ", ".join(schema.names)
        fix = f"change the query's last select, or the key; the result's columns are {columns_}"
        raise SinkError(
            [Finding(code="HR404", what=f"the result of query '{context.query}': {fault}", fix=fix) for fault in wrong]
        )
    return ResultTable(name=name, key=tuple(key), columns=fitting)
