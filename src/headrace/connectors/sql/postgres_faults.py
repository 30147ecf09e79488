"""What PostgreSQL's errors mean to a user, and which of them may pass."""

from __future__ import annotations

import re

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from headrace.contract import OptionError
from headrace.redaction import without

# By the class of the error, or the first two characters of its SQLSTATE (PostgreSQL manual, appendix A).
_PASSING_STATES = ("08", "40", "57P01", "57P02", "57P03", "57P05", "55P03", "25P03", "25P04", "53300")

LOCK_WAIT = "55P03"
NO_CONNECTION_LEFT = "53300"
_WORDS: tuple[tuple[str, str, str, str], ...] = (
    ("28P01", "HR414", "refuses the password", "give the url the new password, then start again"),
    ("28000", "HR414", "refuses this user", "look at the user's rights and at pg_hba.conf"),
    ("3D000", "HR414", "has no such database", "create it, or correct the url"),
    ("3F000", "HR414", "has no such schema", "create it, or correct the option schema"),
    ("53300", "HR405", "has no connection left", "raise max_connections, or run fewer tasks at once"),
    ("53100", "HR405", "has no space left on its disk", "make room, then start again"),
    ("42P01", "HR405", "has lost a table that was there at the start", "put it back, or start again and it is made"),
    ("42703", "HR405", "has lost a column that was there at the start", "start again: the table is compared first"),
    ("55P03", "HR405", "keeps a lock on the table", "end the other transaction, then start again"),
    ("25P03", "HR405", "ended the transaction, which was idle for too long", "start again, and look at what kept it"),
    ("40P01", "HR405", "ended the transaction to resolve a deadlock", "start again"),
    ("40001", "HR405", "ended the transaction, as others wrote at once", "start again"),
    ("25006", "HR405", "may only be read: it is a standby", "name the primary server in the url"),
)


def sqlstate(error: BaseException) -> str:
    """The SQLSTATE of an error of psycopg; one of a lost connection has class 08."""
    state = getattr(error, "sqlstate", None)
    if state:
        return str(state)
    text = str(error)
    for sign, state in (
        ("certificate", "TLS"),
        ("does not support SSL", "TLS"),
        ("sslmode", "TLS"),
        ("password authentication failed", "28P01"),
        ("no password supplied", "28P01"),
        ("no pg_hba.conf entry", "28000"),
        ("does not exist", "3D000" if 'database "' in text else "28000"),
        ("too many clients", "53300"),
        ("remaining connection slots", "53300"),
    ):
        if sign in text:
            return state
    return "08006" if isinstance(error, psycopg.OperationalError) else ""


def locked_table(error: BaseException) -> str:
    """The table whose lock was waited for, as far as the server says it."""
    context = getattr(getattr(error, "diag", None), "context", None) or ""
    found = re.search(r'in relation "(.+?)"', context)
    return found.group(1) if found else ""


def is_transient(error: Exception) -> bool:
    """Whether the same batch may succeed after a while."""
    return sqlstate(error).startswith(_PASSING_STATES)


def is_contended(error: Exception) -> bool:
    """Whether another transaction was in the way, or made the same table, type or row at the same time."""
    return sqlstate(error).startswith(("40", "55P03")) or isinstance(
        error, (errors.DuplicateTable, errors.DuplicateColumn, errors.DuplicateObject, errors.UniqueViolation)
    )


def explained(error: Exception, url: str) -> OptionError:
    """The error as one sentence, without a password."""
    where = f"PostgreSQL at {_place(url)}"
    state = sqlstate(error)
    text = without(" ".join(str(error).split()), url)
    if isinstance(error, errors.InsufficientPrivilege):
        fix = "grant it: the documentation of the sink lists the rights that it needs"
        return OptionError(code="HR414", what=f"{where} refuses it: {text}", fix=fix)
    if state == "TLS":
        fix = "look at sslmode and sslrootcert in the url, and at the server's certificate"
        return OptionError(code="HR414", what=f"{where} cannot be reached by TLS as asked: {text}", fix=fix)
    for sign, code, what, fix in _WORDS:
        if state == sign:
            return OptionError(code=code, what=f"{where} {what}", fix=fix)
    if state.startswith(("08", "57P")):
        return OptionError(
            code="HR405",
            what=f"{where} does not answer: {text}",
            fix="start the server, or correct the url; then start again",
        )
    return OptionError(code="HR405", what=f"{where} refused the batch: {text}")


def _place(url: str) -> str:
    """Host and port as libpq reads them."""
    try:
        found = conninfo_to_dict(url)
    except psycopg.Error:
        found = {}
    return f"{found.get('host') or found.get('hostaddr') or 'localhost'}:{found.get('port') or 5432}"
