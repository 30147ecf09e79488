"""The same text has the same verdict from every source; the oracles are Python's json and csv, and fastavro."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation
from pathlib import Path
from struct import pack, unpack
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from pyspark.sql.types import Row

from headrace.connectors.files.source import Files
from headrace.connectors.kafka.source import Kafka
from headrace.connectors.kafka.values import decode
from headrace.connectors.values.rules import PLACE
from headrace.testing.conformance import NAME, drain, prefix_of
from tests.servers import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# `make soak` takes 5,000.
NUMBER = int(os.environ.get("HEADRACE_TEXT_VALUES", "300"))
SEED = int(os.environ.get("HEADRACE_TEXT_SEED", "38"))
BAD = object()
KINDS = {
    "int": "INT", "tiny": "TINYINT", "big": "BIGINT", "dec": "DECIMAL(10,2)", "wide": "DECIMAL(38,18)", "dbl": "DOUBLE",
    "flt": "FLOAT", "txt": "STRING", "yes": "BOOLEAN", "day": "DATE", "at": "TIMESTAMP", "local": "TIMESTAMP_NTZ",
}  # fmt: skip
NESTED = {
    "list": "ARRAY<DECIMAL(10,2)>", "part": "STRUCT<day: DATE, txt: STRING, must: INT NOT NULL>",
    "map": "MAP<STRING, TIMESTAMP>", "deep": "ARRAY<STRUCT<dec: DECIMAL(10,2), txt: STRING>>",
}  # fmt: skip
SCHEMA = ", ".join(f"{name} {kind}" for name, kind in {"id": "INT", "req": "INT NOT NULL", **KINDS, **NESTED}.items())


class Number(str):
    """The digits of a number of JSON, as they are written."""


class Constant(Exception):
    """NaN and the like, which are no JSON."""


@dataclass(frozen=True)
class Case:
    """The bytes of a record, and the values of its columns that are not NULL; BAD for a record that is to be refused."""

    text: bytes
    wanted: Any


def of_decimal(value: Any, precision: int, scale: int) -> Any:
    if not re.fullmatch(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", value, re.ASCII):
        return BAD
    exact = Decimal(value.strip())
    try:
        rounded = exact.quantize(Decimal(1).scaleb(-scale)) if exact else Decimal(0).scaleb(-scale)
    except InvalidOperation:
        return BAD
    return rounded if rounded == exact and abs(rounded) < Decimal(10) ** (precision - scale) else BAD


def of_float(value: Any, single: bool) -> Any:
    if not isinstance(value, Number):
        return BAD
    try:
        found = unpack("f", pack("f", float(value)))[0] if single else float(value)
    except OverflowError:
        return BAD
    return BAD if found in (float("inf"), float("-inf")) else found


def of_whole(value: Any, bits: int) -> Any:
    is_whole = isinstance(value, Number) and re.fullmatch(r"-?\d+", value)
    return int(value) if is_whole and -(2 ** (bits - 1)) <= int(value) < 2 ** (bits - 1) else BAD


ZONE = r"(?:Z|([+-])(\d\d):(\d\d))?"
DAY = r"(\d{4})-(\d{1,2})-(\d{1,2})"
TIME = r"[T ](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{0,6})0*)?)?"


def of_time(value: Any, kind: str) -> Any:
    """By the forms that the documentation names; a number counts seconds for a TIMESTAMP."""
    if kind == "at" and re.fullmatch(r"-?(\d{1,3}|\d{8,12})", value, re.ASCII) and abs(int(value)) <= 253_402_300_799:
        return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=int(value))
    if kind == "day":
        found = re.fullmatch(DAY + r"([T ]00:00(:00(\.0*)?)?Z?)?", value, re.ASCII)
        return BAD if found is None else valid(lambda: date(*map(int, found.groups()[:3])))
    found = re.fullmatch(DAY + f"(?:{TIME}{ZONE if kind == 'at' else '()()()'})?", value, re.ASCII)
    if found is None:
        return BAD
    *parts, fraction, sign, hours, minutes = found.groups()
    micros = int((fraction or "0").ljust(6, "0"))
    shift = timedelta(hours=int(hours or 0), minutes=int(minutes or 0)) * (-1 if sign == "-" else 1)
    zone = timezone.utc if kind == "at" else None
    numbers = [int(part or 0) for part in parts]
    return valid(lambda: datetime(*numbers, micros, tzinfo=zone) - shift)  # type: ignore[arg-type, misc]


def valid(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except (ValueError, OverflowError):
        return BAD


def of_kind(name: str, value: Any, written: Mapping[str, str]) -> Any:
    """The value of a column by what Python's json gives; `written` has texts by the objects that json gives of them."""
    if value is None:
        return None
    if name == "txt":
        is_text = isinstance(value, str) and not isinstance(value, Number)
        return value if is_text else str(value) if isinstance(value, Number) else written[json.dumps(value)]
    if name == "yes":
        return value if isinstance(value, bool) else BAD
    if isinstance(value, bool | dict | list):
        return BAD
    if name in ("int", "tiny", "big", "id", "req", "must"):
        return of_whole(value, {"tiny": 8, "big": 64}.get(name, 32))
    if name in ("dec", "wide"):
        return of_decimal(value, *((10, 2) if name == "dec" else (38, 18)))
    return of_float(value, name == "flt") if name in ("dbl", "flt") else of_time(value, name)


def of_column(name: str, value: Any, written: Mapping[str, str]) -> Any:
    """The same of a nested column."""
    if value is None or name not in NESTED:
        return of_kind(name, value, written)
    inside: list[Any]
    if name == "part":
        inside = [of_kind(each, value.get(each), written) for each in ("day", "txt", "must")]
        return BAD if BAD in inside or inside[2] is None else tuple(inside)
    if name == "map":
        found = {key: of_kind("at", each, written) for key, each in value.items()}
        return BAD if BAD in found.values() else found
    if name == "list":
        inside = [of_kind("dec", each, written) for each in value]
        return BAD if BAD in inside else inside
    pairs = [each and tuple(of_kind(key, each.get(key), written) for key in ("dec", "txt")) for each in value]
    return BAD if any(each and BAD in each for each in pairs) else pairs


def judge(text: bytes, written: Mapping[str, str]) -> Any:
    """What a JSON text holds by Python's json; of equal keys the last counts."""

    def refuse(name: str) -> None:
        raise Constant(name)

    try:
        whole = json.loads(
            text.decode("utf-8-sig"), parse_float=Number, parse_int=Number, parse_constant=refuse,
            object_pairs_hook=lambda pairs: dict(pairs),
        )  # fmt: skip
        json.dumps(whole, ensure_ascii=False).encode()
    except (ValueError, Constant):
        return BAD
    if not isinstance(whole, dict):
        return BAD
    found = {name: of_column(name, whole.get(name), written) for name in ("id", "req", *KINDS, *NESTED)}
    return BAD if found["req"] is None or BAD in found.values() else found


def digits(chance: random.Random, most: int) -> str:
    return "".join(chance.choices("0123456789", k=chance.randint(1, most))).lstrip("0") or "0"


def number(chance: random.Random) -> str:
    limits = [2**7, 2**15, 2**31, 2**53, 2**63, 10**8, 10**10]
    text = chance.choice(["", "-"]) + (
        str(chance.choice(limits) - chance.randint(0, 2)) if chance.random() < 0.3 else digits(chance, 12)
    )
    if chance.random() < 0.5:
        text += "." + chance.choice([digits(chance, 3), "00", "50", "1" + "0" * 30, digits(chance, 25), "005"])
    if chance.random() < 0.25:
        text += chance.choice(["e0", "E2", "e-2", "e+1", "e-40", "e999", "E-999", "e308", "e38"])
    return text


def moment(chance: random.Random) -> str:
    day = f"{chance.choice([1, 1969, 1970, 2024, 2026, 9999]):04d}-{chance.randint(1, 13)}-{chance.randint(1, 31)}"
    padded = re.sub(r"-(\d)(?!\d)", r"-0\1", day)
    time = f"{chance.randint(0, 24):02d}:{chance.randint(0, 60):02d}"
    seconds = f":{chance.randint(0, 60):02d}"
    fraction = "." + chance.choice(["5", "123", "123456", "1234567", "123456000", "123456789", "000", "0000001", ""])
    zone = chance.choice(["", "Z", "+02:00", "-05:30"])
    forms = [
        padded, day, f"{padded}T{time}", f"{padded} {time}{seconds}", f"{padded}T{time}{seconds}{zone}",
        f"{padded}T{time}{seconds}{fraction}{zone}", f"{day} {time}{seconds}{fraction}", f"{padded}T00:00:00Z",
        f"T{time}", f"{time}{seconds}", padded.replace("-", ""), padded[:4], f"{padded} junk", f"{padded}T00:00",
        str(chance.choice([0, 86_400, 1_704_067_200, 1_704_067_200_123, -5, 999, 4_000])), "", "now", "epoch",
    ]  # fmt: skip
    return chance.choice(forms)


PIECES = [
    "a", "é", "€", "😀", "\ufffd", "\ufeff", " ", "'", ",", ";", "/", "%", "NULL", "null", "NaN", "\\", '"', "\t",
    "\u0000", "\\u0000", "{", "}", "[1]", "0.10", "\u2028", "\x7f", "\u0085", "\xa0",
]  # fmt: skip


def words(chance: random.Random) -> str:
    return "".join(chance.choices(PIECES, k=chance.randint(0, 4)))


def token(chance: random.Random, name: str) -> str:
    """A JSON value that is mostly of a column's type."""
    if chance.random() < 0.08:
        return chance.choice(["null", "true", "{}", "[]", '"x"', "NaN", "-Infinity", "1", '""', "01", "1.", "+1", "0x1"])
    if name in ("int", "tiny", "big", "dbl", "flt", "must"):
        return number(chance) if chance.random() < 0.9 else json.dumps(number(chance))
    if name in ("dec", "wide"):
        text = number(chance)
        return text if chance.random() < 0.6 else json.dumps(chance.choice([text, text.replace(".", ","), f" {text}"]))
    if name == "yes":
        return chance.choice(["true", "false", '"true"', "1"])
    if name != "txt":
        text = moment(chance)
        return text if re.fullmatch(r"-?[1-9]\d*|0", text) else json.dumps(text)
    if chance.random() < 0.3:
        return chance.choice([number(chance), '{"b": 1.50,  "a": [1e2]}', "[1, 2.0 ]", "true", "-0", "1E400"])
    if chance.random() < 0.15:
        return chance.choice([r'"\ud83d\ude00"', r'"\ud83d"', r'"\ude00\ud83d"', r'"\\ud83d"', r'"\u00e9\/\b"', r'"\x"'])
    return json.dumps(words(chance), ensure_ascii=chance.random() < 0.5)


def member(chance: random.Random) -> str:
    name = chance.choice([*KINDS, *KINDS, *NESTED])
    if name in KINDS:
        value = token(chance, name)
    elif name == "list":
        value = f"[{', '.join(token(chance, 'dec') for _ in range(chance.randint(0, 3)))}]"
    elif name == "map":
        value = f'{{"k": {token(chance, "at")}, "é": null}}'
    elif name == "part":
        must = "" if chance.random() < 0.2 else f', "must": {token(chance, "int")}'
        value = f'{{"day": {token(chance, "day")}, "txt": {token(chance, "txt")}{must}}}'
    else:
        value = f'[{{"dec": {token(chance, "dec")}}}, null, {{"txt": {token(chance, "txt")}}}]'
    return f'"{name}": {value}'


ENDS = ["", "", "", " ", "\t", " {}", "x", "}", ",", '{"id": 1, "req": 1}', ' {"req": 2}', "]", "//", "\x00"]


def cases(seed: int, number_: int) -> Iterator[Case]:
    """Objects with an id, a value that is required, and a member or two; some are no whole object, or more than one."""
    chance = random.Random(seed)
    for at in range(number_):
        req = chance.choices(['"req": 1', '"req": null', '"other": 1.0'], [30, 1, 1])[0]
        members = [f'"id": {at}', req, *(member(chance) for _ in range(chance.choice([1, 1, 1, 2])))]
        text = f"{{{', '.join(members)}}}"
        if chance.random() < 0.1:
            text = chance.choice([text[: chance.randint(1, len(text))], f"[{text}]", f"\ufeff{text}", f" {text}"])
        text += chance.choice(ENDS) if chance.random() < 0.15 else ""
        written = text.encode()
        if chance.random() < 0.03:
            written = written.replace(b'": ', chance.choice([b'\xff": ', b'\xed\xa0\x80": ', b'\xc0\x80": ']), 1)
        yield Case(written, judge(written, dict(raw_values(text))))


def raw_values(text: str) -> Iterator[tuple[str, str]]:
    """Each object, array and word of a text, by what json gives of it, as it is written."""
    scanner = json.JSONDecoder(parse_float=Number, parse_int=Number)
    for found in re.finditer(r"[\[{tf]", text):
        try:
            value, end = scanner.raw_decode(text, found.start())
        except ValueError:
            continue
        yield json.dumps(value), text[found.start() : end]


def as_python(value: Any) -> Any:
    """A value of a row as the oracles have it."""
    if isinstance(value, Row | tuple):
        return tuple(map(as_python, value))
    if isinstance(value, dict):
        return {key: as_python(each) for key, each in value.items()}
    if isinstance(value, list):
        return list(map(as_python, value))
    return value


def plain(value: Any, name: str) -> Any:
    """The value with times in UTC: Spark gives those of TIMESTAMP in the zone of the process."""
    if isinstance(value, datetime) and name == "at":
        return value.astimezone(timezone.utc)
    return {key: plain(each, "at") for key, each in value.items()} if name == "map" and value is not None else value


def compare(given: Sequence[Case], rows: Sequence[Row], records: Sequence[bytes], names: Sequence[str]) -> None:
    """Each case is either taken with its values, or refused with its text, and never both."""
    taken = {row["id"]: {name: plain(as_python(row[name]), name) for name in names} for row in rows}
    wanted = {case.wanted["id"]: {name: case.wanted[name] for name in names} for case in given if case.wanted is not BAD}
    texts = {case.wanted["id"]: case.text for case in given if case.wanted is not BAD}
    differ = [(texts.get(at), taken.get(at), wanted.get(at)) for at in sorted({*taken, *wanted}, key=str)
              if repr(taken.get(at)) != repr(wanted.get(at))]  # fmt: skip
    print(f"seed {SEED}: {len(given)} texts, {len(wanted)} to be taken, {len(differ)} differ")
    assert differ == [], (SEED, len(differ), differ[:5])
    assert sorted(records) == sorted(case.text for case in given if case.wanted is BAD), SEED


def kafka_rows(
    spark: SparkSession, value: str, schema: str, given: Sequence[bytes | None], **options: Any
) -> tuple[list[Row], list[Any]]:
    """What the Kafka source makes of messages: the rows, and the texts that it quarantines."""
    messages = [(text, "t", 0, at, 0) for at, text in enumerate(given)]
    columns = "value BINARY, topic STRING, partition INT, offset BIGINT, batch INT"
    frame = spark.createDataFrame(messages, columns)
    judged = decode(frame, value, schema, keep=("offset",), besides=("batch",), **options)
    bad = judged.bad("bad", file=PLACE).selectExpr("cast(record as binary) record").collect()
    return judged.good("good").collect(), [bytes(row.record) for row in bad]


def file_rows(
    spark: SparkSession, home: Path, content: Mapping[str, bytes], format_: Any, schema: str, **options: Any
) -> tuple[list[Row], list[bytes]]:
    """The same of files, by a stream and by what is read of it again."""
    (home / "input").mkdir(parents=True)
    for name, data in content.items():
        (home / "input" / name).write_bytes(data)
    source = Files(path=str(home / "input"), format=format_, schema=schema, on_bad_row="quarantine", **options)
    frame = source.stream(spark, NAME)
    streamed = [row for batch in drain(frame, home / "checkpoint")[0].values() for row in batch]
    prefix = prefix_of(home / "checkpoint")
    again = source.read(spark, prefix).collect()
    assert sorted(map(repr, map(tuple, again))) == sorted(map(repr, map(tuple, streamed)))
    bad = source.rejected_rows(spark, prefix)
    assert bad is not None
    return again, [bytes(row.record) for row in bad.selectExpr("cast(record as binary) record").collect()]


GIVEN = list(cases(SEED, NUMBER))


@pytest.mark.spark
def test_a_json_message_of_kafka_is_kept_exactly_or_refused(spark: SparkSession) -> None:
    rows, records = kafka_rows(spark, "json", SCHEMA, [case.text for case in GIVEN])
    compare(GIVEN, rows, records, ["id", "req", *KINDS, *NESTED])
