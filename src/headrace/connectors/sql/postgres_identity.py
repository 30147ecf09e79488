"""Which table of which server a PostgreSQL url names, as libpq fills in what the url leaves out."""

from __future__ import annotations

import getpass
import os
import re
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from headrace.contract import Identity, canonical_server
from headrace.redaction import encoding_fault

# Where libpq looks for the socket of a server on this machine.
_SOCKETS = ("/tmp", "/run/postgresql", "/var/run/postgresql")
_SEARCH_PATH = re.compile(r"(?:-c\s*|--)search[_-]path=\"?([^\s,\"]+)")


def of_table(url: str, schema: str, table: str) -> Identity | None:
    """The server, the database and the table with its schema; None where the url cannot be read.

    Without a schema it is the first of the search path that the url gives, and `public`, the server's own default.
    """
    try:
        known: dict[str, Any] = {} if encoding_fault(url, may="#") else dict(conninfo_to_dict(url))
    except psycopg.Error:
        return None
    if not known:
        return None
    user = known.get("user") or os.environ.get("PGUSER") or getpass.getuser()
    set_by_url = _SEARCH_PATH.search(str(known.get("options") or os.environ.get("PGOPTIONS", "")).replace("\\ ", " "))
    return {
        "system": "postgres",
        "server": ",".join(sorted(_servers(known))),
        "database": str(known.get("dbname") or os.environ.get("PGDATABASE") or user),
        "table": f"{schema or (set_by_url[1] if set_by_url else 'public')}.{table}",
    }


def _servers(known: dict[str, Any]) -> set[str]:
    """Each server that the url names; several are tried in turn."""
    if service := known.get("service"):
        return {f"service {service}"}
    hosts = str(known.get("host") or known.get("hostaddr") or os.environ.get("PGHOST") or "").split(",")
    ports = str(known.get("port") or os.environ.get("PGPORT") or "5432").split(",")
    pairs = zip(hosts, ports if len(ports) == len(hosts) else ports * len(hosts), strict=False)
    return {_server(host, port or "5432") for host, port in pairs}


def _server(host: str, port: str) -> str:
    if host.startswith("/") and host.rstrip("/") not in _SOCKETS:
        return f"{os.path.realpath(host)}:{port}"
    return canonical_server(host, port)
