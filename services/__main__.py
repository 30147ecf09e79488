"""`python -m services start|stop|install`: the servers for tests, benchmarks and people."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from services import KINDS, Server

PACKAGES = ("postgresql", "mariadb-server")


def main(arguments: Sequence[str] | None = None) -> int:
    """Do one of the three things; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m services", description=__doc__)
    parser.add_argument("do", choices=("start", "stop", "install"))
    parser.add_argument("--home", type=Path, default=Path(tempfile.gettempdir()) / f"headrace-services-{os.getuid()}")
    options = parser.parse_args(arguments)
    if options.do == "install":
        return install()
    options.home.mkdir(mode=0o755, parents=True, exist_ok=True)
    for name, kind in KINDS.items():
        server = kind(options.home / name)
        if options.do == "stop":
            server.remove()
        elif missing := kind.missing():
            print(missing, file=sys.stderr)
        else:
            start(server)
            print(f"export HEADRACE_{name.upper()}_URL='{server.url()}'")
    if options.do == "stop":
        shutil.rmtree(options.home, ignore_errors=True)
    return 0


def start(server: Server) -> None:
    """Start a server that does not run yet, in a directory that may be new."""
    if not (server.home / "data").exists():
        server.home.mkdir(mode=0o755, exist_ok=True)
        server.install()
    if not server.answers():
        server.start()


def install() -> int:
    """Install the servers by Debian's packages where that is possible; elsewhere say what is missing."""
    missing = [sentence for kind in KINDS.values() if (sentence := kind.missing())]
    if not missing:
        return 0
    prefix = [] if os.getuid() == 0 else ["sudo", "-n"]
    may = shutil.which("apt-get") and (not prefix or _quiet([*prefix, "true"]))
    if not may:
        print("\n".join(missing), file=sys.stderr)
        return 0
    get = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]
    wanted = [*get, "install", "-y", "-q", "--no-install-recommends", *PACKAGES]
    if not _quiet(wanted):
        _quiet([*get, "update", "-q"])
        _quiet(wanted)
    # Debian starts clusters of its own where there is an init system; ours are others.
    missing = [sentence for kind in KINDS.values() if (sentence := kind.missing())]
    print("\n".join(missing), file=sys.stderr, end="\n" if missing else "")
    return 0


def _quiet(command: Sequence[str]) -> bool:
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


if __name__ == "__main__":
    sys.exit(main())
