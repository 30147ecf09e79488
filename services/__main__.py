"""`python -m services start|stop|install`: the servers for tests, benchmarks and people."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from services import KINDS, ConnectServer, Server, connectors, locales
from services.process import ServerFault, program, running

# Debian's package, and the service that it starts.
PACKAGES = {"postgres": ("postgresql", "postgresql"), "mariadb": ("mariadb-server", "mariadb")}
# What Maven fetches; the S3 server is built by Go.
BY_MAVEN = ("kafka", "hdfs", "connect")
# Tests start it in front of a broker of theirs.
INSTALLED: dict[str, type[Server]] = {**KINDS, "connect": ConnectServer}

# What is not a server of ours: the program that tests look for, the package, and the service that it starts.
TOOLS = {
    "pgbouncer": ("pgbouncer", "pgbouncer"),
    "promtool": ("prometheus", "prometheus"),
    "systemd-analyze": ("systemd", ""),
    "chromium": ("chromium", ""),
    "chromedriver": ("chromium-driver", ""),
    "npm": ("npm", ""),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Do one of the three things; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m services", description=__doc__)
    parser.add_argument("do", choices=("start", "stop", "install"))
    parser.add_argument("--home", type=Path, default=Path(tempfile.gettempdir()) / f"headrace-services-{os.getuid()}")
    options = parser.parse_args(arguments)
    if options.do == "install":
        return install()
    home = options.home.absolute()
    if options.do == "start" and not home.exists():
        home.mkdir(parents=True)
        home.chmod(0o755)  # Whatever the umask: the servers' accounts pass through.
    if home.is_symlink() or (home.exists() and home.stat().st_uid != os.getuid()):
        print(f"{home} belongs to somebody else: name another directory with --home", file=sys.stderr)
        return 1
    for name, kind in KINDS.items():
        server = kind(home / name)
        if options.do == "stop":
            server.remove()
        elif missing := kind.missing():
            print(missing, file=sys.stderr)
        else:
            try:
                start(server)
            except (ServerFault, OSError) as error:
                print(f"{name}: {error}", file=sys.stderr)
                return 1
            print(f"export HEADRACE_{name.upper()}_URL='{server.url()}'")
    if options.do == "stop":
        with contextlib.suppress(OSError):
            home.rmdir()  # Not when it holds anything else.
    return 0


def start(server: Server) -> None:
    """Start a server that does not run yet, in a directory that may be new or half made."""
    if not server.installed:
        server.remove()
        server.create()
    elif running(server.home) is None:
        server.start()


def install() -> int:
    """Install what is missing by Debian's packages where that is possible; elsewhere say what to do."""
    wanted = [name for name, kind in INSTALLED.items() if kind.missing()]
    prefix = [] if os.getuid() == 0 else ["sudo", "-n"]
    tools = [TOOLS[name] for name in TOOLS if program(name) is None]
    packages = [PACKAGES[name][0] for name in wanted if name in PACKAGES] + [package for package, _ in tools]
    if not shutil.which("mvn") and any(name in BY_MAVEN for name in wanted):
        packages.append("maven")
    if locales.making(prefix) and not Path("/usr/share/i18n/locales").exists():
        packages.append("locales")
    if packages and shutil.which("apt-get") and _quiet([*prefix, "true"]):
        get = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]
        # --no-remove: MariaDB would drive out a MySQL that is installed.
        command = [*get, "install", "-y", "-q", "--no-install-recommends", "--no-remove", *packages]
        if not _quiet(command):
            _quiet([*get, "update", "-q"])
            _quiet(command)
        for service in (
            *(PACKAGES[name][1] for name in wanted if name in PACKAGES),
            *(service for _, service in tools),
        ):
            if service:  # The packages start servers of their own; ours are others.
                _quiet([*prefix, "service", service, "stop"])
    for command in locales.making(prefix):
        _quiet(command)
    sentences = [_obtain(INSTALLED[name]) for name in wanted] + connectors.install()
    for sentence in filter(None, sentences):
        print(sentence, file=sys.stderr)
    return 0


def _obtain(kind: type[Server]) -> str | None:
    """Fetch or build what is not a package; returns what is still missing, and why."""
    try:
        if obtain := getattr(kind, "obtain", None):
            obtain()
    except ServerFault as error:
        return str(error)
    return kind.missing()


def _quiet(command: Sequence[str]) -> bool:
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


if __name__ == "__main__":
    sys.exit(main())
