"""What the errors of MySQL and MariaDB mean to a user, and which of them may pass."""

from __future__ import annotations

import ssl
from urllib.parse import urlsplit

import pymysql

from headrace.contract import OptionError
from headrace.redaction import without

# The server is gone, is going or is not there yet; a lock was waited for too long; a deadlock; too many connections.
_PASSING = (1040, 1053, 1158, 1159, 1160, 1161, 1205, 1213, 1927, 2002, 2003, 2006, 2013, 2055, 4031)
# A lock, a deadlock, a changed definition; a table, a column, a key or a row that is there already.
_CONTENDED = (1205, 1213, 1412, 1050, 1060, 1061, 1062, 1091)
# A table is missing, or was damaged by a crash.
_PART_LOST = (126, 127, 145, 1034, 1035, 1146, 1194, 1195, 1932)

LOCK_WAIT = 1205
# MariaDB's max_statement_time, MySQL's max_execution_time.
OUT_OF_TIME = (1969, 3024)
_WORDS: dict[int, tuple[str, str, str]] = {
    1044: ("HR414", "refuses this user the database", "grant the rights that the sink's documentation lists"),
    1045: ("HR414", "refuses the user or the password", "give the url the right ones, then start again"),
    1049: ("HR414", "has no such database", "create it, or correct the url"),
    1142: ("HR414", "refuses this user a right", "grant the rights that the sink's documentation lists"),
    1143: ("HR414", "refuses this user a right", "grant the rights that the sink's documentation lists"),
    1227: ("HR414", "refuses this user a right", "grant the rights that the sink's documentation lists"),
    1698: ("HR414", "refuses the user or the password", "give the url the right ones, then start again"),
    2026: ("HR414", "cannot be reached by TLS as asked", "look at ssl_mode and ssl_ca in the url"),
    1040: ("HR405", "has no connection left", "raise max_connections, or run fewer tasks at once"),
    1205: ("HR405", "keeps a lock on the table", "end the other transaction, then start again"),
    1213: ("HR405", "ended the transaction to resolve a deadlock", "start again"),
    1021: ("HR405", "has no space left on its disk", "make room, then start again"),
    1041: ("HR405", "has no memory left", "give the server more, then start again"),
    1114: ("HR405", "has no space left for the table", "make room, then start again"),
    28: ("HR405", "has no space left on its disk", "make room, then start again"),
    1146: ("HR405", "has lost a table that was there at the start", "put it back, or start again and it is made"),
    1054: ("HR405", "has lost a column that was there at the start", "start again: the table is compared first"),
    1290: ("HR405", "may only be read", "name the primary server in the url"),
    1836: ("HR405", "may only be read", "name the primary server in the url"),
}


def number_of(error: BaseException) -> int:
    """The number of an error; that of a connection which PyMySQL has closed is 2006."""
    number = error.args[0] if error.args else 0
    if isinstance(error, pymysql.err.InterfaceError) and number == 0:
        return 2006
    # PyMySQL tells a certificate that is refused as a server that cannot be reached.
    if number == 2003 and isinstance(error.__context__, ssl.SSLCertVerificationError):
        return 2026
    return number if isinstance(number, int) else 0


def is_transient(error: Exception) -> bool:
    """Whether the same batch may succeed after a while."""
    return number_of(error) in _PASSING


def is_contended(error: Exception) -> bool:
    """Whether another transaction was in the way, or made the same table, column or row at the same time."""
    return number_of(error) in _CONTENDED


def is_part_lost(error: Exception) -> bool:
    """Whether a staging table is missing or damaged."""
    return number_of(error) in _PART_LOST


def explained(error: Exception, url: str) -> OptionError:
    """The error as one sentence, without a password."""
    parts = urlsplit(url)
    where = f"MySQL at {parts.hostname or 'localhost'}:{parts.port or 3306}"
    number = number_of(error)
    said = str(error.args[1]) if len(error.args) > 1 else str(error)
    text = without(" ".join(said.split()), url)
    if number in _WORDS:
        code, what, fix = _WORDS[number]
        detail = f": {text}" if code == "HR414" else ""
        return OptionError(code=code, what=f"{where} {what}{detail}", fix=fix)
    if number in _PASSING:
        fix = "start the server, or correct the url; then start again"
        return OptionError(code="HR405", what=f"{where} does not answer: {text}", fix=fix)
    return OptionError(code="HR405", what=f"{where} refused the batch: {text}")
