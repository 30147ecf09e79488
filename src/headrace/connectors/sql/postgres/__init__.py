"""PostgreSQL: tables as a sink."""

from headrace.connectors.sql.postgres.sink import Postgres as Postgres
