"""A PostgreSQL table that is already there: what it keeps of a result, what would lose rows, and who reads it.

When another table takes the name, views would keep reading the former one, and users would lose their grants.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from headrace.connectors.sql import limits
from headrace.connectors.sql.dialect import Connection, WriteTarget, rows_of, run
from headrace.connectors.sql.types import Kind, ResultColumn
from headrace.contract import OptionError
from headrace.errors import NothingChanged

# The types that keep every value of a kind, or every value within the column's limit.
_FITS: dict[Kind, tuple[str, ...]] = {
    "boolean": ("boolean",),
    "integer": ("smallint", "integer", "bigint", "numeric"),
    "float": ("real", "double precision"),
    "double": ("double precision",),
    "decimal": ("numeric",),
    "text": ("text", "character varying"),
    "binary": ("bytea",),
    "date": ("date",),
    "timestamp": ("timestamp with time zone",),
    "timestamp_ntz": ("timestamp without time zone",),
    "json": ("jsonb", "json", "text"),
}
_INTEGERS = {"smallint": 1 << 15, "integer": 1 << 31, "bigint": 1 << 63}
_TABLE = """
SELECT c.oid, c.relkind::text, n.nspname::text, n.nspname = current_schema(), row_security_active(c.oid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)
"""
# The table with its partitions, or with the tables that inherit from it.
_TREE = """
WITH RECURSIVE tree AS (
    SELECT %s::oid AS oid UNION SELECT i.inhrelid FROM pg_inherits i JOIN tree ON tree.oid = i.inhparent
)
"""
_MEMBERS = (
    _TREE
    + "SELECT c.oid, c.relname::text, c.relkind::text, c.relpersistence::text FROM tree JOIN pg_class c USING (oid)"
)
_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, NULL), a.attnotnull, a.atthasdef, a.attidentity::text, a.attgenerated::text,
a.atttypmod, coalesce(c.collisdeterministic, true), c.collname::text
FROM pg_attribute a LEFT JOIN pg_collation c ON c.oid = a.attcollation
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
# Columns of INCLUDE are no part of what is unique.
_UNIQUE = """
SELECT max(n.relname::text), array_agg(a.attname::text), bool_and(coalesce(c.collisdeterministic, true))
FROM pg_index i JOIN pg_class n ON n.oid = i.indexrelid
CROSS JOIN LATERAL unnest((i.indkey::int2[])[0:i.indnkeyatts - 1], (i.indcollation::oid[])[0:i.indnkeyatts - 1])
AS k (attnum, collation_oid)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
LEFT JOIN pg_collation c ON c.oid = k.collation_oid
WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND NOT i.indisexclusion
AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indimmediate
GROUP BY i.indexrelid
"""
# Of the type's bits, 1 is for each row, 2 before it is written, and 4, 8, 16 are insert, delete and update.
_TRIGGERS = (
    _TREE
    + """
SELECT t.tgname::text, t.tgtype::int, p.prosrc, l.lanname = 'plpgsql'
FROM tree JOIN pg_trigger t ON t.tgrelid = tree.oid
JOIN pg_proc p ON p.oid = t.tgfoid JOIN pg_language l ON l.oid = p.prolang
WHERE NOT t.tgisinternal AND t.tgenabled IN ('O', 'A') AND t.tgtype & 28 <> 0
"""
)
_RULES = (
    _TREE
    + """
SELECT r.rulename::text FROM tree JOIN pg_rewrite r ON r.ev_class = tree.oid
WHERE r.ev_type <> '1' AND r.ev_enabled IN ('O', 'A')
"""
)
# A session that a pooler gives may be read-only by another client of it, which each transaction sets right.
_ADMINISTERED = """
SELECT pg_encoding_to_char(d.encoding), d.datname, r.rolname, r.rolconnlimit, d.datconnlimit,
NOT pg_is_in_recovery() AND EXISTS (SELECT 1 FROM pg_settings
WHERE name = 'default_transaction_read_only' AND setting = 'on' AND source <> 'session'),
r.rolsuper, current_setting('server_version_num')::int
FROM pg_database d JOIN pg_roles r ON r.rolname = current_user WHERE d.datname = current_database()
"""
_FEWEST_CONNECTIONS = 4
# Of each publication that has the table's updates or deletes: whether the table has what identifies a row of it; NULL
# where there is no table yet.
_PUBLISHED = """
SELECT p.pubname::text, (SELECT c.relreplident IN ('f', 'i') OR (c.relreplident = 'd' AND EXISTS
(SELECT 1 FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)) FROM pg_class c WHERE c.oid = to_regclass(%s))
FROM pg_publication p WHERE (p.pubupdate OR p.pubdelete) AND (p.puballtables OR {in_schema} OR EXISTS (
SELECT 1 FROM pg_publication_tables t WHERE t.pubname = p.pubname AND t.schemaname = current_schema()
AND t.tablename = %s))
"""
_SCHEMAS_SINCE = 150_000
_IN_SCHEMA = """EXISTS (SELECT 1 FROM pg_publication_namespace n
WHERE n.pnpubid = p.oid AND n.pnnspid = quote_ident(current_schema())::regnamespace)"""
_KINDS = {
    "v": ("a view", "name the table that the rows are to lie in"),
    "m": ("a materialized view", "name the table that the rows are to lie in"),
    "f": ("a foreign table, which commits apart from the ledger", "write to the database where the table lies"),
}
_PERSISTENCE = {
    "u": ("UNLOGGED: a crash of the server empties it, while the ledger stays", "ALTER TABLE {name} SET LOGGED"),
    "t": ("TEMPORARY: it ends with the connection", "make an ordinary table"),
}
_VIEWS = """
SELECT DISTINCT quote_ident(n.nspname) || '.' || quote_ident(v.relname), pg_get_viewdef(v.oid), v.relkind::text,
coalesce(array_to_string(v.reloptions, ', '), '')
FROM pg_depend d JOIN pg_rewrite r ON r.oid = d.objid AND d.classid = 'pg_rewrite'::regclass
JOIN pg_class v ON v.oid = r.ev_class JOIN pg_namespace n ON n.oid = v.relnamespace
WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = to_regclass(%s) AND v.oid <> d.refobjid
"""
_RIGHTS = """
SELECT CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END, privilege_type, is_grantable
FROM pg_class, aclexplode(relacl) WHERE pg_class.oid = to_regclass(%s) AND grantee <> relowner
"""


def misfits(connection: Connection, target: WriteTarget, quoted: str) -> Iterator[OptionError]:
    """Yield why the database cannot take the rows of `target`, by what its administrator has set."""
    [(encoding, database, user, role_limit, limit, read_only, is_super, version)] = rows_of(connection, _ADMINISTERED)
    if encoding != "UTF8" and any(column.kind in ("text", "json") for column in target.columns):
        fault = f"database '{database}' stores texts as {encoding}, which has not every character"
        fix = (
            f"write to a database of its own: CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0; {database} stays"
        )
        yield OptionError(code="HR420", what=fault, fix=fix)
    if read_only:
        fault = f"user '{user}' may only read in database '{database}' (default_transaction_read_only)"
        fix = f'ALTER ROLE "{user}" SET default_transaction_read_only = off; or name a user that may write'
        yield OptionError(code="HR420", what=fault, fix=fix)
    for kind, name, most in (("ROLE", user, role_limit), ("DATABASE", database, limit)):
        if 0 <= most < _FEWEST_CONNECTIONS and not is_super:
            fault = f"{kind.lower()} '{name}' takes {most} connections at once (CONNECTION LIMIT), and a query has "
            fault += "one, and up to three more for each task that stages rows"
            fix = f'ALTER {kind} "{name}" CONNECTION LIMIT {_FEWEST_CONNECTIONS}, or more by the number of tasks'
            yield OptionError(code="HR420", what=fault, fix=fix)
    in_schema = _IN_SCHEMA if version >= _SCHEMAS_SINCE else "false"
    for publication, identified in rows_of(connection, _PUBLISHED.format(in_schema=in_schema), (quoted, target.table)):
        if identified is False or (identified is None and not target.key):
            fault = f"publication '{publication}' replicates updates and deletes, which PostgreSQL refuses of table "
            fault += f"'{target.table}', as it has no primary key"
            fix = "give the sink a key; or set REPLICA IDENTITY of the table, or let the publication have inserts alone"
            yield OptionError(code="HR422", what=fault, fix=fix)


def existing_table(connection: Connection, table: str, quoted: str) -> limits.ExistingTable | None:
    [*tables] = rows_of(connection, _TABLE, (quoted,))
    if not tables:
        return None
    oid, kind, schema, here, secured = tables[0]
    columns = tuple(_column(row) for row in rows_of(connection, _COLUMNS, (oid,)))
    unique = tuple(
        limits.ExistingIndex(
            f"'{name}'", frozenset(names), "" if exact else "treats texts as one that differ for Spark"
        )
        for name, names, exact in rows_of(connection, _UNIQUE, (oid,))
    )
    blockers = list(_kind_blockers(connection, table, int(oid), str(kind)))
    if secured:
        fault = "row security hides rows of it from this user"
        fix = "write as the table's owner, or as a user with BYPASSRLS"
        blockers.append(OptionError(what=fault, fix=fix))
    for (rule,) in rows_of(connection, _RULES, (oid,)):
        fault = f"its rule '{rule}' rewrites what is written to it"
        blockers.append(
            OptionError(what=fault, fix=f"drop the rule {rule}; an AFTER trigger can write to another table")
        )
    return limits.ExistingTable(
        columns=columns,
        unique=unique,
        blockers=tuple(blockers),
        triggers=tuple(dict.fromkeys(map(_trigger, rows_of(connection, _TRIGGERS, (oid,))))),
        elsewhere="" if here else str(schema),
    )


def _kind_blockers(connection: Connection, table: str, oid: int, kind: str) -> Iterator[OptionError]:
    for member, name, its_kind, persistence in rows_of(connection, _MEMBERS, (oid,)):
        whose = "it" if member == oid else f"its partition '{name}'"
        if its_kind in _KINDS:
            fault, fix = _KINDS[its_kind]
            yield OptionError(what=f"{whose} is {fault}", fix=fix)
        elif persistence in _PERSISTENCE:
            fault, fix = _PERSISTENCE[persistence]
            yield OptionError(what=f"{whose} is {fault}", fix=fix.format(name=name))
        elif member != oid and kind == "r":
            fault = (
                f"table '{name}' inherits from it, so that its rows are read with those of '{table}', and no key is one"
            )
            yield OptionError(what=fault, fix=f"ALTER TABLE {name} NO INHERIT {table}, or write to another table")


def _trigger(row: Sequence[Any]) -> limits.Trigger:
    name, bits, body, readable = row
    return limits.Trigger(
        name=str(name),
        body=str(body),
        changes_rows=bits & 3 == 3,
        returns=True,
        readable=bool(readable),
        deletes_only=bits & 20 == 0,
    )


def _column(row: Sequence[Any]) -> limits.ExistingColumn:
    name, declared, required, default, identity, generated, mod, exact, collation = row
    blocker = "and is generated, so that it takes no value" if generated else ""
    if identity == "a":
        blocker = "and is GENERATED ALWAYS, so that it takes no value; make it GENERATED BY DEFAULT"
    texts = f"with the collation {collation}, which treats texts as one key that differ for Spark"
    return limits.ExistingColumn(
        str(name),
        _full_type(str(declared), int(mod)),
        bool(required) and not default and not identity,
        replace(limit_of(str(declared), int(mod)), required=bool(required)),
        blocker=blocker,
        key_blocker="" if exact else texts,
        constant=bool(default) and not identity,
    )


def incompatible(there: limits.ExistingColumn, column: ResultColumn, wanted: str) -> str | None:
    """Return why the existing column would not keep the values of `column` as they are, or None."""
    base = there.declared.partition("(")[0]
    if base not in _FITS[column.kind]:
        return f"which is not a type for {column.type.simpleString()}; declare it {wanted}"
    if base == "numeric" and "(" in there.declared and _scale(there.declared) < column.scale:
        return f"which rounds to {_scale(there.declared)} places; declare it {wanted}"
    if base.startswith("timestamp") and "(" in there.declared and "(6)" not in there.declared:
        return f"which cuts off microseconds; declare it {wanted}"
    return None


def limit_of(declared: str, mod: int = -1) -> limits.Limit:
    """Return the limit of a column of this type; a date or time must have a text that PostgreSQL reads."""
    if declared == "character varying":
        return limits.Limit(characters=mod - 4 if mod > 0 else None, no_zero=True)
    if declared in ("text", "jsonb", "json"):
        return limits.Limit(no_zero=True)
    if declared.startswith(("date", "timestamp")):
        return limits.Limit(first=datetime.min)
    if declared in _INTEGERS:
        return limits.Limit(low=-_INTEGERS[declared], high=_INTEGERS[declared] - 1)
    if declared == "numeric" and mod >= 0:
        return limits.digits_limit((mod - 4) >> 16, (mod - 4) & 0x7FF)
    return limits.Limit()


def _full_type(declared: str, mod: int) -> str:
    """Return the type with its length, as far as one is set (PostgreSQL's atttypmod)."""
    if mod < 0:
        return declared
    if declared == "numeric":
        return f"numeric({(mod - 4) >> 16},{(mod - 4) & 0x7FF})"
    if declared in ("character varying", "character"):
        return f"{declared}({mod - 4})"
    return f"{declared}({mod})"


def _scale(declared: str) -> int:
    return int(declared.rstrip(")").partition(",")[2] or 0)


@dataclass(frozen=True, kw_only=True)
class Readers:
    """The statements that let those who read a table read another one of its name."""

    statements: tuple[str, ...]

    @classmethod
    def of(cls, connection: Connection, quoted: str) -> Readers:
        """Return the views of a table as it is now. Raises SinkError for one that cannot be turned to another table."""
        statements = []
        for view, definition, kind, options in rows_of(connection, _VIEWS, (quoted,)):
            if kind != "v":
                fault = f"the materialized view {view} reads table {quoted}, and would keep reading the former result"
                raise NothingChanged(code="HR587", what=fault, fix="drop it, and create it again after the swap")
            given = f" WITH ({options})" if options else ""
            statements.append(f"CREATE OR REPLACE VIEW {view}{given} AS {definition}")
        for grantee, right, passed_on in rows_of(connection, _RIGHTS, (quoted,)):
            suffix = " WITH GRANT OPTION" if passed_on else ""
            statements.append(f"GRANT {right} ON {quoted} TO {grantee}{suffix}")
        return cls(statements=tuple(statements))

    def follow(self, connection: Connection) -> None:
        """Let them read the table that has the name now."""
        for statement in self.statements:
            run(connection, statement.replace("%", "%%"))
