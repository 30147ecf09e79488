"""What is refused of an adoption without a start of Spark, and what the table's ledger then holds."""

from __future__ import annotations

import json
import shutil
import sqlite3
import zipfile
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.changes.adopt_sources import match_sources
from headrace.checkpoint import Checkpoint
from headrace.cli.entry import main
from headrace.connectors.sql.snapshot import DatabaseLedger
from headrace.connectors.sql.sqlite.dialect import SqliteDialect
from headrace.connectors.sql.takeover import TableAdoption
from headrace.contract import Sink, SinkContext, SinkFacts
from headrace.errors import CheckFailed, HeadraceError
from headrace.generations import log
from headrace.generations.changes import AdoptionRecord
from headrace.generations.inspect_checkpoint import inspect_checkpoint
from headrace.model import Project
from tests.registered import layout_in
from tests.runner.projects import rows, write_project

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.plain
FIXTURES = Path(__file__).parent.parent / "checkpoint" / "fixtures"
BODY = """
others = hr.source.files("others", format="json", schema="name STRING, amount INT")
same = hr.source.files("landing", format="json", schema="name STRING, amount INT")
orders = hr.source.kafka("localhost:9092", subscribe="orders")
logs = hr.source.kafka("localhost:9092", subscribe_pattern="log-.*")

@hr.query(sink=hr.sink.sqlite("out.db", table="totals", key=["name"]), mode="update")
def totals(events):
    return events.groupBy("name").agg(F.sum("amount").alias("total"))

@hr.query(sink=hr.sink.sqlite("out.db", table="pair", key=["name"]), mode="update")
def pair(events, others):
    return events.union(others)

@hr.query(sink=hr.sink.sqlite("out.db", table="twins", key=["name"]), mode="update")
def twins(events, same):
    return events.union(same)

@hr.query(sink=hr.sink.sqlite("out.db", table="mixed", key=["name"]), mode="update")
def mixed(events, orders, logs):
    return events.union(orders).union(logs)

@hr.query(sink=hr.sink.console())
def shown(events):
    return events
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "p" / "others").mkdir(parents=True)
    return hr.load(write_project(tmp_path / "p", BODY))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The checkpoint of a job whose batch 2 is the last one."""
    with zipfile.ZipFile(FIXTURES / "rocksdb_few.zip") as archive:
        archive.extractall(tmp_path / "old")
    return tmp_path / "old"


# ------------------------------------------------------------------------------------------------------------- refused


def remove_commit(project: Project, old: Path) -> None:
    (old / "commits" / "2").unlink()


def has_run(project: Project, old: Path) -> None:
    shutil.copytree(old, layout_in(project.storage, "totals").checkpoint)


def has_lost_its_offsets(project: Project, old: Path) -> None:
    has_run(project, old)
    shutil.rmtree(layout_in(project.storage, "totals").checkpoint / "offsets")


def cut_off(project: Project, old: Path) -> None:
    record(project, Checkpoint(old))


def cut_off_of_another(project: Project, old: Path) -> None:
    cut_off(project, old)
    (old / "metadata").write_text('{"id":"another"}')
    (old / ".metadata.crc").unlink(missing_ok=True)


def continued_since(project: Project, old: Path) -> None:
    cut_off(project, old)
    remove_commit(project, old)


def damaged_record(project: Project, old: Path) -> None:
    (layout_in(project.storage, "totals").folder / "log" / "000002.json").write_text("{")


def empty(project: Project, old: Path) -> None:
    shutil.rmtree(old)
    old.mkdir()


def record(project: Project, old: Checkpoint) -> None:
    folder = layout_in(project.storage, "totals").folder
    facts = {**asdict(AdoptionRecord.begin(old, 2, {"events": "events"})), "former": "g1.1"}
    log.append(folder, "totals", replace(log.begin(folder), kind="intent", change="adopt", of=0, facts=facts))


def test_a_sink_that_begins_no_ledger_takes_nothing_over() -> None:
    class Own(Sink):
        facts = SinkFacts(modes=frozenset({"append"}), transactional=True, idempotent=True)

        def open(self, frame: Any, context: SinkContext) -> Any:
            raise AssertionError("nothing is written")

    adoption = Own().adoption.possible("append")
    assert (adoption.possible, adoption.why) == (False, "a ledger cannot be begun for rows that another program wrote")


@pytest.mark.parametrize(
    ("change", "query", "code", "words"),
    [
        (None, "unknown", "HR091", "unknown"),
        (None, "shown", "HR596", "it keeps nothing"),
        (empty, "totals", "HR590", "it is not a checkpoint"),
        (remove_commit, "totals", "HR591", "--planned written"),
        (has_run, "totals", "HR580", "has run already"),
        (has_lost_its_offsets, "totals", "HR580", "has run already"),
        (cut_off_of_another, "totals", "HR580", "the adoption of another checkpoint"),
        (continued_since, "totals", "HR580", "the former job has made batches since"),
        (damaged_record, "totals", "HR584", "cannot be read"),
    ],
)
def test_what_cannot_be_adopted_is_refused_before_spark_is_started(
    project: Project,
    old: Path,
    change: Callable[[Project, Path], None] | None,
    query: str,
    code: str,
    words: str,
) -> None:
    if change is not None:
        change(project, old)
    with pytest.raises(HeadraceError, match=code) as caught:
        assert hr.adopt(project, query, old).plan
    assert words in str(caught.value)


def test_the_checkpoint_of_a_query_of_the_project_is_none_to_adopt(project: Project, old: Path) -> None:
    own = layout_in(project.storage, "pair").checkpoint
    shutil.copytree(old, own)
    with pytest.raises(HeadraceError, match="it lies in the storage of this project"):
        assert hr.adopt(project, "totals", own).plan


def test_a_query_whose_adoption_was_cut_off_does_not_start(project: Project, old: Path) -> None:
    cut_off(project, old)
    (finding,) = inspect_checkpoint(project, project.queries["totals"]).findings
    assert (finding.code, "headrace change resume totals" in finding.fix) == ("HR581", True)
    # What a reset takes back is more than nothing, though no batch was made.
    assert hr.reset(project, "totals", result="keep").apply().generation == 2
    assert list(inspect_checkpoint(project, project.queries["totals"]).findings) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--yes", "--source", "events"], "NAME=POSITION"),
        ([], "--yes or --dry-run"),
    ],
)
def test_the_command_says_what_it_lacks(
    project: Project, old: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    command = ["adopt", "totals", "--checkpoint", str(old), "-C", str(project.root), *arguments]
    assert main(command) == 2
    assert words in capsys.readouterr().err


# ------------------------------------------------------------------------------------------------------------- sources


def checkpoint(root: Path, offsets: Mapping[str, Any], logs: Mapping[str, list[Path]], version: int = 1) -> Checkpoint:
    """One batch, with the offset of each source, and the files of those that read some."""
    for name, files in logs.items():
        (root / "sources" / name).mkdir(parents=True)
        lines = [json.dumps({"path": file.as_uri(), "timestamp": 1, "batchId": 0}) for file in files]
        (root / "sources" / name / "0").write_text("\n".join(["v1", *lines]))
    (root / "offsets").mkdir(exist_ok=True, parents=True)
    lines = [
        f"{'' if version == 1 else f'{name}:'}{'-' if offset is None else json.dumps(offset)}"
        for name, offset in offsets.items()
    ]
    (root / "offsets" / "0").write_text("\n".join([f"v{version}", "{}", *lines]))
    return Checkpoint(root)


@dataclass(frozen=True, kw_only=True)
class Case:
    """What a checkpoint has read of which source, and which source of a query is which."""

    query: str
    uses: tuple[str, ...]
    offsets: Mapping[str, Any]
    files: Mapping[str, list[str]]
    chosen: Mapping[str, str] | None = None
    version: int = 1
    expected: Mapping[str, tuple[str, ...]] | None = None
    code: str = ""
    sentence: str = ""


FILES = {"logOffset": 0}
CASES = {
    "one source": Case(
        query="totals", uses=("events",), offsets={"0": FILES}, files={"0": ["landing/a"]}, expected={"0": ("events",)}
    ),
    "one source of the checkpoint that is read in two places": Case(
        query="totals",
        uses=("events", "events__2"),
        offsets={"0": FILES},
        files={"0": ["landing/a"]},
        expected={"0": ("events", "events__2")},
    ),
    "two places of one source, in the plan's order": Case(
        query="totals",
        uses=("events", "events__2"),
        offsets={"0": FILES, "1": FILES},
        files={"0": ["landing/a"], "1": ["landing/a"]},
        expected={"0": ("events",), "1": ("events__2",)},
    ),
    "two directories, in another order": Case(
        query="pair",
        uses=("events", "others"),
        offsets={"0": FILES, "1": FILES},
        files={"0": ["others/a"], "1": ["landing/a"]},
        expected={"0": ("others",), "1": ("events",)},
    ),
    "one directory that has given nothing yet": Case(
        query="pair",
        uses=("events", "others"),
        offsets={"0": None, "1": FILES},
        files={"1": ["landing/a"]},
        expected={"0": ("others",), "1": ("events",)},
    ),
    "topics and files": Case(
        query="mixed",
        uses=("events", "orders", "logs"),
        offsets={"0": {"log-a": {"0": 5}, "log-b": {"0": 1}}, "1": {"orders": {"0": 3, "1": 4}}, "2": FILES},
        files={"2": ["landing/a"]},
        expected={"0": ("logs",), "1": ("orders",), "2": ("events",)},
    ),
    "names that are the same": Case(
        query="twins",
        uses=("events", "same"),
        offsets={"same": FILES, "events": FILES},
        files={"same": ["landing/a"], "events": ["landing/b"]},
        version=2,
        expected={"same": ("same",), "events": ("events",)},
    ),
    "a name that is another": Case(
        query="totals",
        uses=("events",),
        offsets={"clicks": FILES},
        files={"clicks": ["landing/a"]},
        version=2,
        expected={"clicks": ("events",)},
    ),
    "the user says which is which": Case(
        query="twins",
        uses=("events", "same"),
        offsets={"0": FILES, "1": FILES},
        files={"0": ["landing/a"], "1": ["landing/b"]},
        chosen={"events": "1"},
        expected={"0": ("same",), "1": ("events",)},
    ),
    "two that may be either": Case(
        query="twins",
        uses=("events", "same"),
        offsets={"0": FILES, "1": FILES},
        files={"0": ["landing/a"], "1": ["landing/b"]},
        code="HR592",
        sentence="source 0 (1 file) may be events or same; source 1 (1 file) may be events or same",
    ),
    "another directory": Case(
        query="totals",
        uses=("events",),
        offsets={"0": FILES},
        files={"0": ["elsewhere/a"]},
        code="HR592",
        sentence="elsewhere/a', which does not lie in",
    ),
    "another topic": Case(
        query="mixed",
        uses=("events", "orders", "logs"),
        offsets={"0": {"log-a": {"0": 5}}, "1": {"clicks": {"0": 3}}, "2": FILES},
        files={"2": ["landing/a"]},
        code="HR592",
        sentence="it read partition 0 of topic 'clicks', which the source does not name",
    ),
    "another kind": Case(
        query="totals",
        uses=("events",),
        offsets={"0": {"orders": {"0": 3}}},
        files={},
        code="HR592",
        sentence="its offsets are not those of a directory of files",
    ),
    "more than the query reads": Case(
        query="totals",
        uses=("events",),
        offsets={"0": FILES, "1": FILES},
        files={"0": ["landing/a"], "1": ["others/a"]},
        code="HR592",
        sentence="the checkpoint has 2 sources (0, 1), and the query reads 1 source (events)",
    ),
    "a source that is not read": Case(
        query="totals",
        uses=("events",),
        offsets={"0": FILES},
        files={"0": ["landing/a"]},
        chosen={"others": "0"},
        code="HR592",
        sentence="reads no source 'others'",
    ),
    "a position that is not there": Case(
        query="totals",
        uses=("events",),
        offsets={"0": FILES},
        files={"0": ["landing/a"]},
        chosen={"events": "1"},
        code="HR592",
        sentence="the checkpoint has no source '1'",
    ),
    "a choice that does not fit": Case(
        query="pair",
        uses=("events", "others"),
        offsets={"0": FILES, "1": FILES},
        files={"0": ["others/a"], "1": ["landing/a"]},
        chosen={"events": "0"},
        code="HR592",
        sentence="which does not lie in",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_sources_are_matched_by_what_they_read(project: Project, tmp_path: Path, case: Case) -> None:
    files = {name: [project.root / path for path in paths] for name, paths in case.files.items()}
    former = checkpoint(tmp_path / "c", case.offsets, files, case.version)
    query = project.queries[case.query]
    if case.expected is not None:
        assert match_sources(project, query, case.uses, former, case.chosen or {}) == case.expected
        return
    with pytest.raises(CheckFailed, match=case.code) as caught:
        match_sources(project, query, case.uses, former, case.chosen or {})
    assert case.sentence in str(caught.value)


# --------------------------------------------------------------------------------------------------------- the table


def context(old: Path) -> SinkContext:
    return SinkContext(query="totals", generation=1, mode="update", checkpoint=old, application="app", project="p")


def adopting(dialect: SqliteDialect, schema: Any, key: tuple[str, ...]) -> tuple[Any, TableAdoption]:
    """A result of this schema, and how the table 'totals' is adopted as it."""
    adoption = TableAdoption(dialect=lambda: dialect, table="totals", key=key, system="out.db", takes_over=True)
    return SimpleNamespace(schema=schema), adoption


def fill_database(file: Path, *statements: str) -> SqliteDialect:
    with closing(sqlite3.connect(file)) as database, database:
        for statement in statements:
            database.execute(statement)
    return SqliteDialect(str(file))


def test_a_table_of_another_program_gets_a_ledger(tmp_path: Path, old: Path) -> None:
    from pyspark.sql.types import LongType, StringType, StructType

    schema = StructType().add("name", StringType()).add("total", LongType())
    dialect = fill_database(
        tmp_path / "out.db",
        "CREATE TABLE Totals (name TEXT PRIMARY KEY, total BIGINT)",
        "INSERT INTO Totals VALUES ('a', 1), ('b', 2)",
    )
    life = context(old)
    frame, adoption = adopting(dialect, schema, ("name",))
    (held,) = adoption.foreign_rows(frame, life)
    assert (held.count, held.what) == (2, "rows of table 'Totals' in out.db")
    assert rows(tmp_path / "out.db", "SELECT name FROM sqlite_master WHERE name LIKE '\\_%' ESCAPE '\\'") == []
    for _ in range(2):
        adoption.take_over(frame, life, 2)
    assert rows(tmp_path / "out.db", "SELECT table_name, query, generation FROM _headrace_tables") == [
        ("Totals", "totals", 1)
    ]
    entered = "SELECT batch, checkpoint, digest IS NOT NULL, planned IS NOT NULL FROM _headrace_ledger"
    assert rows(tmp_path / "out.db", entered) == [(2, Checkpoint(old).id, 1, 1)]
    assert DatabaseLedger(dialect=lambda: dialect, table="Totals").last_batch(life) == 2
    with pytest.raises(HeadraceError, match="HR580"):
        adoption.take_over(frame, life, 1)
    with pytest.raises(HeadraceError, match="HR580"):
        adoption.foreign_rows(frame, life)


@pytest.mark.parametrize(
    ("statements", "code", "words"),
    [
        ((), "HR596", "there is no table 'totals'"),
        (("CREATE TABLE totals (name TEXT, total BIGINT)",), "HR406", "no primary key or unique index on (name)"),
        (("CREATE TABLE totals (name TEXT PRIMARY KEY)",), "HR406", "it has no column 'total'"),
        (
            (
                "CREATE TABLE totals (name TEXT PRIMARY KEY, total BIGINT)",
                "INSERT INTO totals VALUES ('a', 'many')",
            ),
            "HR596",
            "as 'many': 1 of its rows",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_refused(
    tmp_path: Path, old: Path, statements: tuple[str, ...], code: str, words: str
) -> None:
    from pyspark.sql.types import LongType, StringType, StructType

    schema = StructType().add("name", StringType()).add("total", LongType())
    dialect = fill_database(tmp_path / "out.db", *statements)
    frame, adoption = adopting(dialect, schema, ("name",))
    with pytest.raises(HeadraceError, match=code) as caught:
        adoption.take_over(frame, context(old), 2)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("type_name", "good", "bad"),
    [
        ("timestamp", "2026-01-01T08:00:00.000000Z", "2026-01-01 08:00:00"),
        ("timestamp_ntz", "2026-01-01T08:00:00.000000", "2026-01-01T08:00:00.000000Z"),
        ("date", "2026-01-01", "01.01.2026"),
        ("boolean", 1, "true"),
        ("bigint", 7, 7.5),
        ("double", 7.5, "7,5"),
        ("decimal(10,2)", 7.5, "7.50 EUR"),
        ("decimal(30,2)", "7.50", 7.5),
        ("binary", b"x", "x"),
        ("string", "x", b"x"),
    ],
)
def test_values_in_another_form_are_reported(
    tmp_path: Path, old: Path, type_name: str, good: object, bad: object
) -> None:
    from pyspark.sql import types as T

    kinds: dict[str, T.DataType] = {
        "timestamp": T.TimestampType(),
        "timestamp_ntz": T.TimestampNTZType(),
        "date": T.DateType(),
        "boolean": T.BooleanType(),
        "bigint": T.LongType(),
        "double": T.DoubleType(),
        "decimal(10,2)": T.DecimalType(10, 2),
        "decimal(30,2)": T.DecimalType(30, 2),
        "binary": T.BinaryType(),
        "string": T.StringType(),
    }
    schema = T.StructType().add("value", kinds[type_name])
    dialect = fill_database(tmp_path / "out.db", "CREATE TABLE totals (value BLOB)")
    frame, adoption = adopting(dialect, schema, ())
    # A column declared BLOB keeps what it is given.
    for value in (None, good, bad):
        with closing(sqlite3.connect(tmp_path / "out.db")) as database, database:
            database.execute("INSERT INTO totals VALUES (?)", (value,))
        if value is not bad:
            assert adoption.foreign_rows(frame, context(old))
    with pytest.raises(HeadraceError, match="HR596"):
        adoption.foreign_rows(frame, context(old))
