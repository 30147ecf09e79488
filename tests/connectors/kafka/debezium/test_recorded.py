"""What Debezium 3.6.1 wrote for one load, decoded without servers; the table's rows are those that its client read."""

from __future__ import annotations

import base64
import datetime
import gzip
import json
import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.checks.structure import check_structure
from headrace.connectors.kafka.source import Kafka
from headrace.verifier.verdict import findings_of
from tests.connectors.kafka.debezium.feeds import COLUMNS, MARIADB_WAYS, POSTGRES_WAYS, SCHEMA, TEXTS
from tests.connectors.kafka.debezium.frames import Message, changes, comparable, fold, in_order, judge, kafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDED = Path(__file__).parent / "recorded"
WAYS = [("postgres", way) for way in POSTGRES_WAYS] + [("mariadb", way) for way in MARIADB_WAYS]


def recorded_messages(engine: str, way: str) -> list[Message]:
    lines = gzip.decompress((RECORDED / f"{engine}-{way}.jsonl.gz").read_bytes()).splitlines()
    pairs = [json.loads(line) for line in lines]
    return [(key and key.encode(), value and value.encode()) for key, value in pairs]


def rows(engine: str) -> list[tuple[Any, ...]]:
    names = {"datetime": datetime, "Decimal": Decimal, "nan": float("nan"), "inf": float("inf"), "zoneinfo": ZONES}
    texts = json.loads((RECORDED / f"{engine}-rows.json").read_text())
    return [tuple(comparable(eval(text, names)) for text in row) for row in texts]


class ZONES:
    @staticmethod
    def ZoneInfo(key: str) -> datetime.tzinfo:  # noqa: N802 - as psycopg writes it
        return datetime.timezone.utc


@pytest.mark.capability("CDC-DBZ-01")
@pytest.mark.spark
@pytest.mark.parametrize(("engine", "way"), WAYS, ids=["-".join(pair) for pair in WAYS])
def test_the_changes_of_each_way_of_writing_make_the_table(spark: SparkSession, engine: str, way: str) -> None:
    settings = (POSTGRES_WAYS if engine == "postgres" else MARIADB_WAYS)[way][1]
    frame = changes(judge(spark, recorded_messages(engine, way), settings=settings))
    expected = rows(engine)
    if way == "connect-double":
        # The connector has cut them to milliseconds.
        at = list(COLUMNS).index("local")
        expected = [
            (*row[:at], row[at] and row[at].replace(microsecond=row[at].microsecond // 1000 * 1000), *row[at + 1 :])
            for row in expected
        ]
    assert in_order(fold(frame)) == expected
    counts = [row["__change"]["operation"] for row in frame]
    assert {name: counts.count(name) for name in sorted(set(counts))} == {"delete": 3, "none": 3, "upsert": 11}
    sequences = [row["__change"]["sequence"] for row in frame if row["__change"]["operation"] != "none"]
    assert sequences == sorted(sequences)
    unsent = [row["id"] for row in frame if row["__change"]["unavailable"]]
    assert unsent == ([1, 1, 3] if engine == "postgres" else [])
    assert all(row["__change"]["source_time"] for row in frame if row["__change"]["operation"] != "none")


@pytest.mark.spark
def test_a_delete_holds_its_key_alone_where_the_database_sent_no_more(spark: SparkSession) -> None:
    deleted = [
        row
        for row in changes(judge(spark, recorded_messages("postgres", "envelope")))
        if row["__change"]["operation"] == "delete"
    ]
    assert [{name: row[name] for name in row if row[name] is not None and name != "__change"} for row in deleted] == [
        {"id": 2},
        {"id": 3},
        {"id": 4},
    ]


# --------------------------------------------------------------------------------------------- what is not a change


KEY = b'{"id": 1}'
SOURCE = {"lsn": 7, "sequence": '["5","7"]', "ts_ms": 1, "connector": "postgresql"}


def envelope(after: Any, **more: Any) -> bytes:
    return json.dumps({"before": None, "after": after, "op": "c", "source": SOURCE, **more}).encode()


REFUSED = {
    "text": (b"hello", "is not a JSON object"),
    "a list": (b"[1]", "is not a JSON object"),
    "cut": (envelope({"id": 1, "v": "x"})[:-9], "is not a JSON object"),
    "another format": (b'{"id": 1, "v": "x"}', "is not a change that Debezium writes"),
    "no op": (json.dumps({"after": {"id": 1, "v": "x"}, "source": SOURCE}).encode(), "an envelope without 'op'"),
    "unknown op": (envelope({"id": 1, "v": "x"}, op="x"), "the unknown op 'x'"),
    "no source": (envelope({"id": 1, "v": "x"}, source=None), "an envelope without 'source'"),
    "no order": (envelope({"id": 1, "v": "x"}, source={"ts_ms": 1}), "says nothing of its order"),
    "no row": (envelope(None), "has the op 'c' and no row"),
    "a column is gone": (envelope({"id": 1, "w": "x"}), "has no column 'v'; its columns are id, w"),
    "flat without op": (b'{"id": 1, "v": "x", "__deleted": "false"}', "has no '__op'"),
    "flat without deletes": (b'{"id": 1, "v": "x", "__op": "c", "__lsn": 3}', "has no '__deleted'"),
    "flat without order": (b'{"id": 1, "v": "x", "__op": "c", "__deleted": "false"}', "__source_lsn"),
}


@pytest.mark.capability("CDC-DBZ-01")
@pytest.mark.spark
def test_what_is_no_change_is_a_bad_row_that_says_why(spark: SparkSession) -> None:
    good = envelope({"id": 1, "v": "x"})
    judged = judge(spark, [(KEY, good), *[(KEY, value) for value, _ in REFUSED.values()]], "id BIGINT, v STRING")
    faults = judged.frame.orderBy("_headrace_place").select("_headrace_place", "_headrace_fault").collect()
    reasons = {int(row[0].rpartition("/")[2]): row[1] for row in faults}
    assert reasons.pop(0) is None
    assert {name: words in reasons[at] for at, (name, (_, words)) in enumerate(REFUSED.items(), 1)} == dict.fromkeys(
        REFUSED, True
    )


def column(kind: str | None, name: str | None = None, **more: Any) -> Any:
    return None if kind is None else {"type": kind, "name": name, "field": "v", "optional": True, **more}


def with_schema(value: Any, field: Any) -> bytes:
    change = {"before": None, "after": {"id": 1, "v": value}, "op": "u", "source": SOURCE}
    if field is None:
        return json.dumps(change).encode()
    fields = [{"type": "int64", "field": "id", "optional": False}, field]
    schema = {"type": "struct", "fields": [{"type": "struct", "field": "after", "fields": fields, "optional": True}]}
    return json.dumps({"schema": schema, "payload": change}).encode()


def b64(number: int) -> str:
    return base64.b64encode(number.to_bytes(16, "big", signed=True)).decode()


DEBEZIUM, CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."
ZONED, ISO = DEBEZIUM + "ZonedTimestamp", DEBEZIUM + "IsoTimestamp"
BAD, NTZ = object(), "TIMESTAMP_NTZ"
PRECISE, STRING = {"decimal.handling.mode": "precise"}, {"decimal.handling.mode": "string"}
CONNECT_MODE, ADAPTIVE = {"time.precision.mode": "connect"}, {"time.precision.mode": "adaptive"}
HEX, URL_SAFE = {"binary.handling.mode": "hex"}, {"binary.handling.mode": "base64-url-safe"}
KEEPS_NULL, SCALED = {"replace.null.with.default": "false"}, "io.debezium.data.VariableScaleDecimal"


def time_(name: str) -> Any:
    return column("string" if "Iso" in name or "Zoned" in name else "int64", name)


def number(scale: int) -> Any:
    return column("bytes", CONNECT + "Decimal", parameters={"scale": str(scale)})


def moment(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)


# A value, what the schema says of it (None: it has none), the settings, the declared type, and what it is.
VALUES: dict[str, tuple[Any, Any, dict[str, str], str, Any]] = {
    "base64 of a number": (b64(-123), number(2), {}, "DECIMAL(10,2)", Decimal("-1.23")),
    "a finer number": (b64(1239), number(3), {}, "DECIMAL(10,2)", BAD),
    "its zeros": (b64(1230), number(3), {}, "DECIMAL(10,2)", Decimal("1.23")),
    "too many digits": (b64(10**30), number(2), {}, "DECIMAL(10,2)", BAD),
    "a scale of its own": ({"scale": 1, "value": b64(55)}, None, {}, "DECIMAL(10,2)", Decimal("5.50")),
    "a number as text": ("12.30", column("string"), {}, "DECIMAL(10,2)", Decimal("12.30")),
    "a text that could be base64": ("1234", None, {}, "DECIMAL(10,2)", BAD),
    "the text is a number": ("1234", None, STRING, "DECIMAL(10,2)", Decimal("1234.00")),
    "the text is base64": (b64(1234), None, PRECISE, "DECIMAL(10,2)", Decimal("12.34")),
    "no number": ("NaN", column("string"), {}, "DECIMAL(10,2)", BAD),
    "a double": (0.1, None, {}, "DECIMAL(10,2)", Decimal("0.10")),
    "days": (-1, time_(DEBEZIUM + "Date"), {}, "DATE", datetime.date(1969, 12, 31)),
    "days without schema": (19782, None, {}, "DATE", datetime.date(2024, 2, 29)),
    "no days": (2024, time_(DEBEZIUM + "Year"), {}, "DATE", BAD),
    "a day with a zone": ("2024-02-29Z", time_(DEBEZIUM + "IsoDate"), {}, "DATE", datetime.date(2024, 2, 29)),
    "a day too far": (99_999_999, time_(DEBEZIUM + "Date"), {}, "DATE", BAD),
    "milliseconds": (-1, time_(DEBEZIUM + "Timestamp"), {}, NTZ, moment("1969-12-31T23:59:59.999000")),
    "microseconds": (-1, time_(DEBEZIUM + "MicroTimestamp"), {}, NTZ, moment("1969-12-31T23:59:59.999999")),
    "nanoseconds": (-1000, time_(DEBEZIUM + "NanoTimestamp"), {}, NTZ, moment("1969-12-31T23:59:59.999999")),
    "finer nanoseconds": (-1, time_(DEBEZIUM + "NanoTimestamp"), {}, NTZ, BAD),
    "of Connect": (60000, time_(CONNECT + "Timestamp"), {}, NTZ, moment("1970-01-01T00:01:00")),
    "of no unit": (1, column("int64"), {}, NTZ, BAD),
    "an infinity": (9223372036825200000, time_(DEBEZIUM + "MicroTimestamp"), {}, NTZ, BAD),
    "of a unit that is not said": (1, None, {}, "TIMESTAMP", BAD),
    "of an adaptive unit": (1, None, ADAPTIVE, NTZ, BAD),
    "of a unit that is said": (1500, None, CONNECT_MODE, NTZ, moment("1970-01-01T00:00:01.500000")),
    "with a zone": ("2024-02-29T10:34:56.789012Z", time_(ZONED), {}, "TIMESTAMP", moment("2024-02-29T10:34:56.789012")),
    "with a zone too much": ("2024-02-29T10:34:56Z", time_(ZONED), {}, NTZ, BAD),
    "with a zone that it has not": ("2024-02-29T10:34:56Z", time_(ISO), {}, NTZ, moment("2024-02-29T10:34:56")),
    "with an unknown zone": ("2024-02-29T10:34:56Z", None, {}, NTZ, BAD),
    "finer than microseconds": ("2024-02-29T10:34:56.1234567Z", time_(ZONED), {}, "TIMESTAMP", BAD),
    "bytes": ("AP8Q", column("bytes"), {}, "BINARY", b"\x00\xff\x10"),
    "bytes of a number": (b64(1), number(0), {}, "BINARY", BAD),
    "bytes of a way that is not said": ("00ff10ab", None, {}, "BINARY", BAD),
    "hex": ("00ff10", column("string"), HEX, "BINARY", b"\x00\xff\x10"),
    "no hex": ("00ff1g", column("string"), HEX, "BINARY", BAD),
    "safe base64": ("_-8=", column("string"), URL_SAFE, "BINARY", b"\xff\xef"),
    "a whole number too large": (2**31, None, {}, "INT", BAD),
    "a broken number": (1.5, None, {}, "INT", BAD),
    "no boolean": (2, column("int16"), {}, "BOOLEAN", BAD),
    "a bit": (1, column("int16"), {}, "BOOLEAN", True),
    "an infinite number": ("-Infinity", column("double"), {}, "DOUBLE", float("-inf")),
    "quotes and lines": ('a"\\\n\u00e5\U0001f600', None, {}, "STRING", 'a"\\\n\u00e5\U0001f600'),
    "a number in a text": (12, None, {}, "STRING", "12"),
    "the digits of a number": (b64(-123), number(2), {}, "STRING", "-1.23"),
    "the digits of a scale of its own": ({"scale": 1, "value": b64(55)}, column("struct", SCALED), {}, "STRING", "5.5"),
    "bits, the last byte first": ("VQE=", column("bytes", "io.debezium.data.Bits"), {}, "BINARY", b"\x01\x55"),
    "a default, perhaps of NULL": ("x", column("string", default="x"), {}, "STRING", BAD),
    "a default number, perhaps of NULL": (7, column("int32", default=7), {}, "INT", BAD),
    "a default where NULL is NULL": ("x", column("string", default="x"), KEEPS_NULL, "STRING", "x"),
    "a default of NOT NULL": ("x", column("string", default="x", optional=False), {}, "STRING", "x"),
    "another value than the default": ("y", column("string", default="x"), {}, "STRING", "y"),
    "a list": ([1, 2], None, {}, "ARRAY<INT>", [1, 2]),
    "nothing": (None, None, {}, "TIMESTAMP", None),
    "nothing that must be": (None, None, {}, "INT NOT NULL", BAD),
}  # fmt: skip


@pytest.mark.capability("CDC-DBZ-01")
@pytest.mark.spark
def test_a_value_is_exact_or_its_row_is_bad(spark: SparkSession) -> None:
    """One frame for each declared type and settings: a session compiles each."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name, (_, _, settings, kind, _) in VALUES.items():
        groups.setdefault((kind, json.dumps(settings)), []).append(name)
    got: dict[str, Any] = {}
    for (kind, settings), names in groups.items():
        messages = [(KEY, with_schema(VALUES[name][0], VALUES[name][1])) for name in names]
        judged = judge(spark, messages, f"id BIGINT, v {kind}", json.loads(settings))
        good = judged.good_rows("rows").toArrow().to_pylist()
        at = {row["__change"]["position"]["offset"]: comparable(row["v"]) for row in good}
        got |= {name: at.get(place, BAD) for place, name in enumerate(names)}
    assert got == {name: value for name, (_, _, _, _, value) in VALUES.items()}


@pytest.mark.spark
def test_a_number_that_no_double_holds_is_refused_by_its_column(spark: SparkSession) -> None:
    value = with_schema(0, column("double")).replace(b'"v": 0', b'"v": 1e999')
    with pytest.raises(Exception, match=r"HEADRACE_UNREADABLE.* in column 'v' .*too large.*shop/0/0"):
        changes(judge(spark, [(KEY, value)], "id BIGINT, v DOUBLE"))


@pytest.mark.spark
def test_a_value_that_does_not_fit_is_refused_by_its_column(spark: SparkSession) -> None:
    messages = [(KEY, with_schema(value, None)) for value in (2**31, 1.5, "\ud800")]
    judged = judge(spark, messages, "id BIGINT, v INT")
    faults = {fault for (fault,) in judged.frame.select("_headrace_fault").collect()}
    assert faults == {"has in column 'v' (INT) a value that does not fit"}


@pytest.mark.plain
@pytest.mark.parametrize(
    ("fault", "code"),
    [("has no '__op': add it by add.fields", "HR362"), ("has no column 'v'; its columns are id", "HR363")],
    ids=["message", "table"],
)
def test_a_refused_message_has_its_code(fault: str, code: str) -> None:
    text = f"[USER_RAISED_EXCEPTION] HEADRACE_UNREADABLE `{fault}` shop.public.t/0/17 SQLSTATE: P0001"
    failure = next(failure for failure in Kafka.failures if re.search(failure.pattern, text))
    match = re.search(failure.pattern, text)
    assert match is not None
    assert failure.code == code
    assert fault in failure.what.format(**match.groupdict())


@pytest.mark.spark
def test_operations_without_a_row(spark: SparkSession) -> None:
    messages = [
        (KEY, envelope({"id": 1, "v": "x"}, op="r")),
        (None, envelope(None, op="t")),
        (KEY, None),
        (KEY, b"null"),
        (KEY, b'{"schema": null, "payload": null}'),
        (b'{"prefix": "p"}', json.dumps({"op": "m", "source": SOURCE, "message": {"prefix": "p"}}).encode()),
        (None, envelope(None, op="d", before={"id": 1, "v": "x"})),
    ]
    rows = changes(judge(spark, messages[:3] + messages[4:], "id BIGINT, v STRING"))
    assert [(row["id"], row["v"], row["__change"]["operation"]) for row in rows] == [
        (1, "x", "upsert"),
        (None, None, "truncate"),
        (None, None, "none"),
        (None, None, "none"),
        (None, None, "none"),
        (1, "x", "delete"),
    ]


@pytest.mark.spark
def test_a_key_of_other_columns_than_the_querys_is_refused_by_name(spark: SparkSession) -> None:
    change = envelope({"id": 1, "v": "x"})
    keys = [KEY, b'{"schema": null, "payload": {"id": 1}}', b'{"tenant": 1, "id": 1}', None, b"1", b"x"]
    judged = judge(
        spark, [*[(key, change) for key in keys], (None, envelope(None, op="t"))], "id BIGINT, v STRING", keys=["id"]
    )
    faults = judged.frame.orderBy("_headrace_place").select("_headrace_fault").collect()
    assert [fault and fault[:40] for (fault,) in faults] == [
        None,
        None,
        "has the key [tenant, id], and the query'",
        "has no key: give the table a primary key",
        "has a key that is not a JSON object: set",
        "has a key that is not a JSON object: set",
        None,
    ]


@pytest.mark.spark
def test_the_order_is_that_of_commits_and_then_of_the_log(spark: SparkSession) -> None:
    places = [
        {"lsn": 200, "sequence": '[null,"200"]'},
        # It was written before the snapshot was read, and committed afterwards.
        {"lsn": 100, "sequence": '["250","100"]'},
        # It was read by an incremental snapshot.
        {"lsn": None, "sequence": '["250","250"]'},
        {"lsn": 300, "sequence": '["250","300"]'},
        {"file": "binlog.999999", "pos": 4_000_000_000, "row": 99},
        {"file": "binlog.1000000", "pos": 4, "row": 0},
        {"file": "binlog.1000000", "pos": 10, "row": 0},
    ]
    messages = [(KEY, envelope({"id": 1, "v": "x"}, source=place)) for place in places]
    sequences = [row["__change"]["sequence"] for row in changes(judge(spark, messages, "id BIGINT, v STRING"))]
    assert sequences[:4] == sorted(set(sequences[:4]))
    assert sequences[4:] == sorted(set(sequences[4:]))


@pytest.mark.spark
def test_of_the_changes_in_one_place_of_a_binlog_the_later_message_is_the_newest(spark: SparkSession) -> None:
    """MySQL writes a compressed transaction as one event, and Debezium counts the rows of each statement in it."""
    places = {"old": 5, "new": 0}
    rows = [envelope({"id": 1, "v": v}, source={"file": "b.7", "pos": 4, "row": places[v]}) for v in places]
    read = changes(judge(spark, [(KEY, row) for row in rows], "id BIGINT, v STRING"))
    assert fold(read) == {1: {"id": 1, "v": "new"}}


UNSENT = "__debezium_unavailable_value"
UNSENT_VALUES = {
    "a text": UNSENT,
    "an hstore": json.dumps({UNSENT: UNSENT}, separators=(",", ":")),
    "an hstore as a map": {UNSENT: UNSENT},
    "a list of texts": [UNSENT],
    "a list of whole numbers": list(UNSENT.encode()),
    "a list of bytes": [base64.b64encode(UNSENT.encode()).decode()],
    "a list of UUIDs": ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"],
}


@pytest.mark.spark
def test_a_value_that_was_not_sent_is_seen_in_each_type(spark: SparkSession) -> None:
    messages = [(KEY, with_schema(value, None).replace(b", ", b",")) for value in UNSENT_VALUES.values()]
    rows = changes(judge(spark, messages, "id BIGINT, v STRING"))
    unsent = {name: row["__change"]["unavailable"] for name, row in zip(UNSENT_VALUES, rows, strict=True)}
    assert unsent == {name: ["v"] for name in UNSENT_VALUES}


def unsent_list(items: str, **more: Any) -> bytes:
    message = json.loads(with_schema(None, column("array", items={"type": items, "optional": True})))
    message["payload"].update(more)
    return json.dumps(message).encode()


@pytest.mark.spark
def test_a_list_that_may_not_have_been_sent_is_not_null(spark: SparkSession) -> None:
    messages = [
        unsent_list("double"),
        unsent_list("double", op="c"),
        unsent_list("double", before={"id": 1, "v": None}),
        unsent_list("string"),
    ]
    settings: dict[str, str] = {}
    for places in ([1, 2, 3], [0, 1, 2, 3]):
        judged = judge(spark, [(KEY, message) for message in messages], "id BIGINT, v ARRAY<DOUBLE>", settings)
        rows = judged.good_rows("rows").toArrow().to_pylist()
        assert [row["__change"]["position"]["offset"] for row in rows] == places
        settings = {"event.converting.failure.handling.mode": "fail"}


@pytest.mark.spark
def test_a_truncate_of_one_of_several_tables_is_refused(spark: SparkSession) -> None:
    messages = [(None, envelope(None, op="t")), (KEY, envelope({"id": 1, "v": "x"}))]
    judged = judge(spark, messages, "id BIGINT, v STRING", one_table=False)
    with pytest.raises(Exception, match=r"HEADRACE_UNREADABLE `truncates one of the tables .*shop/0/0"):
        changes(judged)
    assert judged.good_rows("rows").select("id").collect() == [(1,)]


@pytest.mark.plain
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"debezium_settings": {"decimal.handling": "string"}}, "'decimal.handling', which decides about no value"),
        ({"debezium_settings": {"decimal.handling.mode": "text"}}, "gives decimal.handling.mode the value 'text'"),
        ({"schema": None}, "value is debezium and there is no schema"),
        ({"schema": "id BIGINT, __op STRING"}, "declares '__op'"),
        ({"schema": "id BIGINT, list ARRAY<DATE>"}, "column 'list' has a part of a type"),
        ({"value": "json", "debezium_settings": TEXTS}, "debezium_settings has no meaning with value json"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_option_has_its_sentence(options: dict[str, Any], words: str) -> None:
    source = replace(kafka("broker:9092", "shop.public.t"), **options)
    assert [words in problem.what for problem in source.problems()] == [True]


PROJECT = """
name: shop
sources:
  t: {kafka: {bootstrap_servers: "b:9092", subscribe: shop.public.t, value: debezium, schema: "id BIGINT, v STRING"}}
queries:
  copy:
    select: SELECT id, v FROM t
    cdc: {keys: [id]}
    sink: {sqlite: {path: out.db, table: t}}
"""


@pytest.mark.plain
def test_the_keys_of_the_query_are_those_that_each_message_must_have(tmp_path: Path) -> None:
    (tmp_path / "headrace.yml").write_text(PROJECT)
    project = hr.load(tmp_path)
    assert project.sources["t"].connector.facts.change_data
    connector = project.sources["t"].connector
    assert isinstance(connector, Kafka)
    assert connector.change_keys == ("id",)
    assert list(check_structure(project)) == []


@pytest.mark.plain
def test_a_message_that_verify_cannot_apply_is_named_as_in_a_run(tmp_path: Path) -> None:
    (tmp_path / "headrace.yml").write_text(PROJECT)
    project = hr.load(tmp_path)
    error = RuntimeError(
        "[USER_RAISED_EXCEPTION] HEADRACE_UNREADABLE `has no column 'v'` shop.public.t/0/17 SQLSTATE: P0001"
    )
    [finding] = findings_of(project.query("copy"), error, [project.sources["t"].connector])
    assert (finding.code, "HEADRACE" in finding.what) == ("HR363", False)
    assert "shop.public.t/0/17" in finding.what


@pytest.mark.plain
def test_the_load_has_every_column() -> None:
    assert [part.split()[0] for part in SCHEMA.split(", ")] == list(COLUMNS)
