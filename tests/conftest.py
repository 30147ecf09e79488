"""Fixtures that every tier shares: one Spark session, and a place for each test's files."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from subprocess import TimeoutExpired
from typing import TYPE_CHECKING

import pytest

from services import connectors

pytest_plugins = ("tests.capability_plugin", "tests.servers")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent
CONNECTORS = ("kafka", "avro", "delta", "s3")
# Each with what its tests take on average, by which files are put into order.
SECONDS = {"plain": 0.05, "spark": 2.0, "services": 4.0, "crash": 25.0, "browser": 10.0}
TIERS = tuple(SECONDS)
# What whole files took in the last run (`make durations`): of the others the tier and the number of tests say it.
DURATIONS = json.loads((ROOT / "tests" / "durations.json").read_text())
# Files of tier `spark` whose tests take half a second, as many as two minutes have room for.
QUICK = (
    *("tests/checks/", "tests/loader/", "tests/connectors/sql/test_sqlite.py", "tests/guide/test_unsupported.py"),
    "tests/verifier/test_comparison.py",
)
# Plain files that take longest: a simulation, a type checker and the documentation's site, each with a target of make
# or a module of its own.
LENGTHY = ("tests/protocol/", "tests/declare/test_types.py", "tests/docs/test_site.py")
# The JVMs of tests live too short for what the second compiler gains. Alone, the first has a fifth of the usual room,
# and would clear it again and again. Their heaps are small: a collector with threads of its own costs a tenth more.
os.environ.setdefault(
    "SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -XX:-UsePerfData"
)

# A finding that the catalogue does not have fails the test, in the processes that it starts too.
os.environ["HEADRACE_STRICT_FINDINGS"] = "yes"

# A file that is to outlive a power cut costs milliseconds on a disk, and a batch makes dozens: tests write into memory
# where there is some, as there is under Linux.
MEMORY = Path("/dev/shm")
if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 4 << 30 and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
# For a query of a few rows, Spark takes longer to write and compile a program than the rows take without one. Drivers
# that tests start compile theirs, as those of users do.
WITHOUT_CODE_GENERATION = (
    *("--conf", "spark.sql.codegen.wholeStage=false", "--conf", "spark.sql.codegen.factoryMode=NO_CODEGEN"),
    # By default `stop` waits for ever: a test that has taken too long would hang in its `finally`.
    *("--conf", "spark.sql.streaming.stopTimeout=120s"),
    *("--conf", "spark.python.daemon.module=tests.worker_daemon"),
    "pyspark-shell",
)
# A shell without job control starts what runs in its background with Ctrl-C ignored, and all its children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

STOP_SECONDS = 60.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--quick` and `--long`, by which `make test-fast` and `make test-long` choose their tests."""
    parser.addoption("--quick", action="store_true", help="run the plain tests and the quick ones with Spark")
    parser.addoption("--long", action="store_true", help="run also the tests marked `long`: more rounds of a proof")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse a test without a tier, put the tests into their order, and leave out what was not asked for."""
    for item in items:
        if not any(item.get_closest_marker(tier) for tier in TIERS):
            raise pytest.UsageError(f"{item.nodeid} has no tier; mark it with one of {', '.join(TIERS)}")
    items.sort(key=lambda item: TIERS.index(tier_of(item)))
    items.sort(key=order_of_files(items, DURATIONS["test-long" if config.getoption("--long") else "test"]))
    left_out = [item for item in items if not is_asked_for(item, config)]
    if left_out:
        items[:] = [item for item in items if is_asked_for(item, config)]
        config.hook.pytest_deselected(items=left_out)


def is_asked_for(item: pytest.Item, config: pytest.Config) -> bool:
    if config.getoption("--quick") and not is_quick(item):
        return False
    is_named = any("::" in argument and item.nodeid.startswith(argument) for argument in config.args)
    return is_named or bool(config.getoption("--long")) or item.get_closest_marker("long") is None


def tier_of(item: pytest.Item) -> str:
    return next(tier for tier in TIERS if item.get_closest_marker(tier))


def is_quick(item: pytest.Item) -> bool:
    if tier_of(item) == "plain":
        return not item.nodeid.startswith(LENGTHY)
    return tier_of(item) == "spark" and item.nodeid.startswith(QUICK)


def order_of_files(
    items: list[pytest.Item], durations: dict[str, float]
) -> Callable[[pytest.Item], tuple[int, float, Path]]:
    """Plain files first, then those that need Spark alone, then the others; of each kind the longest first.

    Processes that share the tests take a file each: a long one at the end would leave the others idle.
    """
    last: dict[Path, int] = {}
    seconds: dict[Path, float] = {}
    for item in items:
        tier = tier_of(item)
        last[item.path] = max(last.get(item.path, 0), min(TIERS.index(tier), TIERS.index("services")))
        seconds[item.path] = seconds.get(item.path, 0.0) + SECONDS[tier]
    seconds |= {ROOT / name: taken for name, taken in durations.items()}
    return lambda item: (last[item.path], -seconds[item.path], item.path)


@pytest.fixture(autouse=True)
def fresh_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret of one test is a word of another."""
    from headrace import redaction

    monkeypatch.setattr(redaction, "KNOWN", redaction.Redactor())


class Sessions:
    """One local session for each tier, with the settings that Headrace runs with; that of `services` has connectors.

    It is looked at before each test: one whose JVM has died or whose scratch files are gone is created again.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.current: SparkSession | None = None
        self.connectors: tuple[str, ...] = ()
        self.scratch: list[Path] = []

    def with_connectors(self, names: tuple[str, ...]) -> SparkSession:
        """A session that has these connectors, of which a JVM learns only at its start."""
        from headrace.testing.spark_session import local_session

        if self.current is None or not set(names) <= set(self.connectors) or not self.is_sound():
            self.stop()
            # Workers import the tests' own functions from the JVM's working directory, which a test may have left.
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(ROOT)
                patch.setenv("PYSPARK_SUBMIT_ARGS", " ".join(WITHOUT_CODE_GENERATION))
                # All of its heap from the start: it is collected a third as often. With room for the classes it is not
                # collected as a whole four times while they are loaded.
                options = f"{os.environ['SPARK_SUBMIT_OPTS']} -Xms1g -XX:MetaspaceSize=256m"
                patch.setenv("SPARK_SUBMIT_OPTS", options)
                self.current = local_session(self.home, connectors=names)
            self.connectors = names
            local = self.current.sparkContext.getConf().get("spark.local.dir") or ""
            self.scratch = [
                self.home,
                *(path for folder in local.split(",") for path in Path(folder).glob("blockmgr-*")),
            ]
            assert len(self.scratch) > 1, "Spark has no directory of its own"
        return self.current

    def is_sound(self) -> bool:
        """Whether the JVM answers, its context runs, and its scratch directories are there."""
        from py4j.protocol import Py4JError

        try:
            stopped = self.current is None or self.current.sparkContext._jsc.sc().isStopped()
        except (Py4JError, OSError, AttributeError):
            return False
        return not stopped and all(place.is_dir() for place in self.scratch)

    def stop(self) -> None:
        from py4j.protocol import Py4JError
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        from headrace.spark.jvm import gateway as gateway_module

        if self.current is None:
            return
        # A JVM that hangs is not waited for.
        stopping = threading.Thread(target=_stop, args=(self.current,), daemon=True)
        stopping.start()
        stopping.join(STOP_SECONDS)
        if stopping.is_alive():
            gateway_module.kill()
        self.current = SparkSession._instantiatedSession = SparkSession._activeSession = None
        SparkContext._active_spark_context = None
        gateway = SparkContext._gateway
        if gateway is not None:
            with suppress(Py4JError, OSError):
                gateway.shutdown()
            with suppress(OSError):
                gateway.proc.stdin.close()
            try:
                gateway.proc.wait(30)
            except TimeoutExpired:
                gateway.proc.kill()
                gateway.proc.wait()
            SparkContext._gateway = SparkContext._jvm = None


def _stop(session: SparkSession) -> None:
    from py4j.protocol import Py4JError

    with suppress(Py4JError, OSError, AttributeError):
        session.stop()


@pytest.fixture(scope="session")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sessions]:
    os.environ.setdefault("PYARROW_IGNORE_TIMEZONE", "1")
    connectors.use()
    sessions = Sessions(tmp_path_factory.mktemp("spark"))
    yield sessions
    sessions.stop()


@pytest.fixture
def spark(sessions: Sessions, request: pytest.FixtureRequest) -> SparkSession:
    """The session of the test's tier."""
    from headrace.errors import PlatformError
    from tests.servers import unavailable

    if request.node.get_closest_marker("services"):
        try:
            return sessions.with_connectors(CONNECTORS)
        except PlatformError as error:
            if request.node.get_closest_marker("connectors") or os.environ.get("CI") == "true":
                unavailable(str(error.findings[0]))
    return sessions.with_connectors(())


# By default Spark begins checkpoints in the first format. In `make test`, test_power_cut has the second one.
@pytest.fixture(params=["1", pytest.param("2", marks=pytest.mark.long)], ids=["format-1", "format-2"])
def checkpoint_format(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    """The format in which Spark begins checkpoints in the test."""
    from headrace.spark.jvm.session_conf import apply_settings
    from headrace.spark.jvm.settings import CHECKPOINT_FORMAT

    with apply_settings(spark, {CHECKPOINT_FORMAT: request.param}):
        yield request.param
