"""What is known of the cluster that was started on this machine, in a directory that only its user can read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from headrace.errors import CheckpointError, Finding, reason
from headrace.queries.processes import birth
from headrace.storage.durable import replacing
from headrace.storage.private import writing_to

HOME_VARIABLE = "HEADRACE_CLUSTER"


def default_home() -> Path:
    """Where the cluster of this user is: `HEADRACE_CLUSTER`, or a directory of the user's state."""
    if named := os.environ.get(HOME_VARIABLE):
        return Path(named).expanduser().absolute()
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "headrace" / "cluster"


@dataclass(frozen=True, kw_only=True)
class Daemon:
    """A process of the cluster: a master, a worker or a ZooKeeper.

    birth: tells the process from a later one of the same number. port: where it takes what it is asked; web: its pages.
    """

    name: str
    pid: int
    birth: str
    port: int = 0
    web: int = 0

    @property
    def is_alive(self) -> bool:
        return birth(self.pid) == self.birth


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A cluster as it was asked for, and the processes that were started for it.

    masters: the ports of each, for their work and for their pages. cores, memory: of each worker.
    """

    host: str
    masters: tuple[tuple[int, int], ...]
    zookeeper: int | None
    workers: int
    cores: int
    memory: str
    secret: str = field(repr=False)
    daemons: tuple[Daemon, ...] = ()

    @property
    def url(self) -> str:
        """What a target names as its master."""
        return "spark://" + ",".join(f"{self.host}:{port}" for port, _ in self.masters)

    def daemon(self, name: str) -> Daemon | None:
        """The process of that name, if it lives."""
        return next((each for each in self.daemons if each.name == name and each.is_alive), None)

    def with_daemon(self, made: Daemon) -> Cluster:
        """The cluster with a process in place of a former one of its name."""
        return replace(self, daemons=(*(each for each in self.daemons if each.name != made.name), made))


def read(home: Path) -> Cluster | None:
    """The cluster of a directory; None if none was started, or it was stopped. Raises CheckpointError."""
    file = _file(home)
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
        return _cluster(told)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = f"the record of the cluster in {file} cannot be read: {reason(error)}"
        fix = "end its processes by hand, and remove the file"
        raise CheckpointError(Finding(code="HR820", what=what, fix=fix)) from error


def write(home: Path, cluster: Cluster) -> None:
    """Keep what is known; only the user can read it, for it holds the cluster's secret."""
    with writing_to(home):
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        home.chmod(0o700)
        with replacing(_file(home), private=True) as stream:
            json.dump(asdict(cluster), stream)


def forget(home: Path) -> None:
    """Let the cluster be none; its logs stay."""
    _file(home).unlink(missing_ok=True)


def _file(home: Path) -> Path:
    return home / "cluster.json"


def _cluster(told: Mapping[str, Any]) -> Cluster:
    daemons = tuple(Daemon(**each) for each in told["daemons"])
    masters = tuple((int(port), int(web)) for port, web in told["masters"])
    return Cluster(**{**told, "daemons": daemons, "masters": masters})
