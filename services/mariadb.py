"""A MariaDB server of its own."""

from __future__ import annotations

import contextlib
import secrets
from pathlib import Path

import pymysql

from services import process, tls
from services.server import DatabaseServer

MISSING = "MariaDB is not installed: `sudo apt-get install mariadb-server` (version 10.11 or newer)"
ADMIN = "headrace_admin"


class MariaDbServer(DatabaseServer):
    """One data directory; `binlog`: whether it logs the changes of rows, as Debezium reads them."""

    def __init__(self, home: Path, *, binlog: bool = False) -> None:
        super().__init__(home, process.ordinary_user("mysql"))
        self.binlog = binlog

    @staticmethod
    def missing() -> str | None:
        """What to do to get it; None when it is there."""
        there = all(process.program(name) for name in ("mariadbd", "mariadb-install-db"))
        return None if there else MISSING

    def url(self, *, database: str = "", user: str = ADMIN, password: str | None = None) -> str:
        return f"mysql://{user}:{password or self.password}@127.0.0.1:{self.port}/{database}"

    def install(self) -> None:
        """Make an empty data directory with an administrator."""
        (self.home / "port").write_text(str(process.free_port()))
        process.write_private(self.home / "password", secrets.token_hex(12))
        for file in (self.home, *tls.make(self.home)):
            self.user.owns(file)
        initial = process.write_private(
            self.home / "initial.sql",
            f"CREATE USER '{ADMIN}'@'127.0.0.1' IDENTIFIED BY '{self.password}';\n"
            f"GRANT ALL PRIVILEGES ON *.* TO '{ADMIN}'@'127.0.0.1' WITH GRANT OPTION;\n",
        )
        self.user.owns(initial)
        process.finish(
            [
                *(self._program("mariadb-install-db"), "--no-defaults", f"--datadir={self.home / 'data'}"),
                *("--auth-root-authentication-method=normal", "--skip-test-db", f"--tmpdir={self._scratch()}"),
            ],
            self.user,
            self.home,
        )
        self.launch(f"--init-file={initial}")
        self.stop()
        initial.unlink()
        (self.home / "installed").touch()

    def command(self) -> list[str]:
        settings = {
            "datadir": self.home / "data",
            "tmpdir": self._scratch(),
            "port": self.port,
            "bind-address": "127.0.0.1",
            "socket": self.home / "socket",
            "pid-file": self.home / "mariadbd.pid",
            "innodb-buffer-pool-size": "1G",
            "innodb-log-file-size": "96M" if process.is_in_memory(self.home) else "1G",
            "max-allowed-packet": "64M",
            "character-set-server": "utf8mb4",
            "max-connections": 60,
            "ssl-ca": self.home / "root.crt",
            "ssl-cert": self.home / "server.crt",
            "ssl-key": self.home / "server.key",
        }
        if self.binlog:
            settings |= {"server-id": 1, "log-bin": "binlog", "binlog-format": "ROW", "binlog-row-image": "FULL"}
            # Debezium's connector for MySQL asks a newer server for what MariaDB does not know.
            settings["version"] = "5.7.9-MariaDB"
        command = [self._program("mariadbd"), "--no-defaults", "--skip-name-resolve"]
        return [*command, *(f"--{name}={value}" for name, value in settings.items())]

    def _scratch(self) -> Path:
        """A directory for its temporary tables alone: each server deletes those of all others when it starts."""
        made = self.home / "tmp"
        made.mkdir(exist_ok=True)
        self.user.owns(made)
        return made

    def answers(self) -> bool:
        try:
            self.execute("SELECT 1")
        except (pymysql.MySQLError, OSError):
            return False
        return True

    def execute(self, statement: str, *, database: str = "") -> None:
        connection = pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user=ADMIN,
            password=self.password,
            database=database or None,
            autocommit=True,
            connect_timeout=5,
            # Without it, PyMySQL waits for a server's first word for ever.
            read_timeout=process.STATEMENT_SECONDS,
            # It takes longer than the statement.
            ssl_disabled=True,
        )
        with contextlib.closing(connection), connection.cursor() as cursor:
            cursor.execute(statement)

    def create_database(self, name: str) -> str:
        self.execute(f"CREATE DATABASE `{name}`")
        return self.url(database=name)

    def drop_database(self, name: str) -> None:
        self.execute(f"DROP DATABASE IF EXISTS `{name}`")

    def _program(self, name: str) -> str:
        path = process.program(name)
        if path is None:
            raise process.ServerFault(MISSING)
        return path
