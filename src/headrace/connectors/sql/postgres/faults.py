"""What PostgreSQL's errors mean, by their SQLSTATE (PostgreSQL manual, appendix A) or how it begins."""

from __future__ import annotations

import re

import psycopg

from headrace.connectors.sql.faults import BATCH_FIX, REFUSED_FIX, START_FIX, Faults

READ_ONLY, _LOCK_WAIT = "25006", "55P03"
NO_CONNECTION_LEFT = "53300"
# What a server refuses of a row: a value, a constraint or a partition (22, 23, 44), a size (54), what a trigger raises.
_REFUSALS = ("22", "23", "44", "54", "P0001")
_TLS_FIX = "look at sslmode and sslrootcert in the url, and at the server's certificate"
_SENTENCES = (
    (_REFUSALS, "HR408", "refuses a row: {text}", REFUSED_FIX),
    ("42501", "HR414", "refuses it: {text}", "grant it: the documentation of the sink lists the rights that it needs"),
    ("TLS", "HR414", "cannot be reached by TLS as asked: {text}", _TLS_FIX),
    ("28P01", "HR414", "refuses the password", "give the url the new password, then start again"),
    ("28000", "HR414", "refuses this user", "look at the user's rights and at pg_hba.conf"),
    ("3D000", "HR414", "has no such database", "create it, or correct the url"),
    ("3F000", "HR414", "has no such schema", "create it, or correct the option schema"),
    (NO_CONNECTION_LEFT, "HR405", "has no connection left", "raise max_connections, or run fewer tasks at once"),
    ("53100", "HR405", "has no space left on its disk", "make room, then start again"),
    ("42P01", "HR405", "has lost a table that was there at the start", "put it back, or start again and it is made"),
    ("42703", "HR405", "has lost a column that was there at the start", "start again: the table is compared first"),
    (_LOCK_WAIT, "HR405", "keeps a lock on the table", "end the other transaction, then start again"),
    ("25P03", "HR405", "ended the transaction, which was idle for too long", "start again, and look at what kept it"),
    ("40P01", "HR405", "ended the transaction to resolve a deadlock", "start again"),
    ("40001", "HR405", "ended the transaction, as others wrote at once", "start again"),
    (READ_ONLY, "HR405", "may only be read: it is a standby", "name the primary server in the url"),
    (("08", "57P"), "HR405", "does not answer: {text}", START_FIX),
    # Short of something, an object in use, an operator's doing, the system, an internal error: it may pass.
    (("53", "55", "57", "58", "XX"), "HR405", "refuses it: {text}", BATCH_FIX),
)
FAULTS = Faults(
    sentences=_SENTENCES,
    passing=("08", "40", "57P01", "57P02", "57P03", "57P05", _LOCK_WAIT, "25P03", "25P04", NO_CONNECTION_LEFT),
    refusals=_REFUSALS,
    lock_wait=(_LOCK_WAIT,),
    no_parent=("23503",),
    # The last are of a table, a column, a type or a row that is there already.
    contended=("40", _LOCK_WAIT, "42P07", "42701", "42710", "23505"),
    part_lost=("42P01",),
    out_of_time=("57014",),
)
# What libpq says where no server has given a SQLSTATE.
_SIGNS = (
    ("certificate|does not support SSL|sslmode", "TLS"),
    ("password authentication failed|no password supplied", "28P01"),
    ("no pg_hba.conf entry", "28000"),
    ('database ".+" does not exist', "3D000"),
    ("does not exist", "28000"),
    ("too many clients|too many connections|no more connections allowed|remaining connection slots", "53300"),
)


def sqlstate(error: BaseException) -> str:
    """Return the SQLSTATE of an error of psycopg; one of a lost connection has class 08."""
    if state := getattr(error, "sqlstate", None):
        return str(state)
    lost = "08006" if isinstance(error, psycopg.OperationalError) else ""
    return next((state for signs, state in _SIGNS if re.search(signs, str(error))), lost)


def locked_table(error: BaseException) -> str:
    """Return the table whose lock was waited for, as far as the server says it."""
    context = getattr(getattr(error, "diag", None), "context", None) or ""
    relation = re.search(r'in relation "(.+?)"', context)
    return relation[1] if relation else ""
