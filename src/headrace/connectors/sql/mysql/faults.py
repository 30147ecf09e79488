"""What the errors of MySQL and MariaDB mean, by their numbers."""

from __future__ import annotations

import ssl

import pymysql

from headrace.connectors.sql.faults import BATCH_FIX, REFUSED_FIX, START_FIX, Faults

# PyMySQL's own number of a connection that was lost while a statement ran.
LOST = 2013
NO_CONNECTION_LEFT = (1040, 1203, 1226)
_LOCK_WAIT = 1205
# A row that refers to a row that is missing, or to which another one refers.
_NO_PARENT = (1216, 1217, 1451, 1452)
# What the server refuses of a row, by the manuals' lists of errors: a NULL, a key, a value, a size, a partition, a
# constraint, what a trigger raises by SIGNAL.
_REFUSALS = (
    *(1022, 1048, 1062, 1118, 1138, 1153, 1263, 1264, 1265, 1292, 1300, 1364, 1365, 1366, 1367, 1369, 1406, 1411),
    *(1416, 1441, 1526, 1557, 1586, 1591, 1644, 1690, 1713, 1748, 1761, 1762, 1859, 3140, 3156, 3819, 4025),
    *_NO_PARENT,
)
# The server is gone, is going or is not there yet; a lock was waited for too long; a deadlock; too many connections.
_PASSING = (
    *(*NO_CONNECTION_LEFT, _LOCK_WAIT),
    *(1053, 1158, 1159, 1160, 1161, 1213, 1927, 2002, 2003, 2006, LOST, 2055, 4031),
)
# The storage engine, memory, a node that joins its cluster (Galera, Group Replication), a statement that was ended.
_OF_THE_MOMENT = (1030, 1037, 1038, 1047, 1180, 1197, 1206, 1317, 1637, 1969, 3024, 3100, 3101, 3572)
_RIGHTS = "grant the rights that the sink's documentation lists"
_SENTENCES = (
    (_REFUSALS, "HR408", "refuses a row: {text}", REFUSED_FIX),
    ((1044,), "HR414", "refuses this user the database: {text}", _RIGHTS),
    (
        (1045, 1698),
        "HR414",
        "refuses the user or the password: {text}",
        "give the url the right ones, then start again",
    ),
    ((1049,), "HR414", "has no such database: {text}", "create it, or correct the url"),
    ((1142, 1143, 1227), "HR414", "refuses this user a right: {text}", _RIGHTS),
    ((2026,), "HR414", "cannot be reached by TLS as asked: {text}", "look at ssl_mode and ssl_ca in the url"),
    ((1040,), "HR405", "has no connection left: {text}", "raise max_connections, or run fewer tasks at once"),
    ((1203, 1226), "HR405", "gives this user no more: {text}", "raise its limits: ALTER USER ... WITH"),
    ((_LOCK_WAIT,), "HR405", "keeps a lock on the table", "end the other transaction, then start again"),
    ((1213,), "HR405", "ended the transaction to resolve a deadlock", "start again"),
    ((28, 1021), "HR405", "has no space left on its disk", "make room, then start again"),
    ((1041,), "HR405", "has no memory left", "give the server more, then start again"),
    ((1114,), "HR405", "has no space left for the table", "make room, then start again"),
    ((1146,), "HR405", "has lost a table that was there at the start", "put it back, or start again and it is made"),
    ((1054,), "HR405", "has lost a column that was there at the start", "start again: the table is compared first"),
    ((1290, 1836), "HR405", "may only be read", "name the primary server in the url"),
    (
        (1792,),
        "HR414",
        "lets transactions only read: {text}",
        "set tx_read_only (MySQL: transaction_read_only) to 0, globally",
    ),
    (_PASSING, "HR405", "does not answer: {text}", START_FIX),
    (_OF_THE_MOMENT, "HR405", "refuses it: {text}", BATCH_FIX),
)
FAULTS = Faults(
    sentences=_SENTENCES,
    passing=_PASSING,
    refusals=_REFUSALS,
    lock_wait=(_LOCK_WAIT,),
    no_parent=_NO_PARENT,
    # A lock, a deadlock, a changed definition; a table, a column, a key or a row that is there already.
    contended=(_LOCK_WAIT, 1213, 1412, 1050, 1060, 1061, 1062, 1091),
    # A table is missing, or was damaged by a crash.
    part_lost=(126, 127, 145, 1034, 1035, 1146, 1194, 1195, 1932),
    # MariaDB's max_statement_time, MySQL's max_execution_time.
    out_of_time=(1969, 3024),
)


def number_of(error: BaseException) -> int:
    """Return the number of an error; that of a connection which PyMySQL has closed is 2006."""
    number = error.args[0] if error.args else 0
    if isinstance(error, pymysql.err.InterfaceError) and number == 0:
        return 2006
    # PyMySQL reports a certificate that is refused as a server that cannot be reached.
    if number == 2003 and isinstance(error.__context__, ssl.SSLCertVerificationError):
        return 2026
    return number if isinstance(number, int) else 0
