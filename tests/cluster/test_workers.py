"""What a worker's Python lacks is reported before a query starts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import load
from headrace.cluster.connection import inspect_workers, require_storage, require_workers
from headrace.errors import PlatformError
from tests.runner.projects import write_project
from tests.storage.stores import memory_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERY = "q = hr.query(sink={sink}, name='q')(lambda events: events)"


@pytest.mark.spark
def test_a_package_that_a_worker_lacks_is_named(spark: SparkSession) -> None:
    require_workers(spark, ("py4j",))
    [worker] = inspect_workers(spark, ("pyarrow", "no-such-package"))
    assert [name for name, version in worker.packages.items() if version is None] == ["no-such-package"]
    with pytest.raises(PlatformError, match="lacks no-such-package in its Python 3") as raised:
        require_workers(spark, ("no-such-package",))
    assert raised.value.findings[0].code == "HR826"


@pytest.mark.plain
@pytest.mark.parametrize(
    ("output", "words"),
    [
        (
            "PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in "
            "driver: 3.11, PySpark cannot run with different minor versions.",
            "the workers have Python 3.9, and the driver 3.11",
        ),
        ('java.io.IOException: Cannot run program "python3.99": error=2', "no program 'python3.99'"),
    ],
)
def test_a_python_that_does_not_start_is_reported(output: str, words: str) -> None:
    from headrace.cluster.connection import _worker_refusal

    finding = _worker_refusal(output, "3.11")
    assert finding is not None
    assert finding.code == "HR826"
    assert words in finding.what


@pytest.mark.plain
def test_another_failure_is_no_matter_of_the_workers_python() -> None:
    from headrace.cluster.connection import _worker_refusal

    assert _worker_refusal("java.lang.OutOfMemoryError: Java heap space", "3.11") is None


@pytest.mark.spark
def test_a_storage_that_workers_do_not_see_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    storage = tmp_path / "a, [b]" / "storage"
    require_storage(spark, storage)
    assert list(storage.iterdir()) == []
    with memory_store("nowhere.invalid") as (store, root), pytest.raises(PlatformError, match="cannot read") as raised:
        require_storage(spark, root / "storage")
    assert raised.value.findings[0].code == "HR859"
    assert store.files == {}


@pytest.mark.plain
def test_each_connector_names_what_its_tasks_import(tmp_path: Path) -> None:
    from headrace.frames.project_session import worker_packages

    sinks = {
        "hr.sink.postgres('postgresql://u@h/d', table='t', key=['name'])": {"psycopg"},
        "hr.sink.mysql('mysql://u@h/d', table='t', key=['name'])": {"pymysql"},
        "hr.sink.iceberg('db.t', catalog={'type': 'sql', 'uri': 'sqlite://'})": {"pyiceberg"},
        "hr.sink.files('out')": set(),
    }
    by_sink = {
        sink: worker_packages(load(write_project(tmp_path / str(number), QUERY.format(sink=sink))))
        for number, sink in enumerate(sinks)
    }
    assert by_sink == sinks
