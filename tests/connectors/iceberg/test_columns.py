"""A result's columns in an Iceberg table: every type comes back as it was, without a JVM."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.connectors.exactly_once import KeptLine
from headrace.connectors.iceberg.batches import PROPERTY, TableLedger, Writing, require_ours
from headrace.connectors.iceberg.files import DataFileReading, with_nulls
from headrace.connectors.iceberg.table import PartitionField, arrow_schema, find_unsupported
from headrace.contract import SinkContext
from headrace.errors import CheckpointError, SinkError
from tests.connectors.iceberg import tables as iceberg_tables

pytestmark = pytest.mark.plain

TEXT = types.StringType()
NAMES = types.StructType([types.StructField("x", types.DoubleType()), types.StructField("y", TEXT)])
MOMENT = datetime(2024, 2, 29, 23, 59, 59, 999999)
KINDS: list[tuple[str, types.DataType, Any]] = [
    ("a", types.BooleanType(), True),
    ("b", types.ByteType(), -128),
    ("c", types.ShortType(), 32767),
    ("d", types.IntegerType(), -(2**31)),
    ("e", types.LongType(), 2**63 - 1),
    ("f", types.FloatType(), 0.5),
    ("g", types.DoubleType(), 1e300),
    ("h", types.DecimalType(38, 9), Decimal("-12345678901234567890123456789.123456789")),
    ("i", TEXT, "é\u0000 😀"),
    ("j", types.BinaryType(), b"\x00\xff"),
    ("k", types.DateType(), date(1, 1, 1)),
    ("l", types.TimestampType(), MOMENT.replace(tzinfo=timezone.utc)),
    ("m", types.TimestampNTZType(), MOMENT),
    ("n", types.ArrayType(NAMES), [{"x": 1.5, "y": None}, None]),
    ("o", types.MapType(TEXT, types.ArrayType(TEXT)), [("k", ["v", None])]),
    ("p", types.MapType(TEXT, NAMES), [("k", {"x": None, "y": "z"}), ("l", None)]),
    ("q", types.StructType([types.StructField("inside", types.ArrayType(types.ArrayType(NAMES)))]), {"inside": [None]}),
    ("r", types.ArrayType(NAMES), []),
]


def test_every_type_comes_back_as_it_was(tmp_path: Path) -> None:
    import pickle

    schema = types.StructType([types.StructField(name, kind) for name, kind, _ in KINDS])
    assert list(find_unsupported(schema)) == []
    table = iceberg_tables.table(tmp_path, "db.kinds", arrow_schema(schema))
    given = [{name: value for name, _, value in KINDS}, {name: None for name, _, _ in KINDS}]
    rows = pa.Table.from_pylist(given, schema=to_arrow_schema(schema, timezone="UTC"))
    writing = pickle.loads(pickle.dumps(Writing(table.metadata, table.io, "it")))
    files = [pickle.loads(file) for made in writing(iter(rows.to_batches())) for file in made["file"].to_pylist()]
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as update:
        for file in files:
            update.append_data_file(file)
    reading = pickle.loads(pickle.dumps(DataFileReading(table.metadata, table.io, schema.json())))
    rows_back = [row for task in table.scan().plan_files() for part in reading.rows(task) for row in part.to_pylist()]
    assert rows_back == given


@pytest.mark.parametrize("begin", [0, 1, 4], ids=["whole", "begins with NULL", "cut out"])
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.list_(pa.struct([("x", pa.int32())])), [[{"x": 1}, None], None, []]),
        (pa.large_list(pa.struct([("x", pa.int32())])), [[{"x": 1}, None], None, []]),
        (pa.map_(pa.string(), pa.struct([("x", pa.int32())])), [[("k", {"x": 1}), ("l", None)], None, []]),
    ],
    ids=["list", "large list", "map"],
)
def test_null_arrays_of_structs_stay_null(kind: pa.DataType, values: list[Any], begin: int) -> None:
    given = pa.array(values * 3, kind).slice(begin)
    if pa.types.is_map(kind):
        without = pa.MapArray.from_arrays(given.offsets, given.keys, given.items, kind)
    else:
        without = (pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray).from_arrays(
            given.offsets, given.values
        )
    assert without.null_count == 0
    array = with_nulls(without, given)
    array.validate(full=True)
    assert array.to_pylist() == given.to_pylist()


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (types.DayTimeIntervalType(), "column 'x' is of type interval day to second"),
        (types.ArrayType(types.ByteType()), "column 'x' is of type array<tinyint>"),
        (types.NullType(), "column 'x' is of type void"),
    ],
)
def test_a_type_that_iceberg_does_not_have_is_named(kind: types.DataType, says: str) -> None:
    (sentence,) = find_unsupported(types.StructType([types.StructField("x", kind)]))
    assert sentence == f"{says}, which Iceberg does not have"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("name", "name"),
        ("Day( time )", "day(time)"),
        ("bucket(16,id)", "bucket(16, id)"),
        ("truncate(4, name)", "truncate(4, name)"),
        ("bucket(id)", None),
        ("day(3, time)", None),
        ("week(time)", None),
        ("a b", None),
    ],
)
def test_what_a_table_can_be_partitioned_by(text: str, shown: str | None) -> None:
    part = PartitionField.of(text)
    assert (part and str(part)) == shown


@pytest.mark.parametrize(
    ("query", "generation", "batch", "says"),
    [
        ("q", 2, 4, None),
        ("q", 1, 4, "still holds the result of generation 1 of 'q'"),
        ("q", 1, -1, None),
        ("q", 3, 4, "HR410.*generation 3 of 'q', and the storage knows none after 2"),
        ("other", 2, -1, "belongs to query 'other'"),
    ],
)
def test_a_table_takes_the_rows_of_one_generation_of_one_query(
    tmp_path: Path, query: str, generation: int, batch: int, says: str | None
) -> None:
    table = iceberg_tables.table(tmp_path, "db.t")
    lines = () if batch < 0 else (KeptLine(batch=batch, checkpoint="c"),)
    whose = {"query_id": query, "query": query, "generation": generation, "application": "unnamed"}
    ledger = TableLedger(**whose, epoch="e", result="{}", lines=lines)  # type: ignore[arg-type]
    with table.transaction() as transaction:
        transaction.set_properties({PROPERTY: ledger.dumps()})
    context = SinkContext(query="q", generation=2, mode="append", checkpoint=tmp_path)
    if says is None:
        require_ours(table, "it", context)
    else:
        with pytest.raises((SinkError, CheckpointError), match=says):
            require_ours(table, "it", context)
