"""`python make_fixture.py FILE`: runs the project next to this file with the installed Headrace, and packs it.

Run it from a checkout of the version that the fixture is to show. Paths in checkpoints and tables are absolute, so
the project lies where the tests put it too.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from services import KINDS
from services.mariadb import ADMIN
from services.process import new_home

HERE = Path(__file__).parent
HOME = Path(tempfile.gettempdir()) / "headrace-upgrade"
ACTIONS = ("click", "view", "buy")
FILES, ROWS = 3, 40


def land(home: Path, number: int) -> None:
    """One file of the source: the hours continue with the files, a few rows are late but not too late."""
    rows = [
        {
            "id": number * ROWS + row,
            "time": f"2024-05-01T{8 + number + (row % 7 == 0) * -1:02d}:{row % 60:02d}:00Z",
            "action": ACTIONS[row % 3],
            "amount": row,
        }
        for row in range(ROWS)
    ]
    folder = home / "landing"
    folder.mkdir(exist_ok=True)
    draft = folder / f".{number}.json"
    draft.write_text("\n".join(map(json.dumps, rows)))
    os.utime(draft, (1_700_000_000 + number,) * 2)
    draft.rename(folder / f"{number}.json")


def main(file: Path) -> None:
    """Make the project, run it three times, and pack it with the databases' dumps."""
    shutil.rmtree(HOME, ignore_errors=True)
    shutil.copytree(HERE / "project", HOME)
    servers = {name: KINDS[name](new_home(name)) for name in ("postgres", "mariadb")}
    try:
        for server in servers.values():
            server.create()
        urls = {f"{name.upper()}_URL": server.create_database("upgrade") for name, server in servers.items()}
        (HOME / "out").mkdir()
        for number in range(FILES):
            land(HOME, number)
            subprocess.run(
                [Path(sys.executable).with_name("headrace"), "run", "-C", str(HOME)],
                check=True,
                env={**os.environ, **urls},
            )
        dump(["pg_dump", "--inserts", "--no-owner", urls["POSTGRES_URL"]], HOME / "postgres.sql")
        os.environ["MYSQL_PWD"] = servers["mariadb"].password
        where = ["--protocol=tcp", "--host=127.0.0.1", f"--port={servers['mariadb'].port}", f"--user={ADMIN}"]
        dump(["mariadb-dump", *where, "--skip-ssl", "--no-tablespaces", "upgrade"], HOME / "mariadb.sql")
    finally:
        for server in servers.values():
            server.remove()
    with tarfile.open(file, "w:xz") as archive:
        archive.add(HOME, arcname=".")
    shutil.rmtree(HOME)


def dump(command: list[str], file: Path) -> None:
    """The database as statements."""
    with file.open("wb") as out:
        subprocess.run(command, check=True, stdout=out)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
