"""The options of each connector, written by scripts/signatures.py from the connectors' fields; do not edit."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from headrace.declare.declarations import DeclaredSink, DeclaredSource

class Sources:
    """`hr.source`: a method for each source of this distribution."""

    def delta(
        self,
        path: str | None = None,
        *,
        table: str | None = None,
        starting_version: int | Literal["latest"] | None = None,
        starting_timestamp: str | None = None,
        max_files_per_trigger: int | None = None,
        max_bytes_per_trigger: int | str | None = None,
        ignore_deletes: bool = False,
        ignore_changes: bool = False,
        skip_change_commits: bool = False,
        exclude_regex: str | None = None,
        read_change_feed: bool = False,
        fail_on_data_loss: bool = True,
        watermark: tuple[str, str] | None = None,
        name: str | None = None,
        renamed_from: str | Sequence[str] = (),
    ) -> DeclaredSource:
        """Read a table of Delta Lake, by its `path` or by the name `table` in Spark's own catalog."""

    def files(
        self,
        path: str,
        *,
        format: Literal["text", "csv", "json", "parquet", "orc"],
        schema: str | None = None,
        infer_schema: bool = False,
        max_files_per_trigger: int | None = None,
        max_bytes_per_trigger: int | str | None = None,
        latest_first: bool = False,
        max_file_age: str | None = None,
        file_name_only: bool = False,
        clean_source: Literal["off", "archive", "delete"] = "off",
        source_archive_dir: str | None = None,
        on_bad_row: Literal["fail", "quarantine"] = "fail",
        inexact: Literal["bad-row", "round"] = "bad-row",
        options: Mapping[str, str | int | float | bool] = ...,
        watermark: tuple[str, str] | None = None,
        name: str | None = None,
        renamed_from: str | Sequence[str] = (),
    ) -> DeclaredSource:
        """Files in one directory, or in those that match a glob; each is read once, and never half in one batch."""

    def iceberg(
        self,
        table: str,
        *,
        catalog: str | Mapping[str, str | int | float | bool] = "default",
        starting: Literal["table", "latest"] = "table",
        starting_snapshot: int | None = None,
        starting_timestamp: int | None = None,
        max_files_per_trigger: int | None = None,
        skip_delete_snapshots: bool = False,
        skip_overwrite_snapshots: bool = False,
        watermark: tuple[str, str] | None = None,
        name: str | None = None,
        renamed_from: str | Sequence[str] = (),
    ) -> DeclaredSource:
        """Read the rows of an Iceberg table, named `namespace.table`, and those that are appended to it, oldest
        first."""

    def kafka(
        self,
        bootstrap_servers: str,
        *,
        subscribe: str | Sequence[str] | None = None,
        subscribe_pattern: str | None = None,
        assign: Mapping[str, Sequence[int]] | None = None,
        value: Literal["raw", "text", "json", "avro", "debezium"] = "raw",
        schema: str | None = None,
        debezium_settings: Mapping[str, str | int | float | bool] = ...,
        change_keys: Sequence[str] = (),
        keep: Sequence[str] = (),
        starting_offsets: str | Mapping[str, Mapping[int, int]] = "earliest",
        starting_timestamp: int | None = None,
        max_offsets_per_trigger: int | Literal["unlimited"] | None = None,
        min_offsets_per_trigger: int | None = None,
        max_trigger_delay: str | None = None,
        min_partitions: int | None = None,
        fail_on_data_loss: bool = True,
        include_headers: bool = False,
        topic_ids: Mapping[str, str | int | float | bool] = ...,
        on_bad_row: Literal["fail", "quarantine"] = "fail",
        inexact: Literal["bad-row", "round"] = "bad-row",
        options: Mapping[str, str | int | float | bool] = ...,
        watermark: tuple[str, str] | None = None,
        name: str | None = None,
        renamed_from: str | Sequence[str] = (),
    ) -> DeclaredSource:
        """Messages of the topics that `subscribe`, `subscribe_pattern` or `assign` names; one of the three is
        needed."""

    def python(
        self,
        source: Any,
        *,
        options: Mapping[str, str | int | float | bool] = ...,
        schema: str | None = None,
        replayable: bool = False,
        watermark: tuple[str, str] | None = None,
        name: str | None = None,
        renamed_from: str | Sequence[str] = (),
    ) -> DeclaredSource:
        """Rows that a class of the user's gives: a `pyspark.sql.datasource.DataSource` with `streamReader` or
        `simpleStreamReader`."""

    def rate(
        self,
        rows_per_second: int = 1,
        *,
        ramp_up_time: str | None = None,
        num_partitions: int | None = None,
        watermark: tuple[str, str] | None = None,
        name: str | None = None,
        renamed_from: str | Sequence[str] = (),
    ) -> DeclaredSource:
        """Rows of (timestamp, value), `rows_per_second` of them; value counts from 0."""

    def rate_micro_batch(
        self,
        rows_per_batch: int,
        *,
        num_partitions: int | None = None,
        start_timestamp: int = 0,
        advance_millis_per_batch: int = 1000,
        watermark: tuple[str, str] | None = None,
        name: str | None = None,
        renamed_from: str | Sequence[str] = (),
    ) -> DeclaredSource:
        """Rows of (timestamp, value), `rows_per_batch` in each batch; all rows of a batch bear one timestamp."""

    def socket(
        self,
        host: str,
        *,
        port: int,
        include_timestamp: bool = False,
        watermark: tuple[str, str] | None = None,
        name: str | None = None,
        renamed_from: str | Sequence[str] = (),
    ) -> DeclaredSource:
        """Lines of UTF-8 text as rows of (value), or of (value, timestamp) with `include_timestamp`: when each came."""

    def table(
        self,
        table: str,
        *,
        max_files_per_trigger: int | None = None,
        options: Mapping[str, str | int | float | bool] = ...,
        watermark: tuple[str, str] | None = None,
        name: str | None = None,
        renamed_from: str | Sequence[str] = (),
    ) -> DeclaredSource:
        """Read the files of a table in one of Spark's file formats, each once, oldest first."""

    # Those of other distributions, whose options are known at run time only.
    def __getattr__(self, kind: str) -> Callable[..., DeclaredSource]: ...

class Sinks:
    """`hr.sink`: a method for each sink of this distribution."""

    def console(
        self,
        num_rows: int = 20,
        *,
        truncate: bool = True,
    ) -> DeclaredSink:
        """Print the first `num_rows` rows of every batch, cut after 20 characters if `truncate`."""

    def delta(
        self,
        path: str | None = None,
        *,
        table: str | None = None,
        renamed_from: str = "",
        key: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        on_schema_change: Literal["refuse", "add"] = "refuse",
    ) -> DeclaredSink:
        """Write a table of Delta Lake, by its `path` or by the name `table` in Spark's catalog; each batch is one
        version."""

    def files(
        self,
        path: str,
        *,
        format: Literal["text", "csv", "json", "parquet", "orc"] = "parquet",
        partition_by: Sequence[str] = (),
        retention: str | None = None,
        options: Mapping[str, str | int | float | bool] = ...,
    ) -> DeclaredSink:
        """Files below `path`; Spark's own log there (`_spark_metadata`) says which of them count."""

    def foreach(
        self,
        function: Any,
        *,
        idempotent: bool = False,
    ) -> DeclaredSink:
        """Each row goes to `function`: a function of a row, or an object (or its class) with a method
        `process(row)`."""

    def foreach_batch(
        self,
        function: Any,
        *,
        cache: bool = True,
        idempotent: bool = False,
    ) -> DeclaredSink:
        """Each batch goes to `function(frame, batch)`: its rows as a DataFrame that is not a stream, and its number."""

    def iceberg(
        self,
        table: str,
        *,
        catalog: str | Mapping[str, str | int | float | bool] = "default",
        partition_by: Sequence[str] = (),
        renamed_from: str = "",
    ) -> DeclaredSink:
        """Write an Iceberg table, named `namespace.table`; each batch is one commit, which has its number as a
        property."""

    def kafka(
        self,
        bootstrap_servers: str,
        *,
        topic: str | None = None,
        value: Literal["raw", "json"] = "json",
        key: Sequence[str] = (),
        async_progress: str | None = None,
        delivery_guarantee: Literal["at-least-once", "exactly-once"] = "at-least-once",
        ledger_topic: str | None = None,
        retry_seconds: float = 60.0,
        producer: Mapping[str, str | int | float | bool] = ...,
        options: Mapping[str, str | int | float | bool] = ...,
    ) -> DeclaredSink:
        """Send a message for each row to `topic`, or to the topic that the row's own column `topic` names."""

    def memory(
        self,
    ) -> DeclaredSink:
        """Keep the result in a temporary view, named after the query and gone with the session."""

    def mysql(
        self,
        url: str,
        *,
        table: str,
        key: Sequence[str] = (),
        renamed_from: str = "",
        on_bad_row: Literal["fail", "quarantine"] = "fail",
        on_schema_change: Literal["refuse", "add"] = "refuse",
        retry_seconds: float = 60.0,
        silence_seconds: float = 30.0,
        rewindable: str | None = None,
        tls: Literal["", "verify-full"] = "",
        tls_ca: str = "",
        ask_url: str = "",
    ) -> DeclaredSink:
        """Write a table in a MySQL 8 or MariaDB 10.11 database; each batch is one transaction with its line in the
        ledger."""

    def postgres(
        self,
        url: str,
        *,
        schema: str = "",
        table: str,
        key: Sequence[str] = (),
        renamed_from: str = "",
        on_bad_row: Literal["fail", "quarantine"] = "fail",
        on_schema_change: Literal["refuse", "add"] = "refuse",
        retry_seconds: float = 60.0,
        silence_seconds: float = 30.0,
        rewindable: str | None = None,
        tls: Literal["", "verify-full"] = "",
        tls_ca: str = "",
        ask_url: str = "",
    ) -> DeclaredSink:
        """Write a table in a PostgreSQL database; each batch is one transaction with its line in the ledger."""

    def sqlite(
        self,
        path: str,
        *,
        table: str,
        key: Sequence[str] = (),
        renamed_from: str = "",
        on_bad_row: Literal["fail", "quarantine"] = "fail",
        on_schema_change: Literal["refuse", "add"] = "refuse",
        retry_seconds: float = 60.0,
        silence_seconds: float = 30.0,
        rewindable: str | None = None,
    ) -> DeclaredSink:
        """Write a table in the SQLite file `path`; each batch is one transaction with its line in the ledger."""

    def table(
        self,
        table: str,
        *,
        format: Literal["text", "csv", "json", "parquet", "orc"] = "parquet",
        partition_by: Sequence[str] = (),
        options: Mapping[str, str | int | float | bool] = ...,
    ) -> DeclaredSink:
        """Files of a table, named `table` or `database.table`; Spark's log among them says which of them count."""

    # Those of other distributions, whose options are known at run time only.
    def __getattr__(self, kind: str) -> Callable[..., DeclaredSink]: ...
