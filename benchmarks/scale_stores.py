"""A tiny stateful batch with its storage on each kind of store: its time, its files, and what it asks the store."""

from __future__ import annotations

import json
import os
import re
import statistics
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

from benchmarks.figures import Figure, Side
from benchmarks.processes import HEADRACE, lines_until
from headrace.spark.jvm.settings import FILE_MANAGERS, LOCAL_FILE_MANAGER
from services import HdfsServer, S3Server
from services import connectors as stand_ins
from services.process import new_home

FIRST, LAST = 4, 13
FEW_FIRST, FEW_LAST = 2, 4
# Of versitygw's own: the file for a line for each request.
LOG_VARIABLE = "VGW_ACCESS_LOG"

PROJECT = """name: tiny
sources:
  numbers:
    rate_micro_batch: {{rows_per_batch: 1000}}
queries:
  counts:
    select: SELECT value % 100 AS key, count(*) AS count FROM numbers GROUP BY value % 100
    mode: update
    sink: {{sqlite: {{path: result.db, table: counts, key: [key]}}}}
targets:
  dev:
    master: "local[2]"
    storage: {storage}
    spark: {settings}
"""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a store has seen since it was started: files that were written, and what it was asked, by kind."""

    files: Counter[str]
    asked: Counter[str]

    def since(self, earlier: Seen) -> Seen:
        return Seen(files=self.files - earlier.files, asked=self.asked - earlier.asked)


@dataclass(frozen=True, kw_only=True)
class Run:
    """The median batch of a run in milliseconds, and what the store saw in so many batches of it."""

    median: float
    seen: Seen
    batches: int

    @property
    def files(self) -> float:
        """Files a batch."""
        return sum(self.seen.files.values()) / self.batches

    @property
    def requests(self) -> float:
        """Requests a batch."""
        return sum(self.seen.asked.values()) / self.batches

    def describe(self, counted: Counter[str]) -> str:
        """How many of each kind a batch, the most first; what comes less than once in ten batches is left out."""
        counts = [(name, round(count / self.batches, 1)) for name, count in counted.most_common()]
        return "a batch: " + ", ".join(f"{count:g} {name}" for name, count in counts if count >= 0.1)


class Store(ABC):
    """A kind of store that is up.

    settings: what Spark needs to reach it. manager: with which of its file managers; None: with one of Headrace's.
    """

    settings: Mapping[str, str]
    manager: str | None

    @abstractmethod
    def place(self, name: str) -> str:
        """A directory of its own for a storage."""

    @abstractmethod
    def look(self, place: str) -> Seen: ...


class Local(Store):
    """A directory of this machine: its files are counted, no one is asked."""

    settings: Mapping[str, str] = {}
    manager = LOCAL_FILE_MANAGER

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch

    def place(self, name: str) -> str:
        return str(self.scratch / name)

    def look(self, place: str) -> Seen:
        files = (file.relative_to(place) for file in Path(place).rglob("*") if file.is_file())
        return Seen(files=Counter(_kind(str(file)) for file in files if "queries" in file.parts), asked=Counter())


class Hdfs(Store):
    """An HDFS: the NameNode counts the calls that it answers, and its audit log names the files."""

    manager = FILE_MANAGERS["hdfs"]

    # What DataNodes ask by themselves.
    OWN = (
        "SendHeartbeat",
        "SendLifeline",
        "BlockReport",
        "BlockReceivedAndDeleted",
        "RegisterDatanode",
        "VersionRequest",
    )
    AUDIT = "log4j.logger.org.apache.hadoop.hdfs.server.namenode.FSNamesystem.audit=INFO\n"

    def __init__(self, server: HdfsServer) -> None:
        self.server = server
        self.settings = {"spark.hadoop.dfs.namenode.http-address": server.web_address}

    def place(self, name: str) -> str:
        return f"{self.server.url()}/{name}"

    def look(self, place: str) -> Seen:
        bean = f"RpcDetailedActivityForPort{self.server.port}"
        with urlopen(f"http://{self.server.web_address}/jmx?qry=Hadoop:service=NameNode,name={bean}") as answer:
            (facts,) = json.loads(answer.read())["beans"]
        calls = {key.removesuffix("NumOps"): int(value) for key, value in facts.items() if key.endswith("NumOps")}
        # Each call is counted over all users as well, and those from other machines once more together.
        asked = Counter(
            {
                name: count
                for name, count in calls.items()
                if count and name not in self.OWN and not name.startswith(("Overall", "("))
            }
        )
        files: Counter[str] = Counter()
        for line in self.server.log.splitlines():
            fields = dict(re.findall(r"(\w+)=(\S+)", line))
            if fields.get("proto") == "webhdfs":
                asked["WebHDFS " + fields["cmd"]] += 1
            if fields.get("cmd") in ("create", "append") and fields["src"].startswith(
                place.removeprefix(self.server.url())
            ):
                files[_kind(fields["src"])] += 1
        return Seen(files=files, asked=asked)


class Bucket(Store):
    """A bucket of S3: the server's log names each request and its object."""

    manager = None
    NAME = "storage"
    LOG = "access.log"
    _REQUEST = re.compile(r" s3_(?P<asked>\w+) .* (?P<path>/\S*) (?P<status>\d{3}) ")

    def __init__(self, server: S3Server) -> None:
        self.log = server.home / self.LOG
        key, secret = server.credentials
        common = {"endpoint": server.url(), "path.style.access": "true", "endpoint.region": "us-east-1"}
        every = {**common, "access.key": key, "secret.key": secret}
        self.settings = {f"spark.hadoop.fs.s3a.bucket.{self.NAME}.{name}": value for name, value in every.items()}

    def place(self, name: str) -> str:
        return f"s3a://{self.NAME}/{name}"

    def look(self, place: str) -> Seen:
        asked: Counter[str] = Counter()
        files: Counter[str] = Counter()
        for line in self.log.read_text(errors="replace").splitlines():
            if (request := self._REQUEST.search(line)) is None:
                continue
            asked[request["asked"]] += 1
            path = request["path"].partition("?")[0]
            if request["asked"] == "PutObject" and request["status"] == "200" and f"s3a:/{path}".startswith(place):
                files[_kind(path)] += 1
        return Seen(files=files, asked=asked)


@contextmanager
def local(scratch: Path) -> Iterator[Store]:
    yield Local(scratch)


@contextmanager
def hdfs(scratch: Path) -> Iterator[Store]:
    if sentence := HdfsServer.missing():
        raise RuntimeError(sentence)
    server = HdfsServer(new_home("hdfs"))
    try:
        server.install()
        with (server.home / "conf" / "log4j.properties").open("a") as settings:
            settings.write(Hdfs.AUDIT)
        server.start()
        yield Hdfs(server)
    finally:
        server.remove()


@contextmanager
def s3(scratch: Path) -> Iterator[Store]:
    if sentence := S3Server.missing():
        raise RuntimeError(sentence)
    stand_ins.install()
    server = S3Server(new_home("s3"))
    os.environ[LOG_VARIABLE] = str(server.home / Bucket.LOG)
    try:
        server.install()
        server.create_bucket(Bucket.NAME)
        server.start()
        yield Bucket(server)
    finally:
        del os.environ[LOG_VARIABLE]
        server.remove()


# The first one is what the others are measured against.
STORES = {"local disk": local, "HDFS": hdfs, "S3": s3}


@contextmanager
def open_stores(scratch: Path) -> Iterator[dict[str, Store]]:
    """All stores, up."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(store(scratch)) for name, store in STORES.items()}


def measure(stores: Mapping[str, Store], scratch: Path, *, runs: int, quick: bool) -> list[Figure]:
    first, last = (FEW_FIRST, FEW_LAST) if quick else (FIRST, LAST)
    runs_of: dict[str, list[Run]] = {name: [] for name in stores}
    for turn in range(runs):
        for number, (name, store) in enumerate(stores.items()):
            runs_of[name].append(_run(store, scratch, f"run-{turn}-{number}", first, last))
    plain, *others = runs_of
    return [figure for name in others for figure in _figures(name, runs_of[name], plain, runs_of[plain])]


def _run(store: Store, scratch: Path, name: str, first: int, last: int) -> Run:
    home, place = scratch / f"{name}-project", store.place(name)
    home.mkdir()
    text = PROJECT.format(storage=place, settings=json.dumps(dict(store.settings)))
    (home / "headrace.yml").write_text(text, encoding="utf-8")
    seen: dict[int, Seen] = {}

    def is_last(line: str) -> bool:
        event = json.loads(line)
        if event["event"] == "batch" and event["batch"] in (first, last):
            seen[event["batch"]] = store.look(place)
        return bool(event["event"] == "batch" and event["batch"] >= last)

    events = map(json.loads, lines_until([*HEADRACE, "run", "--json"], is_last, cwd=home))
    batches = {event["batch"]: event["duration_ms"] for event in events if event["event"] == "batch"}
    median = statistics.median(batches[batch] for batch in range(first, last + 1))
    return Run(median=median, seen=seen[last].since(seen[first]), batches=last - first)


def _figures(name: str, ours: list[Run], plain: str, theirs: list[Run]) -> Iterator[Figure]:
    yield Figure(
        name=f"a tiny batch with its storage on {name}",
        ours=Side.of([run.median for run in ours]),
        theirs=Side.of([run.median for run in theirs]),
        against=plain,
        unit="ms",
        note=f"triggerExecution, the median batch of each run; {name} on loopback, on the same cores",
    )
    yield Figure(
        name=f"files that a tiny batch writes on {name}",
        ours=Side.of([run.files for run in ours]),
        theirs=Side.of([run.files for run in theirs]),
        against=f"files that it leaves on the {plain}, Hadoop's checksums among them",
        unit="files",
        note=ours[-1].describe(ours[-1].seen.files),
    )
    yield Figure(
        name=f"requests of a tiny batch to {name}",
        ours=Side.of([run.requests for run in ours]),
        theirs=Side.of([run.files for run in ours]),
        against="the files that it writes there",
        unit="requests",
        note=ours[-1].describe(ours[-1].seen.asked),
    )


def _kind(path: str) -> str:
    """A file's path below the checkpoint or the query, with numbers and random names left out."""
    tail = re.sub(r"^.*?/queries/[^/]*/|^queries/[^/]*/", "", path).removeprefix("g1/").removeprefix("checkpoint/")
    tail = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{8,}", "ID", tail)
    return re.sub(r"\d+", "N", tail)
