"""The processes of a cluster, from PySpark's jars: started, recorded and ended, and what they have printed."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from headrace.errors import CheckpointError, PlatformError, nearest, reason
from headrace.generations.driver_lock import birth
from headrace.spark.jvm import cds
from headrace.spark.jvm.preconditions import require_java
from headrace.storage.durable import replacing
from headrace.storage.private import writing_to

HOME_VARIABLE = "HEADRACE_CLUSTER"
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
ZOOKEEPER = "org.apache.zookeeper.server.ZooKeeperServerMain"
# They hand out work and do none.
_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xshare:auto")
_STOP_SECONDS = 10.0
_INFORMATIVE = re.compile(r"Unrecognized |Could not find |(?:\w+\.)+\w*(?:Exception|Error)\b")


def default_home() -> Path:
    """Where the cluster of this user is: `HEADRACE_CLUSTER`, or a directory of the user's state."""
    if named := os.environ.get(HOME_VARIABLE):
        try:
            return Path(named).expanduser().absolute()
        except RuntimeError:
            problem = f"{HOME_VARIABLE} is '{named}', the home of a user whom this machine does not know"
            raise PlatformError(code="HR090", what=problem, fix="export the absolute path of a directory") from None
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "headrace" / "cluster"


@dataclass(frozen=True, kw_only=True)
class Daemon:
    """A process of the cluster: a master, a worker or a ZooKeeper.

    birth: differs for a later process of the same number. port: of its requests; web: of its pages.
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
        """Return the process of that name, if it lives."""
        return next((daemon for daemon in self.daemons if daemon.name == name and daemon.is_alive), None)

    def with_daemon(self, made: Daemon) -> Cluster:
        """Return the cluster with a process in place of a former one of its name."""
        return replace(self, daemons=(*(daemon for daemon in self.daemons if daemon.name != made.name), made))


def read(home: Path) -> Cluster | None:
    """Return the cluster of a directory; None if none was started, or it was stopped. Raises CheckpointError."""
    file = _file(home)
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        return _cluster(record)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        problem = f"the record of the cluster in {file} cannot be read: {reason(error)}"
        fix = "end its processes by hand, and remove the file"
        raise CheckpointError(code="HR820", what=problem, fix=fix) from error


def write(home: Path, cluster: Cluster) -> None:
    """Keep what is known; only the user can read it, for it holds the cluster's secret."""
    with writing_to(home):
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        home.chmod(0o700)
        with replacing(_file(home), private=True) as stream:
            json.dump(asdict(cluster), stream)


def forget(home: Path) -> None:
    """Delete the record of the cluster; its logs stay."""
    _file(home).unlink(missing_ok=True)


def _file(home: Path) -> Path:
    return home / "cluster.json"


def _cluster(record: Mapping[str, Any]) -> Cluster:
    daemons = tuple(Daemon(**daemon) for daemon in record["daemons"])
    masters = tuple((int(port), int(web)) for port, web in record["masters"])
    return Cluster(**{**record, "daemons": daemons, "masters": masters})


def zookeeper(home: Path, port: int) -> Daemon:
    data = _private(home / "zookeeper")
    settings = home / "zookeeper.cfg"
    settings.write_text(
        f"dataDir={data}\nclientPort={port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
        # Spark asks for a minute, for which a leader that has died would be waited for.
        "tickTime=1000\nmaxSessionTimeout=6000\n",
        encoding="utf-8",
    )
    return _start_daemon(home, "zookeeper", [ZOOKEEPER, str(settings)], port=port)


def master(home: Path, cluster: Cluster, number: int) -> Daemon:
    """Start one of the cluster's masters."""
    port, web = cluster.masters[number]
    place = ("--host", cluster.host, "--port", str(port), "--webui-port", str(web))
    properties = _properties(home, cluster)
    words = [MASTER, *place, "--properties-file", properties]
    return _start_daemon(home, f"master-{number + 1}", words, host=cluster.host, port=port, web=web)


def worker(home: Path, cluster: Cluster, number: int) -> Daemon:
    """Start one of the cluster's workers, whose executors work in a directory of their own."""
    name = f"worker-{number + 1}"
    work = _private(home / "work" / name)
    size = ("--cores", str(cluster.cores), "--memory", cluster.memory)
    host = _worker_host(cluster, number)
    place = ("--host", host, "--port", "0", "--webui-port", "0", "--work-dir", str(work))
    properties = _properties(home, cluster)
    return _start_daemon(home, name, [WORKER, *size, *place, "--properties-file", properties, cluster.url], host=host)


def end(daemons: Iterable[Daemon]) -> None:
    """Ask processes to end, and kill those that have not after some seconds."""
    living = [daemon for daemon in daemons if daemon.is_alive]
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in living:
            if process.is_alive:
                os.kill(process.pid, number)
        until = time.monotonic() + _STOP_SECONDS
        while any(process.is_alive for process in living) and time.monotonic() < until:
            time.sleep(0.05)


def free_port(host: str) -> int:
    """Find a port that is free now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def is_taken(host: str, port: int) -> bool:
    """Whether a process listens on a port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((host, port)) == 0


def log_file(home: Path, name: str) -> Path:
    """Return what a process of the cluster prints."""
    return home / "logs" / f"{name}.log"


def _worker_host(cluster: Cluster, number: int) -> str:
    """Return the address of a worker: one of its own where this machine has them, as Linux has all of 127.0.0.0/8.

    Spark takes workers of one address for one machine, and makes no second attempt of a slow task there.
    """
    return f"127.0.0.{number + 1}" if cluster.host == "127.0.0.1" and sys.platform == "linux" else cluster.host


def _scala(spark: Path) -> str:
    """Return the version of Scala that Spark's jars are made for, as their names have it: 2.13."""
    return next((jar.name.split("_")[1].split("-")[0] for jar in spark.glob("jars/spark-core_*.jar")), "2.13")


def _private(place: Path) -> Path:
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    return place


def _properties(home: Path, cluster: Cluster) -> str:
    """Return the settings of masters and workers, in a file, because everybody can read a command line."""
    settings = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": cluster.secret,
        "spark.worker.timeout": "20",
        "spark.worker.cleanup.enabled": "true",
    }
    if cluster.zookeeper is None:
        settings["spark.deploy.recoveryMode"] = "FILESYSTEM"
        settings["spark.deploy.recoveryDirectory"] = str(_private(home / "recovery"))
    else:
        settings["spark.deploy.recoveryMode"] = "ZOOKEEPER"
        settings["spark.deploy.zookeeper.url"] = f"127.0.0.1:{cluster.zookeeper}"
        settings["spark.deploy.zookeeper.dir"] = "/headrace"
    file = home / "spark.conf"
    file.touch(mode=0o600)
    file.chmod(0o600)
    file.write_text("".join(f"{key} {value}\n" for key, value in settings.items()), encoding="utf-8")
    return str(file)


def _start_daemon(
    home: Path, name: str, arguments: Sequence[str], *, host: str = "127.0.0.1", port: int = 0, web: int = 0
) -> Daemon:
    spark = Path(str(files("pyspark")))
    java = require_java()
    log = log_file(home, name)
    log.parent.mkdir(parents=True, exist_ok=True)
    modules = ["--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"]
    # Before they take work, half of what they compute is the loading of classes.
    archive, jars = cds.options(java), spark / "jars"
    classes = (cds.class_path(jars) if archive else None) or f"{jars}/*"
    command = [str(java.path), *_OPTIONS, *archive, *cds.QUIET, *modules, "-cp", classes, *arguments]
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))},
        "SPARK_HOME": str(spark),
        # A worker that starts an executor would look for it where Spark is built (AbstractCommandBuilder).
        "SPARK_SCALA_VERSION": _scala(spark),
        # What the pages listen on.
        "SPARK_LOCAL_IP": host,
        "SPARK_LOCAL_DIRS": str(_private(home / "scratch")),
        "PYSPARK_PYTHON": sys.executable,
    }
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            cwd=home,
            start_new_session=True,
        )
    born = birth(process.pid)
    if born is None:
        problem = f"the {name} of the cluster ended at once; what it printed is in {log}"
        raise PlatformError(code="HR821", what=problem, fix="correct what it says there")
    return Daemon(name=name, pid=process.pid, birth=born, port=port, web=web)


@dataclass(frozen=True, kw_only=True)
class DaemonLog:
    """The files of one process. name: as `logs` takes it, `worker-1` or `app-20260101000000-0000/0`."""

    name: str
    files: tuple[Path, ...]

    @property
    def bytes(self) -> int:
        return sum(file.stat().st_size for file in self.files)


def logs(home: Path) -> tuple[DaemonLog, ...]:
    """Return all of them: masters and workers, and then executors, those of the oldest application first."""
    own = [DaemonLog(name=file.stem, files=(file,)) for file in sorted(log_file(home, "x").parent.glob("*.log"))]
    return (*own, *_executors(home))


def find_log(home: Path, name: str) -> DaemonLog:
    """Return the log of that name; the number of an executor alone means that of the newest application.

    Raises PlatformError where there is none.
    """
    all_logs = logs(home)
    newest = [log for log in all_logs if log.name.rpartition("/")[2] == name and "/" in log.name]
    for log in (*all_logs, *newest[-1:]):
        if name in (log.name, log.name.rpartition("/")[2] if log in newest[-1:] else log.name):
            return log
    if not all_logs and read(home) is None:
        problem = f"no cluster was started in {home}, so that there is no log of '{name}'"
        raise PlatformError(code="HR822", what=problem, fix="start one: headrace cluster start")
    fix = nearest(name, [log.name for log in all_logs])
    raise PlatformError(code="HR091", what=f"the cluster in {home} has no log of '{name}'", fix=fix)


def executors_of(home: Path, application: str) -> tuple[DaemonLog, ...]:
    """Return the logs of the executors of one application, those that have ended too."""
    return tuple(executor for executor in _executors(home) if executor.name.startswith(f"{application}/"))


def last_message(log: DaemonLog) -> str:
    """Return why a process has ended: the last exception, or option unknown to Java, that it printed."""
    lines = [line.strip() for file in log.files for line in file.read_text(errors="replace").splitlines()]
    informative = [line for line in lines if _INFORMATIVE.search(line)]
    return next(iter([*informative[-1:], *filter(None, lines[-1:])]), "")


def _executors(home: Path) -> Iterator[DaemonLog]:
    def order(place: Path) -> tuple[str, int]:
        return place.parent.name, int(place.name) if place.name.isdigit() else 0

    for place in sorted(home.glob("work/*/app-*/*/"), key=order):
        files = tuple(file for file in (place / "stdout", place / "stderr") if file.exists())
        if files:
            yield DaemonLog(name=f"{place.parent.name}/{place.name}", files=files)
