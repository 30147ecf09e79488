"""What is wrong with a query of change data is found before it starts, with its line, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.checks.structure import check_structure
from headrace.contract import ChangeOptions
from headrace.declare.decorators import cdc
from headrace.errors import ProjectError
from headrace.loader import load
from headrace.loader.schema import schema
from headrace.spark.ddl import with_not_null

pytestmark = pytest.mark.plain

BASE = """\
sources:
  customers:
    files: {path: landing, format: json, schema: "id BIGINT, city STRING, op STRING, version BIGINT, at DOUBLE"}
  others: {rate: {}}
queries:
  copy:
    select: SELECT id, city FROM customers
    sink: {sqlite: {path: out.db, table: customers}}
    cdc:
      keys: [id]
      sequence_by: version
"""


def findings(root: Path, text: str) -> list[tuple[str, int | None, str]]:
    (root / "landing").mkdir(exist_ok=True)
    (root / "headrace.yml").write_text(text)
    try:
        findings = list(check_structure(load(root, environ={})))
    except ProjectError as error:
        findings = list(error.findings)
    return [(finding.code, finding.where.line, finding.what) for finding in findings if finding.severity == "error"]


FAULTS = {
    "no keys": ("      keys: [id]\n", "", "HR112", 9, "are not named"),
    "an option that there is not": ("      sequence_by", "      sequenced_by: x\n      sequence_by", "HR103", 11, ""),
    "SCD type 3": ("version\n", "version\n      stored_as_scd_type: 3\n", "HR113", 12, "takes 1"),
    "a history without history": ("version\n", "version\n      start_column: since\n", "HR113", 12, "no meaning"),
    "two lists": (
        "version\n",
        "version\n      column_list: [id]\n      except_column_list: [op]\n",
        "HR113",
        13,
        "both",
    ),
    "a time that is none": ("version\n", "version\n      keep_deletes: 7\n", "HR104", 12, "no unit"),
    "a mode too": ("    cdc:", "    mode: append\n    cdc:", "HR104", 9, "cdc and mode"),
    "no sequence": ("      sequence_by: version\n", "", "HR299", 6, "says no order itself"),
    "an unknown sequence": ("sequence_by: version", "sequence_by: versions", "HR214", 6, "no column of 'customers'"),
    "a sequence without order": ("sequence_by: version", "sequence_by: at", "HR299", 6, "DOUBLE"),
    "a field without order": ("sequence_by: version", "sequence_by: struct(version, `at`)", "HR299", 6, "'at'"),
    "an unknown field": ("sequence_by: version", "sequence_by: [version, versions]", "HR214", 6, "'versions'"),
    "a history by two columns": (
        "sequence_by: version",
        "sequence_by: [op, version]\n      stored_as_scd_type: 2",
        "HR299",
        6,
        "one value",
    ),
    "a key that is not written": ("version\n", "version\n      column_list: [city]\n", "HR214", 6, "its key 'id'"),
    "one name for both ends": (
        "version\n",
        "version\n      stored_as_scd_type: 2\n      start_column: a\n      end_column: A\n",
        "HR109",
        6,
        "both ends",
    ),
    "two sources": ("FROM customers", "FROM customers, others", "HR297", 6, "'customers', 'others'"),
    "a sink of files": ("{sqlite: {path: out.db, table: customers}}", "{files: {path: out}}", "HR298", 6, "files"),
    "a topic": (
        "{sqlite: {path: out.db, table: customers}}",
        '{kafka: {bootstrap_servers: "b:9092", topic: t}}',
        "HR298",
        6,
        "kafka",
    ),
    "a history in Delta": (
        "{sqlite: {path: out.db, table: customers}}\n    cdc:",
        "{delta: {path: out}}\n    cdc:\n      stored_as_scd_type: 2",
        "HR298",
        6,
        "history of a key again",
    ),
    "a table of Iceberg": (
        "{sqlite: {path: out.db, table: customers}}",
        "{iceberg: {table: shop.out}}",
        "HR298",
        6,
        "no update mode",
    ),
    "deletes too": ("    cdc:", "    delete_when: op = 'D'\n    cdc:", "HR104", 9, "cdc and delete_when"),
    "a trigger without batches": ("    cdc:", "    trigger: {continuous: 1 second}\n    cdc:", "HR261", 6, "batch by"),
}


@pytest.mark.parametrize(("old", "new", "code", "line", "words"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_reported_at_its_line(tmp_path: Path, old: str, new: str, code: str, line: int, words: str) -> None:
    assert findings(tmp_path, BASE) == []
    assert old in BASE
    faults = findings(tmp_path, BASE.replace(old, new, 1))
    assert [(given, where) for given, where, sentence in faults if given == code and words in sentence] == [
        (code, line)
    ], faults


ORDINARY = """\
sources:
  orders: {files: {path: landing, format: json, schema: "id BIGINT, closed BOOLEAN"}}
queries:
  open:
    select: SELECT id, closed FROM orders
    mode: update
    delete_when: closed
    sink: {sqlite: {path: out.db, table: open, key: [id]}}
"""
DELETE_FAULTS = {
    "append mode": ("mode: update", "mode: append", "HR298", 4, "append mode, in which a row that was written stays"),
    "complete mode": ("mode: update", "mode: complete", "HR298", 4, "each batch has the whole result"),
    "an empty condition": ("delete_when: closed", "delete_when: ' '", "HR104", 7, "delete_when is empty"),
    "a topic": (
        "{sqlite: {path: out.db, table: open, key: [id]}}",
        '{kafka: {bootstrap_servers: "b:9092", topic: t}}',
        "HR298",
        4,
        "the sink kafka cannot delete rows by key",
    ),
}


@pytest.mark.parametrize(("old", "new", "code", "line", "words"), DELETE_FAULTS.values(), ids=DELETE_FAULTS)
def test_a_fault_of_deletes_is_reported_at_its_line(
    tmp_path: Path, old: str, new: str, code: str, line: int, words: str
) -> None:
    assert findings(tmp_path, ORDINARY) == []
    assert old in ORDINARY
    faults = findings(tmp_path, ORDINARY.replace(old, new, 1))
    assert [(given, where) for given, where, sentence in faults if given == code and words in sentence] == [
        (code, line)
    ], faults


def test_the_sink_of_a_query_gets_its_options(tmp_path: Path) -> None:
    (tmp_path / "headrace.yml").write_text(
        BASE + "      stored_as_scd_type: 2\n      track_history_column_list: [city]\n      keep_deletes: 1 hour\n"
    )
    project = load(tmp_path, environ={})
    options: Any = getattr(project.queries["copy"].sink, "applies")  # noqa: B009
    assert options == ChangeOptions(
        keys=("id",), sequence_type="BIGINT", scd_type=2, tracked=("city",), keep_deletes=3600
    )
    assert project.queries["copy"].mode == "update"


def test_a_row_without_sequence_or_key_is_a_bad_row_of_its_source(tmp_path: Path) -> None:
    (tmp_path / "headrace.yml").write_text(BASE)
    declared = load(tmp_path, environ={}).sources["customers"].connector.declared_schema()
    assert declared == "id BIGINT NOT NULL, city STRING, op STRING, version BIGINT NOT NULL, at DOUBLE"
    (tmp_path / "headrace.yml").write_text(BASE + "      apply_as_truncates: op = 'T'\n")
    declared = load(tmp_path, environ={}).sources["customers"].connector.declared_schema()
    assert declared == "id BIGINT, city STRING, op STRING, version BIGINT NOT NULL, at DOUBLE"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        pytest.param("id INT, b STRING", "id INT NOT NULL, b STRING", id="plain"),
        pytest.param("`id` INT NOT NULL,b INT", "`id` INT NOT NULL,b INT", id="there already"),
        pytest.param("b STRUCT<id: INT, c: INT>, id INT", "b STRUCT<id: INT, c: INT>, id INT NOT NULL", id="nested"),
        pytest.param(
            "id DECIMAL(10, 2) COMMENT 'a, b', b INT", "id DECIMAL(10, 2) NOT NULL COMMENT 'a, b', b INT", id="comment"
        ),
    ],
)
def test_a_column_of_a_schema_is_made_not_null(text: str, written: str) -> None:
    assert with_not_null(text, {"id"}) == written


def test_python_declares_what_yaml_does() -> None:
    @cdc(
        sink=hr.sink.sqlite("out.db", table="customers"),
        keys=["id"],
        sequence_by="version",
        stored_as_scd_type=2,
        track_history_except_column_list=["city"],
    )
    def copy(customers: Any) -> Any:
        """Return the customers."""
        return customers

    assert copy.cdc is not None
    assert (copy.name, copy.mode, copy.description) == ("copy", "update", "Return the customers.")
    assert (copy.cdc.keys, copy.cdc.sequence_by, copy.cdc.stored_as_scd_type) == (("id",), ("version",), 2)
    assert copy.cdc.track_history_except_column_list == ("city",)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        pytest.param({"keys": []}, "HR112", id="no key"),
        pytest.param({"keys": ["id", "id"]}, "HR113", id="a key twice"),
        pytest.param({"keys": ["id"], "stored_as_scd_type": 3}, "HR113", id="type 3"),
        pytest.param({"keys": ["id"], "ignore_null_updates": "perhaps"}, "HR113", id="no truth value"),
    ],
)
def test_a_wrong_argument_is_reported(options: dict[str, Any], code: str) -> None:
    declare: Callable[..., Any] = cdc(sink=hr.sink.sqlite("out.db", table="t"), **options)

    def copy(customers: Any) -> Any:
        return customers

    with pytest.raises(ProjectError) as error:
        declare(copy)
    assert error.value.findings[0].code == code


def test_editors_know_the_options() -> None:
    made = schema()["properties"]["queries"]["additionalProperties"]["properties"]["cdc"]
    assert made["required"] == ["keys"]
    assert made["properties"]["stored_as_scd_type"]["anyOf"][0] == {"enum": [1, 2]}
    assert all(option.get("description") for option in made["properties"].values())
