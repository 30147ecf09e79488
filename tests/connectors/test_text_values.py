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
from decimal import Context, Decimal, InvalidOperation
from pathlib import Path
from struct import pack, unpack
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from pyspark.sql.types import Row

from headrace.connectors.files.sink import FileSink
from headrace.connectors.files.source import Files
from headrace.connectors.kafka.source import Kafka
from headrace.connectors.kafka.values import decode
from headrace.connectors.values.rules import PLACE
from headrace.testing.conformance import NAME, drain, prefix_of
from tests.rounds import rounds
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
    """The bytes of a record, and the values of its columns; BAD for a record that is to be refused."""

    text: bytes
    wanted: Any

    @property
    def kind(self) -> str:
        """What sets it apart from the records that all sources judge alike; see EXCEPTIONS."""
        try:
            text = self.text.decode("utf-8-sig")
            # An object is a tuple, with the values that a later one of the same name replaces.
            value, end = json.JSONDecoder(object_pairs_hook=tuple).raw_decode(text.lstrip())
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeError:
            return "no Unicode"
        except ValueError:
            return ""
        if isinstance(value, list):
            return "array"
        return "text behind" if text.lstrip()[end:].strip(" \t\r\n") else ""


# What a source judges otherwise than the oracle does, as docs/how-to/handle-bad-rows.md has it.
EXCEPTIONS: dict[str, tuple[str, ...]] = {
    # Of a line of json, Spark's reader takes the first object alone, and a question mark for half a surrogate pair; an
    # array is a row for each of its elements.
    "lines": ("text behind", "no Unicode", "array"),
    "texts": ("array",),
}


def without_exceptions(given: Sequence[Case], source: str) -> list[Case]:
    return [case for case in given if case.kind not in EXCEPTIONS[source]]


def of_decimal(value: Any, precision: int, scale: int) -> Any:
    if not re.fullmatch(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", value, re.ASCII):
        return BAD
    exact = Decimal(value.strip())
    try:
        rounded = (
            exact.quantize(Decimal(1).scaleb(-scale), context=Context(100)) if exact else Decimal(0).scaleb(-scale)
        )
    except InvalidOperation:
        return BAD
    return rounded if rounded == exact and abs(rounded) < Decimal(10) ** (precision - scale) else BAD


def of_float(value: Any, single: bool) -> Any:
    if not isinstance(value, Number):
        return BAD
    try:
        number = unpack("f", pack("f", float(value)))[0] if single else float(value)
    except OverflowError:
        return BAD
    # A zero has no sign here: Spark takes -0 for a whole number.
    return BAD if number in (float("inf"), float("-inf")) else number + 0.0


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
        match = re.fullmatch(DAY + r"([T ]00:00(:00(\.0*)?)?Z?)?", value, re.ASCII)
        return BAD if match is None else valid(lambda: date(*map(int, match.groups()[:3])))
    match = re.fullmatch(DAY + f"(?:{TIME}{ZONE if kind == 'at' else '()()()'})?", value, re.ASCII)
    if match is None:
        return BAD
    *parts, fraction, sign, hours, minutes = match.groups()
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
        inside = [of_kind(part, value.get(part), written) for part in ("day", "txt", "must")]
        return BAD if BAD in inside or inside[2] is None else tuple(inside)
    if name == "map":
        times = {key: of_kind("at", time, written) for key, time in sorted(value.items())}
        return BAD if BAD in times.values() else times
    if name == "list":
        inside = [of_kind("dec", number, written) for number in value]
        return BAD if BAD in inside else inside
    pairs = [pair and tuple(of_kind(key, pair.get(key), written) for key in ("dec", "txt")) for pair in value]
    return BAD if any(pair and BAD in pair for pair in pairs) else pairs


def refuse(name: str) -> None:
    raise Constant(name)


def of_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of equal keys the last counts, and the others are to be text too."""
    json.dumps(pairs, ensure_ascii=False).encode()
    return dict(pairs)


def judge(text: bytes, written: Mapping[str, str]) -> Any:
    """What a JSON text holds by Python's json; of equal keys the last counts."""
    try:
        whole = json.loads(
            text.decode("utf-8-sig"), parse_float=Number, parse_int=Number, parse_constant=refuse,
            object_pairs_hook=of_pairs,
        )  # fmt: skip
        json.dumps(whole, ensure_ascii=False).encode()
    except (ValueError, Constant):
        return BAD
    if not isinstance(whole, dict):
        return BAD
    columns = {name: of_column(name, whole.get(name), written) for name in ("id", "req", *KINDS, *NESTED)}
    return BAD if columns["req"] is None or BAD in columns.values() else columns


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
    day = f"{chance.choice([2, 1969, 1970, 2024, 2026, 9998]):04d}-{chance.randint(1, 13)}-{chance.randint(1, 31)}"
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


ESCAPES = [r'"\ud83d\ude00"', r'"\ud83d"', r'"\ude00\ud83d"', r'"\\ud83d"', r'"\u00e9\/\b"', r'"\x"']


def words(chance: random.Random) -> str:
    return "".join(chance.choices(PIECES, k=chance.randint(0, 4)))


def token(chance: random.Random, name: str) -> str:
    """A JSON value that is mostly of a column's type."""
    if chance.random() < 0.08:
        return chance.choice(
            ["null", "true", "{}", "[]", '"x"', "NaN", "-Infinity", "1", '""', "01", "1.", "+1", "0x1"]
        )
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
        return chance.choice(
            [r'"\ud83d\ude00"', r'"\ud83d"', r'"\ude00\ud83d"', r'"\\ud83d"', r'"\u00e9\/\b"', r'"\x"']
        )
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
    for start in re.finditer(r"[\[{tf]", text):
        try:
            value, end = scanner.raw_decode(text, start.start())
        except ValueError:
            continue
        yield json.dumps(value), text[start.start() : end]


def as_python(value: Any) -> Any:
    """A value of a row as the oracles have it."""
    if isinstance(value, Row | tuple):
        return tuple(map(as_python, value))
    if isinstance(value, dict):
        return {key: as_python(item) for key, item in sorted(value.items())}
    if isinstance(value, list):
        return list(map(as_python, value))
    return value + 0.0 if isinstance(value, float) else value


def plain(value: Any, name: str) -> Any:
    """The value with times in UTC: Spark gives those of TIMESTAMP in the zone of the process."""
    if isinstance(value, datetime) and name == "at":
        return value.astimezone(timezone.utc)
    return {key: plain(item, "at") for key, item in value.items()} if name == "map" and value is not None else value


def compare(given: Sequence[Case], rows: Sequence[Row], records: Sequence[bytes], names: Sequence[str]) -> None:
    """Each case is either taken with its values, or refused with its text, and never both."""
    taken = {row["id"]: {name: plain(as_python(row[name]), name) for name in names} for row in rows}
    wanted = {
        case.wanted["id"]: {name: case.wanted[name] for name in names} for case in given if case.wanted is not BAD
    }
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
    bad = judged.bad_rows("bad", file=PLACE).selectExpr("cast(record as binary) record").collect()
    return judged.good_rows("good").collect(), [bytes(row.record) for row in bad]


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


def may_differ(case: Case) -> bool:
    """Whether a name comes twice: the last value counts, and one before it that does not fit may make the row bad."""
    names = re.findall(r'"(\w+)": ', re.sub(r"\{(?=.)[^{}]*\}(?=.)", "", case.text.decode(errors="replace")))
    return case.wanted is not BAD and len(names) > len(set(names))


GIVEN = [case for case in cases(SEED, NUMBER) if not may_differ(case)]


@pytest.mark.spark
def test_a_json_message_of_kafka_is_kept_exactly_or_refused(spark: SparkSession) -> None:
    rows, records = kafka_rows(spark, "json", SCHEMA, [case.text for case in GIVEN])
    compare(GIVEN, rows, records, ["id", "req", *KINDS, *NESTED])


def encode(given: Sequence[Case], encoding: str) -> tuple[list[Case], bytes]:
    """The cases whose texts the encoding has, and a file of them, one a line."""
    fit: list[Case] = []
    lines: list[bytes] = []
    for case in given:
        try:
            line = (case.text.decode() + "\n").encode(encoding)
        except UnicodeError:
            continue
        fit.append(case)
        lines.append(line)
    return fit, b"".join(lines)


ALL = ["id", "req", *KINDS, *NESTED]


@pytest.mark.spark
@pytest.mark.parametrize("encoding", rounds(["", "UTF-8", "ISO-8859-1", "UTF-16LE"]))
def test_a_line_of_json_is_kept_exactly_or_quarantined_as_it_was_written(
    spark: SparkSession, tmp_path: Path, encoding: str
) -> None:
    is_text = encoding not in ("", "UTF-8")
    given = without_exceptions(GIVEN, "texts" if is_text else "lines")
    options = {"options": {"encoding": encoding}} if encoding else {}
    if is_text:
        given, data = encode(given, encoding)
        content = {"a.json": data}
    else:
        half = len(given) // 2
        one, other = (b"".join(case.text + b"\n" for case in part) for part in (given[:half], given[half:]))
        content = {"a.json": one, "b.json.gz": gzip.compress(other)}
    rows, records = file_rows(spark, tmp_path, content, "json", SCHEMA, **options)
    compare(given, rows, records, ALL)


@pytest.mark.spark
@pytest.mark.parametrize("encoding", rounds(["UTF-8", "ISO-8859-1"]))
def test_a_json_file_of_many_lines_is_kept_exactly_or_quarantined(
    spark: SparkSession, tmp_path: Path, encoding: str
) -> None:
    fit, _ = encode(GIVEN, encoding)
    objects = [case for case in fit if case.kind == "" and is_object(case.text)]
    alone = [case for case in fit if case.kind == "text behind"][:20]
    content = {"all.json": "[" + " ,\n ".join(case.text.decode() for case in objects) + "]\n"}
    content |= {f"{at}.json": case.text.decode() for at, case in enumerate(alone)}
    files = {name: text.encode(encoding) for name, text in content.items()}
    options = {"multiLine": "true", **({"encoding": encoding} if encoding != "UTF-8" else {})}
    rows, records = file_rows(spark, tmp_path, files, "json", SCHEMA, options=options)
    trimmed = [Case(case.text.strip(), case.wanted) for case in objects]
    compare([*trimmed, *alone], rows, records, ALL)


def is_object(text: bytes) -> bool:
    """Whether an array that holds the text can be read."""
    try:
        return isinstance(json.loads(text.decode(), parse_constant=refuse), dict)
    except (ValueError, Constant):
        return False


CSV = ["id", *(name for name in KINDS if name != "wide")]


def of_csv(name: str, text: str) -> Any:
    """The value of a cell; an empty one is NULL, and a year alone is its first day where a number counts no seconds."""
    if text == "":
        return None
    if name == "at" and re.fullmatch(r"-?\d+", text):
        return datetime(int(text), 1, 1, tzinfo=timezone.utc) if len(text) == 4 else BAD
    if name == "yes":
        return {"true": True, "false": False}.get(text.lower(), BAD)
    return of_kind(name, text if name in ("txt", "day", "at", "local", "dec") else Number(text), {})


def csv_cell(chance: random.Random, name: str) -> str:
    if name == "txt":
        return words(chance).replace("\t", "t").replace("\0", "0").strip("\ufeff")
    if name == "yes":
        return chance.choice(["true", "false", "yes"])
    return number(chance) if name in ("int", "tiny", "big", "dec", "dbl", "flt") else moment(chance)


@pytest.mark.spark
@pytest.mark.parametrize("form", rounds(["lines", "header", "multiLine"]))
def test_a_row_of_csv_is_kept_exactly_or_quarantined_as_it_was_written(
    spark: SparkSession, tmp_path: Path, form: str
) -> None:
    """Some rows have a field too few, or one or two too many; those of one file have other bytes."""
    chance, cases_ = random.Random(SEED), list[Case]()
    for at in range(NUMBER if form == "lines" else NUMBER // 3):
        name, out = chance.choice(CSV[1:]), io.StringIO()
        row = [str(at), *(csv_cell(chance, column) if column == name else "" for column in CSV[1:])]
        if form == "multiLine" and name == "txt":
            row[CSV.index("txt")] += chance.choice(["", "\n", "\nb", " \n\n,"])
        csv.writer(out).writerow(chance.choice([row] * 20 + [row[:-1], [*row, "x"], [*row, "", ""]]))
        line = out.getvalue().removesuffix("\r\n").encode()
        if form != "multiLine" and chance.random() < 0.1:
            line = line.replace("é".encode(), b"\xe9", 1)
        cases_.append(Case(line, of_csv_row(line, takes_replaced=form != "multiLine")))
    schema = ", ".join(f"{name} {'INT' if name == 'id' else KINDS[name]}" for name in CSV)
    options = {"escape": '"', **({} if form == "lines" else {form: "true"})}
    data = b"".join([*([f"{','.join(CSV)}\n".encode()] if form == "header" else []), *(c.text + b"\n" for c in cases_)])
    content = {"a.csv.gz": gzip.compress(data)} if form == "header" else {"a.csv": data}
    rows, records = file_rows(spark, tmp_path, content, "csv", schema, options=options)
    compare(cases_, rows, records, CSV)


def of_csv_row(line: bytes, *, takes_replaced: bool) -> Any:
    try:
        [cells] = csv.reader(io.StringIO(line.decode(), newline=""))
    except UnicodeError:
        return BAD
    if len(cells) != len(CSV) or ("\ufffd" in line.decode() and not takes_replaced):
        return BAD
    values = {name: of_csv(name, cell) for name, cell in zip(CSV, cells, strict=True)}
    return BAD if BAD in values.values() else values


# By name: what is given of `options`, and how Python splits the text of a file into rows.
TEXT_FORMS: dict[str, tuple[dict[str, str], Callable[[str], list[str]]]] = {
    "lines": ({}, lambda text: re.split(r"\r\n|\n|\r", text)),
    "another separator": ({"lineSep": ";"}, lambda text: text.split(";")),
    "whole": ({"wholetext": "true"}, lambda text: [text]),
    "an encoding that is none": ({"encoding": "utf-8"}, lambda text: re.split(r"\r\n|\n|\r", text)),
}


@pytest.mark.spark
@pytest.mark.parametrize(("options", "split"), TEXT_FORMS.values(), ids=TEXT_FORMS)
def test_a_text_file_is_kept_exactly(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], split: Callable[[str], list[str]]
) -> None:
    """Three files, one of which is compressed; a mark of byte order at the beginning of a file is not text."""
    chance, content, wanted = random.Random(SEED), dict[str, bytes](), list[str]()
    ends = ["\n", "\r\n", "\r", "\n\n", ";", "; "]
    for name in ("a.txt", "b.txt.gz", "c.txt"):
        text = "".join(words(chance) + chance.choice(ends) for _ in range(NUMBER // 3)) + chance.choice(["", "end"])
        rows = split(text.removeprefix("\ufeff") if "wholetext" not in options else text)
        wanted += rows if rows[-1] or "wholetext" in options else rows[:-1]
        content[name] = gzip.compress(text.encode()) if name.endswith("gz") else text.encode()
    rows = text_rows(spark, tmp_path, content, options)
    print(f"seed {SEED}: {len(wanted)} rows")
    assert sorted(rows) == sorted(wanted)


def text_rows(spark: SparkSession, home: Path, content: Mapping[str, bytes], options: Mapping[str, str]) -> list[str]:
    """What a stream of text files gives, and what is read of it again."""
    (home / "input").mkdir(parents=True)
    for name, data in content.items():
        (home / "input" / name).write_bytes(data)
    source = Files(path=str(home / "input"), format="text", options=options)
    assert [problem for problem in source.problems() if problem.severity == "error"] == []
    batches = drain(source.stream(spark, NAME), home / "checkpoint")[0]
    streamed = [row[0] for batch in batches.values() for row in batch]
    assert sorted(row[0] for row in source.read(spark, prefix_of(home / "checkpoint")).collect()) == sorted(streamed)
    return streamed


@pytest.mark.spark
@pytest.mark.parametrize("options", [{}, {"encoding": "UTF-8"}, {"wholetext": "true"}], ids=str)
def test_a_text_file_that_is_no_utf8_stops_the_query(
    spark: SparkSession, tmp_path: Path, options: dict[str, str]
) -> None:
    with pytest.raises(Exception, match="HEADRACE_ENCODING"):
        text_rows(spark, tmp_path, {"a.txt": b"a\n\xe9\n"}, options)


@pytest.mark.plain
@pytest.mark.parametrize("encoding", ["ISO-8859-1", "UTF-16LE", "utf_16"])
def test_an_encoding_of_text_files_is_refused_because_spark_takes_no_notice_of_it(encoding: str) -> None:
    options = {"encoding": encoding}
    source, sink = (
        Files(path="in", format="text", options=options),
        FileSink(path="out", format="text", options=options),
    )
    for problem in (*source.problems(), *sink.problems("append")):
        assert (problem.code, problem.severity, encoding in problem.what) == ("HR113", "error", True)


AVRO = {
    "type": "record",
    "name": "event",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "dec", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}]},
        {"name": "txt", "type": ["null", "string"]},
        {"name": "dbl", "type": ["null", "double"]},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
    ],
}


def avro_cases(number_: int) -> Iterator[Case]:
    """Records that fastavro writes and reads again, some cut, with a byte behind, or with other bytes in a text."""
    chance = random.Random(SEED)
    for at in range(number_):
        record = {
            "id": at,
            "dec": chance.choice([None, Decimal(chance.randint(-(10**10) + 1, 10**10 - 1)).scaleb(-2)]),
            "txt": chance.choice([None, f"é{words(chance)}"]),
            "dbl": chance.choice([None, chance.uniform(-1, 1) * 10 ** chance.randint(-300, 300)]),
            "day": chance.choice([None, date(1970, 1, 1) + timedelta(days=chance.randint(-9_999, 99_999))]),
            "at": chance.choice([None, datetime(1970, 1, 1, tzinfo=timezone.utc)
                                 + timedelta(microseconds=chance.randint(-(10**15), 10**16))]),
        }  # fmt: skip
        out = io.BytesIO()
        fastavro.schemaless_writer(out, AVRO, record)
        text = out.getvalue()
        text = chance.choice([text] * 7 + [text[:-1], text + b"\x00", text.replace("é".encode(), b"\xe9\xe9")])
        given = io.BytesIO(text)
        try:
            row = fastavro.schemaless_reader(given, AVRO, None)
        except (ValueError, EOFError, IndexError, OverflowError):
            yield Case(text, BAD)
            continue
        yield Case(text, BAD if given.read() else row)


@pytest.mark.services
@pytest.mark.connectors
def test_an_avro_message_is_kept_exactly_or_refused(spark: SparkSession) -> None:
    given = list(avro_cases(NUMBER))
    rows, records = kafka_rows(spark, "avro", json.dumps(AVRO), [case.text for case in given])
    assert len(records) == sum(case.wanted is BAD for case in given)
    compare([case for case in given if case.wanted is not BAD], rows, [], [field["name"] for field in AVRO["fields"]])


@pytest.mark.spark
def test_a_text_message_is_kept_exactly_or_refused(spark: SparkSession) -> None:
    texts = ["é".encode(), "\ufffd".encode(), b"\xe9", b"", "😀".encode(), b"\xed\xa0\x80", None]
    rows, records = kafka_rows(spark, "text", "", texts)
    assert [row["value"] for row in rows] == ["é", "\ufffd", "", "😀", None]
    assert len(records) == 2


# Messages of {"id": INT NOT NULL, "v": DECIMAL(3,1)}: what `fail` says of each, or the row; None is a tombstone.
MESSAGES: dict[str, tuple[bytes | None, Any]] = {
    "an object": (b'{"id": 1, "v": 2.5}', (1, Decimal("2.5"))),
    "two objects": (b'{"id": 1}{"id": 2}', "HR302"),
    "text behind it": (b'{"id": 1} x', "HR302"),
    "more digits": (b'{"id": 1, "v": 2.55}', "HR361"),
    "a word": (b'{"id": 1, "v": "x"}', "HR302"),
    "without the id": (b'{"v": 1}', "HR302"),
    "NULL for the id": (b'{"id": null}', "HR302"),
    "a tombstone": (None, "HR302"),
}


@pytest.mark.spark
@pytest.mark.parametrize(("text", "wanted"), MESSAGES.values(), ids=MESSAGES)
def test_a_message_that_is_not_kept_stops_the_query_by_its_place(
    spark: SparkSession, text: bytes | None, wanted: Any
) -> None:
    frame = spark.createDataFrame([(text, "t", 0, 7)], "value BINARY, topic STRING, partition INT, offset BIGINT")
    source = Kafka(bootstrap_servers="k:9092", subscribe="t", value="json", schema="id INT NOT NULL, v DECIMAL(3,1)")
    rows = source._decode(frame, "bad")
    if isinstance(wanted, tuple):
        assert rows.collect() == [wanted]
        return
    with pytest.raises(Exception, match="HEADRACE_") as raised:
        rows.collect()
    fault = source.explain_failure(str(raised.value))
    assert fault is not None
    assert (fault.code, "t/0/7" in fault.what, "quarantine" in fault.fix) == (wanted, True, True)


@pytest.mark.spark
def test_spark_rounds_for_those_who_ask_for_it(spark: SparkSession) -> None:
    [row], _ = kafka_rows(spark, "json", "v DECIMAL(3,1), t TIMESTAMP", [b'{"v": 2.55}'], exact=False)
    assert row["v"] == Decimal("2.6")


@pytest.mark.services
@pytest.mark.connectors
def test_messages_of_a_broker_are_judged_as_texts(kafka: Topics, spark: SparkSession, tmp_path: Path) -> None:
    given = GIVEN[:100]
    topic = kafka.make()
    kafka.send(topic, *[case.text for case in given])
    source = Kafka(bootstrap_servers=kafka.url, subscribe=topic, value="json", schema=SCHEMA, on_bad_row="quarantine")
    frame = source.stream(spark, NAME)
    rows = [row for batch in drain(frame, tmp_path / "checkpoint")[0].values() for row in batch]
    bad = source.rejected_rows(spark, prefix_of(tmp_path / "checkpoint"))
    assert bad is not None
    records = [bytes(row[0]) for row in bad.selectExpr("cast(record as binary)").collect()]
    compare(given, [Row(*frame.columns)(*row) for row in rows], records, ALL)


# Each exception, as a line of a file: what becomes of it.
LINES: dict[str, tuple[bytes, list[Any]]] = {
    "text behind": (b'{"id": 1} {"id": 2}', [(1, None)]),
    "no Unicode": (rb'{"id": 1, "v": "a\ud800"}', [(1, "a?")]),
    "array": (b'[{"id": 1}, {"id": 2}]', [(1, None), (2, None)]),
}


@pytest.mark.spark
def test_the_exceptions_are_those_that_are_documented(spark: SparkSession, tmp_path: Path) -> None:
    assert sorted(LINES) == sorted(EXCEPTIONS["lines"])
    content = {"a.json": b"\n".join(line for line, _ in LINES.values()) + b"\n"}
    rows, records = file_rows(spark, tmp_path, content, "json", "id INT, v STRING")
    assert sorted(map(tuple, rows), key=repr) == sorted((row for _, taken in LINES.values() for row in taken), key=repr)
    assert records == []
