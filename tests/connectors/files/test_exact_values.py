"""A csv or json value either arrives as it was written or its row is bad; nothing is rounded, cut or guessed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headrace.connectors.files.source import Files
from headrace.connectors.values.exact import Exact
from headrace.connectors.values.rows import INEXACT, MISFIT
from headrace.connectors.values.rules import PLACE
from headrace.testing.conformance import NAME, drain, prefix_of
from tests.connectors.files.test_bad_files import Project
from tests.connectors.files.test_source import land
from tests.rounds import only_usual, rounds

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.capability("SRC-FILE-09")]

COLUMNS = {
    "id": "INT", "dec": "DECIMAL(10,2)", "whole": "DECIMAL(38,38)", "at": "TIMESTAMP", "local": "TIMESTAMP_NTZ",
    "day": "DATE", "list": "ARRAY<DECIMAL(5,1)>", "part": "STRUCT<d: DATE, n: INT>", "map": "MAP<STRING, TIMESTAMP>",
}  # fmt: skip
BAD = object()


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=timezone.utc)  # type: ignore[arg-type,misc]


# Column, text (in JSON), value; texts that are strings in JSON are tried in csv too.
CASES: list[tuple[str, str, Any]] = [
    ("dec", "1.23", Decimal("1.23")), ("dec", "1.2300", Decimal("1.23")), ("dec", "-7", Decimal("-7.00")),
    ("dec", "12.3e1", Decimal("123.00")), ("dec", "1230e-3", Decimal("1.23")), ("dec", '"1.23"', Decimal("1.23")),
    ("dec", "1.239", BAD), ("dec", "1.5e-3", BAD), ("dec", "123456789", BAD), ("dec", '"1,5"', BAD),
    ("dec", '"1.239"', BAD), ("dec", "true", BAD), ("dec", '"x"', BAD),
    ("whole", "1e-38", Decimal("1e-38")), ("whole", "1e-39", BAD), ("whole", "0e-99", Decimal("0e-38")),
    ("at", '"2024-01-01T01:02:03.123456Z"', utc(2024, 1, 1, 1, 2, 3, 123456)),
    ("at", '"2024-01-01 01:02:03.123456000+02:00"', utc(2023, 12, 31, 23, 2, 3, 123456)),
    ("at", '"2024-01-01"', utc(2024, 1, 1)), ("at", "1704067200", utc(2024, 1, 1)), ("at", "0", utc(1970, 1, 1)),
    ("at", '"2024-01-01T01:02:03.123456789Z"', BAD), ("at", '"2024-1-1 1:2:3.1234567"', BAD), ("at", '"T10:00"', BAD),
    ("at", '"10:00:00"', BAD), ("at", "1704067200123", BAD), ("at", "86400", BAD), ("at", '"2024-13-01"', BAD),
    ("local", '"2024-01-01 01:02:03.5"', datetime(2024, 1, 1, 1, 2, 3, 500000)),
    ("local", '"2024-01-01T01:02:03Z"', BAD), ("local", '"2024-01-01T01:02:03.1234567"', BAD),
    ("day", '"2024-02-29"', date(2024, 2, 29)), ("day", '"2024-02-29T00:00:00Z"', date(2024, 2, 29)),
    ("day", '"2024-01-01T10:00:00"', BAD), ("day", '"2024-01-01 junk"', BAD), ("day", '"20240101"', BAD),
    ("day", '"19000"', BAD), ("day", '"2024-02-30"', BAD),
    ("list", "[1.5, null]", [Decimal("1.5"), None]), ("list", "[1.5, 1.25]", BAD), ("list", "[]", []),
    ("part", '{"d": "2024-01-01"}', (date(2024, 1, 1), None)), ("part", '{"d": "2024-01-01x", "n": 1}', BAD),
    ("map", '{"a": "2024-01-01"}', {"a": utc(2024, 1, 1)}), ("map", '{"a": "2024-01-01T00:00:00.0000001"}', BAD),
]  # fmt: skip
NESTED = ("list", "part", "map")


def read(spark: SparkSession, home: Path, format_: Any, schema: str) -> tuple[dict[int, Any], list[str]]:
    """The values by id that a stream took and `read` gives again, and the records that were quarantined."""
    source = Files(path=str(home / "input"), format=format_, schema=schema, on_bad_row="quarantine")
    frame = source.stream(spark, NAME)
    streamed = drain(frame, home / "checkpoint")[0][0]
    prefix = prefix_of(home / "checkpoint")
    again = source.read(spark, prefix)
    assert again.schema == frame.schema
    assert sorted(repr(tuple(row)) for row in again.collect()) == sorted(map(repr, streamed))
    bad = source.rejected_rows(spark, prefix)
    assert bad is not None
    return {row[0]: row for row in streamed}, [row.record for row in bad.collect()]


@pytest.mark.parametrize("format_", rounds(["json", "csv"]))
def test_a_value_is_taken_as_it_was_written_or_its_row_is_set_aside(
    spark: SparkSession, tmp_path: Path, format_: str
) -> None:
    names = list(COLUMNS if format_ == "json" else [name for name in COLUMNS if name not in NESTED])
    cases = [
        case
        for case in CASES
        if format_ == "json" or (case[0] in names and case[1].startswith('"') and "," not in case[1])
    ]
    lines = []
    for number, (column, text, _) in enumerate(cases):
        line = {"id": str(number), column: text}
        if format_ == "json":
            lines.append("{" + ", ".join(f'"{name}": {value}' for name, value in line.items()) + "}\n")
        else:
            lines.append(",".join(line.get(name, "").strip('"') for name in names) + "\n")
    land(tmp_path / "input", f"a.{format_}", "".join(lines))
    schema = ", ".join(f"{name} {COLUMNS[name]}" for name in names)
    taken, aside = read(spark, tmp_path, format_, schema)
    for number, (column, text, wanted) in enumerate(cases):
        if wanted is BAD:
            assert number not in taken, (column, text, taken.get(number))
            continue
        value = taken[number][names.index(column)]
        if isinstance(value, datetime) and column == "at":
            value = value.astimezone(timezone.utc)
        if column == "map":
            value = {key: time.astimezone(timezone.utc) for key, time in value.items()}
        assert value == wanted, (column, text, value)
    assert len(aside) == len(cases) - len(taken)
    written = [line.rstrip("\n") for line, case in zip(lines, cases, strict=True) if case[2] is BAD]
    assert format_ == "csv" or sorted(aside) == sorted(written)


FORMS = [
    "2024-01-01", "2024-1-1", "2024-01-01T10:20:30", "2024-01-01 10:20:30.123", "2024-01-01T10:20:30.123456Z",
    "2024-01-01T10:20:30.1234567", "2024-01-01T10:20:30.12345600+05:30", "2024-1-1 1:2:3.1234567", "2024", "1704067200",
    "2024-01-01T10:20:30.12-05:00", "2024-01-01T10:20:30Europe/Berlin", "123.45", "-1.5e-3", "12", "0.000", ".5",
    "5.", "1E2", "2024-01-01T10:20:30Z", "2024-01-01T10:20:30.123Z", "2024-01-01T10:20:30.+01Z", "2024-01-01T10:20Z",
]  # fmt: skip


def texts(number: int) -> Iterator[str]:
    """Forms of times and numbers with a character or two replaced, put in or left out."""
    chance = random.Random(5)
    for form in chance.choices(FORMS, k=number):
        text = form
        for _ in range(chance.randrange(3)):
            place = chance.randrange(len(text) + 1)
            text = text[:place] + chance.choice(["", *"019-+:.TZ eE,١"]) + text[place + chance.randrange(2) :]
        yield text


KINDS = ["TIMESTAMP", "TIMESTAMP_NTZ", "DATE", "DECIMAL(10,2)", "DECIMAL(5,0)"]
JUDGED = [("json", KINDS, "UTC"), ("csv", KINDS, "UTC"), ("json", ["TIMESTAMP"], "Asia/Kolkata")]


@pytest.fixture
def in_zone(spark: SparkSession, zone: str) -> Iterator[None]:
    spark.conf.set("spark.sql.session.timeZone", zone)
    yield
    spark.conf.set("spark.sql.session.timeZone", "UTC")


# Local times around changes of the clock: by an hour, by half an hour, at midnight, and where there is none.
AROUND = {
    "Europe/Berlin": [
        *("2024-03-31 01:59:59", "2024-03-31 02:00:00", "2024-03-31T02:30", "2024-03-31 03:00:00"),
        *("2024-10-27 02:30:00", "2024-03-31 02:30:00+00:00", "2024-03-31 02:30:00.123456+01:00"),
    ],
    "Australia/Lord_Howe": ["2024-10-06 01:59:59", "2024-10-06 02:00:00", "2024-10-06 02:29:59", "2024-10-06 02:30"],
    "America/Sao_Paulo": ["2018-11-03", "2018-11-04", "2018-11-04 00:59:59.999999", "2018-11-04 01:00:00"],
    "+05:30": ["2024-03-31 02:30:00"],
}


def is_skipped(text: str, zone: str) -> bool:
    """Whether Python's own clock of a zone never shows a local time."""
    local = datetime.fromisoformat(text)
    if local.tzinfo is not None or zone.startswith("+"):
        return False
    there = ZoneInfo(zone)
    return local.replace(tzinfo=there).astimezone(timezone.utc).astimezone(there).replace(tzinfo=None) != local


@pytest.mark.usefixtures("in_zone")
@pytest.mark.parametrize("format_", rounds(["json", "csv"]))
@pytest.mark.parametrize("zone", only_usual(AROUND, "Europe/Berlin", "America/Sao_Paulo"))
def test_a_local_time_that_the_clock_skips_is_bad(spark: SparkSession, tmp_path: Path, zone: str, format_: str) -> None:
    texts = dict(enumerate(AROUND[zone]))
    form = '{{"id": {}, "at": "{}"}}\n' if format_ == "json" else "{},{}\n"
    land(tmp_path / "input", f"a.{format_}", "".join(form.format(*line) for line in texts.items()))
    taken, aside = read(spark, tmp_path, format_, "id INT, at TIMESTAMP")
    skipped = {number for number, text in texts.items() if is_skipped(text, zone)}
    assert len(aside) == len(skipped)
    assert taken.keys() == texts.keys() - skipped


@pytest.mark.usefixtures("in_zone")
@pytest.mark.parametrize("zone", ["Europe/Berlin"])
def test_a_skipped_time_is_named_with_the_zone(spark: SparkSession, tmp_path: Path) -> None:
    project = Project(tmp_path / "p", spark, "json", schema="name TIMESTAMP, amount INT")
    project.land(0, b'{"name": "2024-03-31T02:30:00", "amount": 1}\n')
    finding, _ = project.run()
    assert finding is not None
    assert finding.code == "HR361"
    assert "'2024-03-31T02:30:00' in column 'name' is not exactly a TIMESTAMP in Europe/Berlin" in finding.what


@pytest.mark.usefixtures("in_zone")
# Each in `make test-long` with many more texts.
@pytest.mark.parametrize("number", rounds([4_000, 20_000]))
@pytest.mark.parametrize(
    ("format_", "kinds", "zone"), only_usual(JUDGED, JUDGED[0], JUDGED[2]), ids=["json", "csv", "json in another zone"]
)
def test_what_has_a_usual_form_is_judged_as_by_the_patterns(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, format_: str, kinds: list[str], zone: str, number: int
) -> None:
    exact, text = Exact(Files(path="/in", format=format_).rules, zone), F.col("text")
    types = [StructType.fromDDL(f"v {kind}")["v"].dataType for kind in kinds]
    judged = [(exact.is_bad(text, type_), exact.value(text, type_), exact._usual(text, type_)) for type_ in types]
    checked = [exact.check("text", text, type_) for type_ in types]
    monkeypatch.setattr(Exact, "_usual", lambda *_: F.lit(None))
    rows = spark.createDataFrame([(text,) for text in texts(number)], "text STRING").withColumn(PLACE, F.lit("file"))
    shown = rows.select("*", *[_judgements(*judged[at], exact.is_bad(text, types[at]), at) for at in range(len(types))])
    answers = shown.select(*[_faults(checked[at], at) for at in range(len(types))]).first()
    assert answers is not None
    for at, kind in enumerate(kinds):
        assert (kind, answers[at].wrong, answers[at].differs) == (kind, None, None)
        assert min(answers[at].bad, answers[at].usual) > number / 200, kind
        with pytest.raises(Exception, match=f"{MISFIT}|{INEXACT}"):
            shown.where(f"kind{at}.bad").limit(1).select(checked[at]).collect()


def _judgements(judged: Column, value: Column, usual: Column, bad: Column, at: int) -> Column:
    names = {"judged": judged, "value": value, "usual": usual, "bad": bad}
    return F.struct(*[column.alias(name) for name, column in names.items()]).alias(f"kind{at}")


def _faults(checked: Column | None, at: int) -> Column:
    """A text whose usual form is judged otherwise, and one that is read otherwise; how many are bad and usual."""
    assert checked is not None
    text, kind = F.col("text"), F.col(f"kind{at}")
    bad, usual, value = kind["bad"], kind["usual"], kind["value"]
    wrong = (kind["judged"] != bad) | (usual.isNotNull() & (bad | ~usual.eqNullSafe(value)))
    # Only a CASE makes sure that the one is looked at before the other.
    differs = F.when(~bad, ~checked.eqNullSafe(value)).otherwise(F.lit(False))
    return F.struct(
        F.max(F.when(wrong, text)).alias("wrong"),
        F.max(F.when(differs, text)).alias("differs"),
        F.count_if(bad).alias("bad"),
        F.count(usual).alias("usual"),
    )


def test_rounding_is_there_for_those_who_ask_for_it(spark: SparkSession, tmp_path: Path) -> None:
    land(tmp_path / "input", "a.json", '{"v": 1.239, "t": "2024-01-01T00:00:00.123456789Z"}\n')
    source = Files(path=str(tmp_path / "input"), format="json", schema="v DECIMAL(10,2), t TIMESTAMP", inexact="round")
    rows = drain(source.stream(spark, NAME), tmp_path / "checkpoint")[0][0]
    assert rows[0][0] == Decimal("1.24")


@pytest.mark.parametrize("more", rounds(["1,2,3", "1", ",,"]))
def test_a_csv_row_of_another_length_is_bad_whatever_columns_are_read(
    spark: SparkSession, tmp_path: Path, more: str
) -> None:
    land(tmp_path / "input", "a.csv", f"5,6\n{more}\n")
    source = Files(path=str(tmp_path / "input"), format="csv", schema="a INT, b INT")
    with pytest.raises(Exception, match="MALFORMED"):
        drain(source.stream(spark, NAME).select("a"), tmp_path / "checkpoint")


def test_a_value_that_would_be_changed_stops_the_query_by_column_value_and_file(
    spark: SparkSession, tmp_path: Path
) -> None:
    project = Project(tmp_path / "p", spark, "json", schema="name STRING, amount DECIMAL(5,2)")
    for number, (value, code, words) in enumerate(
        [
            ("1.239", "HR361", "'1.239' in column 'amount' is not exactly a DECIMAL(5,2)"),
            ('"many"', "HR302", "'many' in column 'amount' is not of type DECIMAL(5,2)"),
        ]
    ):
        bad = project.land(number, f'{{"name": "a", "amount": {value}}}\n'.encode())
        finding, _ = project.run()
        assert finding is not None
        assert (finding.code, bad.name in finding.what, words in finding.what) == (code, True, True), finding
        bad.write_bytes(json.dumps({"name": "a", "amount": 1.5}).encode())
    assert project.run()[0] is None
    assert project.verdict_state() == "equal"


# The format, the type, the lines, the options, and the texts of the rows that are taken; the others are bad.
RULES: dict[str, tuple[str, str, list[str], dict[str, str], dict[int, Any]]] = {
    "doubled quotes": (
        "csv",
        "STRING",
        ['1,"plain, text"', '2,"a""b"', '3,"say ""hi"""', '7,""""', '4,""', '5,"say \\"hi\\""', '6,5" pipe'],
        {},
        {1: "plain, text", 4: None, 5: 'say "hi"', 6: '5" pipe'},
    ),
    "doubled quotes by RFC 4180": (
        "csv",
        "STRING",
        ['1,"plain, text"', '2,"a""b"', '3,"say ""hi"""', '4,""""'],
        {"escape": '"'},
        {1: "plain, text", 2: 'a"b', 3: 'say "hi"', 4: '"'},
    ),
    "too large in csv": ("csv", "DOUBLE", ["1,1e308", "2,1e309", "3,-1e400", "4,Infinity"], {}, {1: 1e308}),
    "Infinity in csv": (
        "csv",
        "DOUBLE",
        ["1,1e308", "2,Infinity"],
        {"positiveInf": "Infinity"},
        {1: 1e308, 2: float("inf")},
    ),
    "too large in json": ("json", "DOUBLE", ['{"id": 1, "v": 1.5}', '{"id": 2, "v": 1e309}'], {}, {1: 1.5}),
    "too large in a list": (
        "json",
        "ARRAY<DOUBLE>",
        ['{"id": 1, "v": [1.5, null]}', '{"id": 2, "v": [1, 1e309]}'],
        {},
        {1: [1.5, None]},
    ),
}


@pytest.mark.parametrize(
    ("format_", "kind", "lines", "options", "taken"),
    only_usual(RULES.values(), *(RULES[name] for name in ("doubled quotes", "Infinity in csv", "too large in a list"))),
    ids=RULES,
)
def test_what_spark_reads_by_rules_of_its_own_is_a_bad_row_unless_an_option_says_how_it_is_meant(
    spark: SparkSession,
    tmp_path: Path,
    format_: Any,
    kind: str,
    lines: list[str],
    options: dict[str, str],
    taken: dict[int, Any],
) -> None:
    land(tmp_path / "input", f"a.{format_}", "\n".join(lines) + "\n")
    source = Files(
        path=str(tmp_path / "input"),
        format=format_,
        schema=f"id INT, v {kind}",
        on_bad_row="quarantine",
        options=options,
    )
    rows = drain(source.stream(spark, NAME), tmp_path / "checkpoint")[0][0]
    assert {row[0]: row[1] for row in rows} == taken
    bad = source.rejected_rows(spark, prefix_of(tmp_path / "checkpoint"))
    assert bad is not None
    assert bad.count() == len(lines) - len(taken)


@pytest.mark.parametrize(("format_", "text"), [("csv", "1,\n2,a\n"), ("json", '{"id": 1}\n{"id": 2, "v": "a"}\n')])
def test_a_row_without_a_text_is_never_left_out(spark: SparkSession, tmp_path: Path, format_: Any, text: str) -> None:
    land(tmp_path / "input", f"a.{format_}", text)
    source = Files(path=str(tmp_path / "input"), format=format_, schema="id INT, v STRING", on_bad_row="quarantine")
    rows = drain(source.stream(spark, NAME), tmp_path / "checkpoint")[0][0]
    assert sorted(tuple(row) for row in rows) == [(1, None), (2, "a")]


def test_such_a_row_stops_a_query_with_a_fix_that_helps(spark: SparkSession, tmp_path: Path) -> None:
    project = Project(tmp_path / "p", spark, "csv", schema="name STRING, amount DOUBLE")
    for number, (line, words) in enumerate([('"a""b",1', "doubled quotes"), ("a,1e999", "would be Infinity")]):
        bad = project.land(number, f"{line}\n".encode())
        finding, _ = project.run()
        assert finding is not None
        assert (finding.code, bad.name in finding.what, words in finding.what) == ("HR361", True, True), finding
        assert "options: {" in finding.fix
        bad.write_text("a,1\n")
    assert project.run()[0] is None
    assert project.verdict_state() == "equal"
