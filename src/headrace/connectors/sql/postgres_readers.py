"""Who reads a PostgreSQL table: the views and the rights, which belong to the table and not to its name.

When another table takes the name, views would keep reading the former one, and users would lose their grants.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.connectors.sql.dialect import Connection, rows_of, run
from headrace.errors import Finding, SinkError

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


@dataclass(frozen=True, kw_only=True)
class Readers:
    """The statements that let those who read a table read another one of its name."""

    statements: tuple[str, ...]

    @classmethod
    def of(cls, connection: Connection, quoted: str) -> Readers:
        """Those of a table as it is now. Raises SinkError for a view that cannot be turned to another table."""
        statements = []
        for view, definition, kind, options in rows_of(connection, _VIEWS, (quoted,)):
            if kind != "v":
                what = f"the materialized view {view} reads table {quoted}, and would keep reading the former result"
                raise SinkError(Finding(code="HR587", what=what, fix="drop it, and create it again after the swap"))
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
