"""SQLite: tables of a file as a sink."""

from headrace.connectors.sql.sqlite.sink import Sqlite as Sqlite
