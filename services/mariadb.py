"""A MariaDB server of its own."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import signal
from pathlib import Path

import pymysql

from services import process, tls

MISSING = "MariaDB is not installed: `sudo apt-get install mariadb-server` (version 10.11 or newer)"
ADMIN = "headrace_admin"


class MariaDbServer:
    """One data directory below `home`, on a port that stays the same over restarts; every user needs a password."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.user = process.ordinary_user("mysql")
        self.log_file = home / "log"

    @staticmethod
    def missing() -> str | None:
        """What to do to get it; None when it is there."""
        there = all(process.program(name) for name in ("mariadbd", "mariadb-install-db"))
        return None if there else MISSING

    @property
    def installed(self) -> bool:
        """Whether `install` came to its end."""
        return (self.home / "installed").exists()

    @property
    def port(self) -> int:
        return int((self.home / "port").read_text())

    @property
    def password(self) -> str:
        return (self.home / "password").read_text()

    @property
    def pid(self) -> int:
        return int((self.home / "pid").read_text())

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    @property
    def root_certificate(self) -> Path:
        return self.home / "root.crt"

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
                *("--auth-root-authentication-method=normal", "--skip-test-db"),
            ],
            self.user,
            self.home,
        )
        self._launch(f"--init-file={initial}")
        self.stop()
        initial.unlink()
        (self.home / "installed").touch()

    def start(self) -> None:
        """Start, and wait until it answers. What is committed outlives a crash: nothing of that is switched off."""
        self._launch()

    def _launch(self, *more: str) -> None:
        if pid := process.running(self.home):
            raise process.ServerFault(f"the server of {self.home} runs already, as process {pid}")
        settings = {
            "datadir": self.home / "data",
            "port": self.port,
            "bind-address": "127.0.0.1",
            "socket": self.home / "socket",
            "pid-file": self.home / "mariadbd.pid",
            "innodb-buffer-pool-size": "1G",
            "innodb-log-file-size": "1G",
            "max-allowed-packet": "64M",
            "character-set-server": "utf8mb4",
            "max-connections": 60,
            "ssl-ca": self.home / "root.crt",
            "ssl-cert": self.home / "server.crt",
            "ssl-key": self.home / "server.key",
        }
        command = [self._program("mariadbd"), "--no-defaults", "--skip-name-resolve"]
        command += [f"--{name}={value}" for name, value in settings.items()]
        pid = process.launch([*command, *more], self.user, self.home, self.log_file)
        process.await_answer(self.answers, pid, self.log_file)

    def answers(self) -> bool:
        """Whether a query is answered."""
        try:
            self.execute("SELECT 1")
        except (pymysql.MySQLError, OSError):
            return False
        return True

    def stop(self) -> None:
        """Stop as a restart of the service would: running transactions are rolled back."""
        if pid := process.running(self.home):
            process.stop(pid, signal.SIGTERM)

    def kill(self) -> None:
        """End it as a power cut would."""
        if pid := process.running(self.home):
            process.kill(pid)

    def restart(self) -> None:
        self.stop()
        self.start()

    def remove(self) -> None:
        """Stop, and remove everything; a directory that holds no server of ours stays."""
        self.stop()
        if not (self.home / "port").exists():
            return
        shutil.rmtree(self.home, ignore_errors=True)

    def execute(self, statement: str, *, database: str = "") -> None:
        """Run one statement as the administrator."""
        connection = pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user=ADMIN,
            password=self.password,
            database=database or None,
            autocommit=True,
            connect_timeout=5,
        )
        with contextlib.closing(connection), connection.cursor() as cursor:
            cursor.execute(statement)

    def create_database(self, name: str) -> str:
        """A new empty database; returns its URL."""
        self.execute(f"CREATE DATABASE `{name}`")
        return self.url(database=name)

    def drop_database(self, name: str) -> None:
        self.execute(f"DROP DATABASE IF EXISTS `{name}`")

    def _program(self, name: str) -> str:
        found = process.program(name)
        if found is None:
            raise process.ServerFault(MISSING)
        return found
