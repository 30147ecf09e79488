"""The soak on a cluster of two workers: PostgreSQL, storage on HDFS, and kills of everything, for some minutes.

One driver runs on and on, started again by `submit --supervise`. In each round files land and one thing dies or
hangs: an executor, a worker, the master, the driver, the NameNode, the DataNode, both, or PostgreSQL; or the network
between the driver and its executors is half-open or cut. A file's rows are never seen in part, and soon after each
round both tables hold exactly the files that have landed. At the end `verify` finds both equal.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from headrace.api import load, verify
from headrace.cluster import control
from headrace.spark.jvm.gateway import descendants, kill_all
from services import HdfsServer, PostgresServer, Server
from services.process import new_home
from tests.connectors.sql.databases import Database
from tests.crash.driver_link import DriverLink, worker_of
from tests.crash.scenes import ClusterScene
from tests.crash.soak import PIPELINE, SINKS, Soak, _without_spark
from tests.waiting import until

# A machine that has other work to do starts a driver within minutes.
PATIENCE = 600.0
QUERIES = ("action_counts", "every_event")
YAML = """
name: soak
storage: {storage}
spark:
  spark.hadoop.dfs.namenode.http-address: "{web}"
  # A single DataNode has no other to take its place in a write.
  spark.hadoop.dfs.client.block.write.replace-datanode-on-failure.policy: NEVER
targets:
  dev: {{}}
  cluster:
    master: ${{MASTER}}
    spark:
      spark.cores.max: "2"
      spark.executor.cores: "1"
      spark.executor.memory: 512m
      spark.task.maxFailures: "4"
      spark.network.timeout: 20s
      # How often it is looked who was not heard of for so long.
      spark.network.timeoutInterval: 2s
      spark.executor.heartbeatInterval: 2s
      spark.speculation: "true"
      spark.speculation.quantile: "0.5"
      spark.speculation.multiplier: "2"
{link}
"""


class ClusterSoak(Soak):
    """The project of the soak, run by one driver that is always there."""

    def __init__(
        self,
        scene: ClusterScene,
        hdfs: HdfsServer,
        postgres: PostgresServer,
        link: DriverLink,
        seed: int,
        only: str = "",
    ) -> None:
        self.scene, self.hdfs, self.link, self.only = scene, hdfs, link, only
        self.counts_by_file: dict[int, Counter[tuple[str, str]]] = {}
        self.driver: subprocess.Popen[bytes] | None = None
        super().__init__(scene.root, Database("postgres", postgres.create_database("soak")), postgres, seed)
        self.chance = random.Random(seed)

    def __post_init__(self) -> None:
        (self.root / "landing").mkdir(parents=True)
        settings = "\n".join(f'      {key}: "{value}"' for key, value in self.link.settings.items())
        (self.root / "headrace.yml").write_text(
            YAML.format(storage=f"{self.hdfs.url()}/soak", web=self.hdfs.web_address, link=settings)
        )
        pipeline = PIPELINE.replace("{sink}", SINKS["postgres"]).replace("hr.available_now", 'hr.every("1 second")')
        (self.root / "pipeline.py").write_text(pipeline)
        for name, value in {"SOAK_DATABASE_URL": self.database.place, "SOAK_FILES": "2"}.items():
            os.environ[name] = self.scene.environment[name] = value

    # ------------------------------------------------------------------------------------------------- faults

    def round(self) -> str:
        """Let files land while one thing goes wrong, and wait until the result is exact."""
        faults: list[Callable[[], str]] = [
            *(self.executor_dies, self.executor_hangs, self.worker_dies_of_the_cluster, self.master_dies),
            *(self.driver_is_killed, self.name_node_dies, self.data_node_dies, self.hdfs_dies, self.postgres_dies),
            *(self.network_is_half_open, self.network_is_cut),
        ]
        faults = [fault for fault in faults if self.only in fault.__name__]
        # Each at least once, in an order of its own in each turn.
        at = self.seen.total() % len(faults)
        if at == 0:
            self.order = self.chance.sample(faults, len(faults))
        self.land_some()
        self.sleep(0.0, 4.0)
        begun = time.monotonic()
        fault = self.order[at]()
        self.land_some()
        self.caught_up()
        self.seen[self.order[at].__name__] += 1
        return f"{fault}; exact {time.monotonic() - begun:.0f} s later, {self.files} files"

    def land_some(self) -> None:
        for _ in range(self.chance.randrange(1, 4)):
            self.land()

    def sleep(self, least: float, most: float) -> None:
        time.sleep(self.chance.uniform(least, most))

    def executor_dies(self) -> str:
        until("executor", lambda: bool(self.scene.executors()))
        self.kill(self.chance.choice(self.scene.executors()))
        return "an executor killed"

    def executor_hangs(self) -> str:
        """As by a network that is cut: the driver gives it up, and then it is there again."""
        until("executor", lambda: bool(self.scene.executors()))
        pid, seconds = self.chance.choice(self.scene.executors()), self.chance.choice([3.0, 35.0])
        # Its workers of Python with it, or not: those then write what is no longer needed.
        family = [pid, *(descendants(pid) if self.chance.random() < 0.5 else ())]
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for member in family:
                with suppress(ProcessLookupError):
                    os.kill(member, number)
            if number == signal.SIGSTOP:
                time.sleep(seconds)
        return f"an executor hung for {seconds:.0f} s"

    def worker_dies_of_the_cluster(self) -> str:
        name = self.chance.choice(["worker-1", "worker-2"])
        self.scene.kill_daemon(name)
        self.sleep(0.0, 5.0)
        self.scene.start_cluster()
        return f"{name} killed"

    def master_dies(self) -> str:
        self.scene.kill_daemon("master-1")
        self.land_some()
        self.sleep(0.0, 8.0)
        self.scene.start_cluster()
        return "the master killed"

    def driver_is_killed(self) -> str:
        assert self.driver is not None
        drivers = [pid for pid in descendants(self.driver.pid) if _is_driver(pid)]
        for pid in drivers:
            kill_all(pid)
        return f"the driver killed ({len(drivers)})"

    def name_node_dies(self) -> str:
        Server.kill(self.hdfs)
        self.sleep(0.0, 6.0)
        Server.start(self.hdfs)
        return "the NameNode killed"

    def data_node_dies(self) -> str:
        self.hdfs.node.kill()
        self.sleep(0.0, 6.0)
        self.hdfs.node.start()
        return "the DataNode killed"

    def hdfs_dies(self) -> str:
        self.hdfs.kill()
        self.sleep(0.0, 6.0)
        self.hdfs.start()
        return "NameNode and DataNode killed"

    def postgres_dies(self) -> str:
        assert self.server is not None
        self.server.kill()
        self.sleep(0.0, 4.0)
        self.server.start()
        return "PostgreSQL killed"

    def network_is_half_open(self) -> str:
        """The driver and an executor, or all, do not hear each other; what they have said comes in later."""
        executor, seconds = self.one_or_all(), self.chance.choice([3.0, 35.0])
        # With the whole machine cut off, the master has no process there that would kill the executor.
        workers = [self.scene.daemon(name).pid for name in ("worker-1", "worker-2")]
        stopped = worker_of(executor, workers) if executor is not None and self.chance.random() < 0.5 else None
        before, links = self.link.held_bytes, self.link.hold(executor)
        try:
            if stopped is not None:
                os.kill(stopped, signal.SIGSTOP)
            self.land_some()
            time.sleep(seconds)
        finally:
            self.link.let_go()
            if stopped is not None:
                os.kill(stopped, signal.SIGCONT)
        whose = "everybody's" if executor is None else "an executor's"
        return (
            f"{whose} {links} connections{' and its worker' if stopped else ''} half-open for {seconds:.0f} s, "
            f"{self.link.held_bytes - before} bytes came later"
        )

    def network_is_cut(self) -> str:
        executor = self.one_or_all()
        return f"{'everybody' if executor is None else 'an executor'}'s {self.link.cut(executor)} connections cut"

    def one_or_all(self) -> int | None:
        """One of the executors, or None for all."""
        until("executor", lambda: bool(self.scene.executors()))
        return self.chance.choice([*self.scene.executors(), None])

    def kill(self, pid: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    # ------------------------------------------------------------------------------------------------- checks

    def submit(self) -> None:
        self.driver = self.scene.start("submit", "--supervise", "--target", "cluster")

    def caught_up(self) -> None:
        """Wait until all that has landed is in both tables; meanwhile no file is seen in part."""

        def is_in() -> bool:
            assert self.driver is not None
            assert self.driver.poll() is None, f"the driver has ended: {self.scene.tail()}"
            self.require_whole_files()
            return self.is_exact()

        until(f"exact result after {PATIENCE:.0f} s", is_in, seconds=PATIENCE, pause=0.5)

    def require_whole_files(self) -> None:
        sizes = self.stored_files()
        part = {file: size for file, size in sizes.items() if size != self.counts_of(file).total()}
        assert not part, f"files are in the result in part: {part}"

    def counts_of(self, file: int) -> Counter[tuple[str, str]]:
        """What one file adds to the counts."""
        if file not in self.counts_by_file:
            self.counts_by_file[file] = Counter((action, time[:13]) for _, time, action in self.events(file))
        return self.counts_by_file[file]

    def stored_files(self) -> dict[int, int]:
        if not self.batches("every_event"):
            return {}
        return {int(file): int(rows) for file, rows in self.database.query(_FILES)}

    def is_exact(self) -> bool:
        counts: Counter[tuple[str, str]] = Counter()
        for file in range(self.files):
            counts += self.counts_of(file)
        return len(self.stored_files()) == self.files and self.stored_counts()[1] == counts

    def finish(self) -> None:
        """Let the driver end, and prove the result."""
        assert self.driver is not None
        self.caught_up()
        assert self.scene.end(self.driver) == 0, self.scene.tail()
        assert self.database.left_over() == []
        log = self.scene.log.read_text(errors="replace")
        assert "Traceback (most recent call last)" not in _without_spark(log), "a trace is in the driver's log"
        for query in QUERIES:
            verdict = verify(load(self.root), query)
            assert verdict.exit_code == 0, verdict


_FILES = "SELECT id / 100000, count(*) FROM every_event GROUP BY 1"


def _is_driver(pid: int) -> bool:
    with suppress(OSError):
        return b"\0run\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


@contextmanager
def soaking(place: Path, seed: int, only: str = "") -> Iterator[ClusterSoak]:
    """Servers, a cluster, and a driver over them; all of it is gone at the end."""
    with ExitStack() as stack:
        servers: list[Server] = [HdfsServer(new_home("hdfs")), PostgresServer(new_home("postgres"))]
        for server in servers:
            stack.callback(server.remove)
            server.create()
        link = stack.enter_context(DriverLink())
        scene = ClusterScene(home=place / "cluster", root=place / "project", log=place / "driver.log")
        stack.callback(scene.stop_cluster)
        scene.start_cluster("--workers", "2", "--cores", "1", "--memory", "1g")
        hdfs, postgres = servers
        assert isinstance(hdfs, HdfsServer)
        assert isinstance(postgres, PostgresServer)
        soak = ClusterSoak(scene, hdfs, postgres, link, seed, only)
        soak.land()
        soak.submit()
        yield soak


def run(minutes: float, seed: int, only: str = "") -> None:
    """Rounds for so many minutes; stops at the first wrong result, and keeps the project then.

    only: a part of the names of the faults that are to happen, such as `network`.
    """
    place = Path(tempfile.mkdtemp(prefix="headrace-soak-"))
    with soaking(place, seed, only) as soak:
        until_time, number = time.monotonic() + 60 * minutes, 0
        soak.caught_up()
        while time.monotonic() < until_time:
            number += 1
            try:
                print(f"{time.strftime('%H:%M:%S')} {number}: {soak.round()}", flush=True)
            except BaseException:
                print(f"cluster {number}: failed; the project is kept in {place}", flush=True)
                _report(soak)
                raise
        soak.finish()
        print(f"cluster: {number} rounds, {soak.files} files, {dict(soak.seen)}: exact", flush=True)


def _report(soak: ClusterSoak) -> None:
    with suppress(Exception):
        print(f"{len(soak.stored_files())} of {soak.files} files are in", control.status(soak.scene.home), flush=True)
    print(soak.scene.tail(), flush=True)
