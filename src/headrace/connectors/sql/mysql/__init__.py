"""MySQL and MariaDB: tables as a sink."""

from headrace.connectors.sql.mysql.sink import MySql as MySql
