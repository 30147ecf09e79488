"""A server process: started as an ordinary user, waited for, stopped or killed."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

START_SECONDS = 60.0
STOP_SECONDS = 30.0


class ServerFault(Exception):
    """A server did not start or stop; the message holds the end of its log."""


@dataclass(frozen=True)
class User:
    """The account that servers run under; neither PostgreSQL nor MariaDB runs as root."""

    name: str
    uid: int
    gid: int

    def arguments(self) -> dict[str, object]:
        """What Popen needs to run as this user: nothing, if it is the user that we are."""
        return {} if self.uid == os.getuid() else {"user": self.uid, "group": self.gid, "extra_groups": []}

    def owns(self, path: Path) -> Path:
        """Give `path` to the user."""
        if self.uid != os.getuid():
            os.chown(path, self.uid, self.gid)
        return path


def ordinary_user(*preferred: str) -> User:
    """This user, or for root the first of the `preferred` accounts that there is, else `nobody`."""
    if os.getuid() != 0:
        return _user(pwd.getpwuid(os.getuid()))
    for name in (*preferred, "nobody"):
        with contextlib.suppress(KeyError):
            return _user(pwd.getpwnam(name))
    raise ServerFault("there is no ordinary account to run a server under")


def _user(entry: pwd.struct_passwd) -> User:
    return User(entry.pw_name, entry.pw_uid, entry.pw_gid)


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def new_home(name: str) -> Path:
    """A new directory that every account may pass through."""
    home = Path(tempfile.mkdtemp(prefix=f"headrace-{name}-"))
    home.chmod(0o755)
    return home


def program(name: str, *directories: str) -> str | None:
    """The path of a program on the search path, or in the newest of `directories` (patterns below /) that has it."""
    if found := shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])):
        return found
    places = [place for pattern in directories for place in sorted(Path("/").glob(pattern.lstrip("/")), reverse=True)]
    return next((str(place / name) for place in places if (place / name).exists()), None)


def finish(command: Sequence[str], user: User, home: Path) -> None:
    """Run `command` as `user` to its end; raises ServerFault with its output."""
    done = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False, **user.arguments())  # type: ignore[call-overload]
    if done.returncode:
        raise ServerFault(f"{command[0]} failed: {done.stdout}{done.stderr}")


def launch(command: Sequence[str], user: User, home: Path, log: Path) -> int:
    """Start `command` in a session of its own, so that it outlives this process; returns its process id."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            **user.arguments(),  # type: ignore[call-overload]
        )
    (home / "pid").write_text(str(process.pid))
    return int(process.pid)


def await_answer(answers: Callable[[], bool], pid: int, log: Path) -> None:
    """Wait until a server answers; raises ServerFault when it ends or takes too long."""
    ends = time.monotonic() + START_SECONDS
    while not answers():
        if not is_alive(pid) or time.monotonic() > ends:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
            raise ServerFault(f"the server did not start; its log ends with:\n{tail}")
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and was our child is taken leave of."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def stop(pid: int, sign: signal.Signals) -> None:
    """Ask a server to stop and wait for its end; kill it and its children when it does not."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, sign)
    ends = time.monotonic() + STOP_SECONDS
    while is_alive(pid):
        if time.monotonic() > ends:
            kill(pid)
            return
        time.sleep(0.02)


def kill(pid: int) -> None:
    """SIGKILL to a server and all processes of its session, as a power cut would end them."""
    for member in [pid, *_session(pid)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(member, signal.SIGKILL)
    while is_alive(pid) or _session(pid):
        time.sleep(0.02)


def _session(pid: int) -> list[int]:
    """The processes that a server has started, zombies left out."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            state, parent = (place / "stat").read_text().rpartition(")")[2].split()[:2]
            if int(parent) == pid and state != "Z":
                found.append(int(place.name))
    return found
