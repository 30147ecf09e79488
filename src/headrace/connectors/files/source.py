"""Read a directory of files as they land, oldest first."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar, cast
from uuid import uuid4

from headrace import contract
from headrace.checkpoint.relocation import logged_files
from headrace.connectors.files import check as file_check
from headrace.connectors.files import lag as file_lag
from headrace.connectors.files import options as file_options
from headrace.connectors.files.options import FilesOptions, require_patterns
from headrace.connectors.options import spark_options
from headrace.connectors.spark_files import paths as file_paths
from headrace.connectors.spark_files import prefix as file_prefix
from headrace.connectors.values.rules import CORRUPT_RECORD, PLACE, ROW_FORMATS
from headrace.errors import PlatformError, SourceError
from headrace.storage.location import is_known, is_remote, place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader
    from pyspark.sql.types import StructType

    Reader = TypeVar("Reader", DataFrameReader, DataStreamReader)

# The longest time that Spark takes. It takes the same itself where it ignores the age.
NO_AGE_LIMIT = f"{2**63 - 1}ms"


@dataclass(frozen=True, kw_only=True)
class Files(FilesOptions, contract.Source):
    """Files in one directory, or in those that match a glob; each is read once, and never half in one batch.

    Source: Structured Streaming guide, "Input Sources". `schema` is a DDL text; `infer_schema` asks Spark to guess it
    at each start. Key=value directories become columns if the schema names them. Raises SourceError if the directory
    does not exist at start.

    Without a rate limit of the user's a batch takes at most 256 MiB of files (and always one file), because a large lag
    must not become one oversized batch; `max_bytes_per_trigger: unlimited` switches that off.

    max_file_age: a file that is older than the newest one that was read by more than this is never read. Without it
        every file is, whatever its date, and the driver remembers each of them, in about 300 bytes.
    on_bad_row: `fail` stops the query at the first csv or json row that breaks the schema in a column that the query
        reads; `quarantine` takes out every row that breaks the schema in any column.
    inexact: a csv or json value that its type does not hold exactly (1.239 for a DECIMAL(10,2), nanoseconds for a
        TIMESTAMP, a time for a DATE, 1e999 for a DOUBLE, a text with doubled quotes in csv) makes a `bad-row`; `round`
        takes what Spark's reader makes of it.
    clean_source: Spark removes or moves only files of committed batches, so that a batch can always be replayed;
        after `delete` a committed prefix can no longer be read, after `archive` it is read from the archive.
    """

    facts: ClassVar[contract.SourceFacts] = contract.SourceFacts(replayable=True, rate_limited=True)
    tuning_options: ClassVar[tuple[str, ...]] = (
        "max_files_per_trigger",
        "max_bytes_per_trigger",
        "latest_first",
        "clean_source",
        "source_archive_dir",
        "on_bad_row",
    )

    @property
    def readable_as_batch(self) -> bool:
        return self.clean_source != "delete"

    @property
    def quarantines(self) -> bool:
        return self.on_bad_row == "quarantine"

    @property
    def columns_by_position(self) -> bool:
        return self.format == "csv"

    @property
    def archive_path(self) -> str | None:
        return self.source_archive_dir

    def identity(self) -> contract.Identity:
        return {"system": "files", "path": contract.canonical_path(self.path), "format": self.format}

    def declared_schema(self) -> str | None:
        return self.schema

    def stream(self, spark: SparkSession, name: str) -> DataFrame:
        from headrace.connectors.files.texts import add_place
        from headrace.connectors.values.exact import Judged
        from headrace.connectors.values.rows import reuse_columns

        self._require_directory()
        require_patterns(spark, self.format, self.options)
        reader = spark.readStream.name(name).options(**self._reader_options(), **self._stream_options())
        schema = self._schema(spark)
        file_check.look_at_batches(spark)
        # Spark's readers do not heed NOT NULL.
        required = [] if schema is None else [column.name for column in schema.fields if not column.nullable]
        reader = reader.option(file_check.OPTION, json.dumps(required))
        frame = self._load(reader, schema, lambda shaped: add_place(shaped.load(self.path)), (PLACE,))
        rows = Judged(self.rules, frame, schema)
        if self.on_bad_row == "quarantine":
            return rows.good_rows(contract.bad_rows_metric(name))
        return rows.require_readable().select(*reuse_columns(spark, ("stream", *rows.key), rows.check_columns))

    def read(self, spark: SparkSession, prefix: contract.SourcePrefix, *, batch_column: str | None = None) -> DataFrame:
        from headrace.connectors.values.exact import Judged
        from headrace.connectors.values.rows import reuse_columns

        schema = self._schema(spark)
        frame = self._read(spark, prefix, schema, batch_column=batch_column)
        rows = Judged(self.rules, frame, schema, besides=(batch_column,))
        if self.on_bad_row == "quarantine":
            return rows.good_rows(contract.bad_rows_metric(uuid4().hex))
        return rows.require_readable().select(*reuse_columns(spark, ("read", *rows.key), rows.convert_columns))

    @property
    def again(self) -> str:
        return "correct them and let them land again as a new file"

    def rejected_rows(self, spark: SparkSession, prefix: contract.SourcePrefix) -> DataFrame | None:
        """The rows that were quarantined, each with its file and batch."""
        from headrace.connectors.values.exact import Judged

        if self.on_bad_row != "quarantine":
            return None
        schema = self._schema(spark)
        frame = self._read(spark, prefix, schema, batch_column="batch", file_column="file", as_written=True)
        rows = Judged(self.rules, frame, schema, besides=("batch", "file"))
        return rows.bad_rows(contract.bad_rows_metric(uuid4().hex))

    def ensure_available(self, prefix: contract.SourcePrefix) -> None:
        file_prefix.places(file_prefix.files(prefix), self.path, self.source_archive_dir)

    def changed(self, prefix: contract.SourcePrefix) -> contract.OptionError | None:
        """Compare the times of the files, on this machine or in a store that Headrace reaches."""
        return file_prefix.find_change(prefix) if is_known(self.path) else None

    def mismatch(self, prefix: contract.SourcePrefix) -> str:
        return file_prefix.mismatch(prefix, self.path)

    def unreachable(self, spark: SparkSession, prefix: contract.SourcePrefix) -> str:
        """At a first start Spark reads what lies below `path`, and nothing of the archive."""
        try:
            file_prefix.places(file_prefix.files(prefix), self.path, None)
        except SourceError as error:
            return error.findings[0].what
        return ""

    def has_no_effect(self, option: str, value: str, log: Path) -> bool:
        """A limit of age that none of the files is beyond, seen from the newest one; a place that has stayed."""
        if option == "place":
            return self._has_stayed(value, log)
        if option != "max_file_age":
            return False
        times = [file.modified_ms for file in logged_files(log) if file.modified_ms is not None]
        limit = file_options.age_ms(value) if value != "none" else float("inf")
        return limit is not None and (not times or max(times) - min(times) <= limit)

    def _has_stayed(self, place: str, log: Path) -> bool:
        """Whether `place` names this source as it was read: from the project's directory, before that was copied.

        Seen from the original it is within the project, and from the copy it is elsewhere.
        """
        is_named_so = f"/{contract.canonical_path(self.path)}".endswith(f"/{place}")
        home = file_paths.base(file_paths.local(self.path)).rstrip("/")
        files = [file.path for file in logged_files(log)] if is_named_so else []
        return bool(files) and all(file.startswith(f"{home}/") for file in files)

    def since(self, spark: SparkSession, prefix: contract.SourcePrefix) -> Files:
        """It leaves the files to the running query, which may not have read them yet."""
        return replace(self, clean_source="off")

    def lag(self, prefix: contract.SourcePrefix) -> contract.Lag | None:
        """The files of a directory, on this machine or in a store that Headrace reaches, that no batch has taken."""
        return file_lag.look(self, prefix).lag if is_known(self.path) else None

    def left_out(self, prefix: contract.SourcePrefix) -> Iterator[contract.OptionError]:
        """The files of such a directory that Spark will never read, or not as they are now, by their names."""
        if is_known(self.path):
            yield from file_lag.problems(self, file_lag.look(self, prefix))

    def _stream_options(self) -> dict[str, str]:
        named = spark_options(self, "latest_first", "file_name_only", "clean_source", "source_archive_dir")
        chosen = {**self.limits(), **named}
        # Spark's own limit is 7 days before the newest file: one dated ahead would keep all that follow out.
        chosen["maxFileAge"] = NO_AGE_LIMIT if self.max_file_age is None else self.max_file_age
        if file_paths.is_glob(self.path) and self._beginning is not None:
            # Spark fails over key=value directories below a pattern unless it knows where they begin.
            chosen["basePath"] = self._beginning
        return chosen

    def _reader_options(self) -> dict[str, str]:
        chosen: dict[str, str] = {}
        if self.format == "csv":
            # By default Spark takes columns by position and only logs a header that says otherwise.
            chosen["enforceSchema"] = "false"
            # Spark would count the fields of a row only where the query reads them all.
            chosen["columnPruning"] = "false"
        if self.format in ROW_FORMATS:
            chosen["mode"] = "FAILFAST" if self.on_bad_row == "fail" else "PERMISSIVE"
        if self.on_bad_row == "quarantine":
            chosen["columnNameOfCorruptRecord"] = CORRUPT_RECORD
        given = {name: value for name, value in self.options.items() if not self._is_left_out(name)}
        if self.format == "json" and self.rules.is_exact:
            # Otherwise Spark takes NaN and INF, which are no JSON.
            chosen["allowNonNumericNumbers"] = "false"
        if self.reads_bytes:
            chosen["encoding"] = "ISO-8859-1"
        return {**{name: value for name, value in chosen.items() if not self.rules.is_named(name.lower())}, **given}

    def _is_left_out(self, option: str) -> bool:
        """Whether an option must not come to Spark's reader: with an encoding it rewrites what it reads as text."""
        return self.format == "json" and option.lower() in ("encoding", "charset")

    def _schema(self, spark: SparkSession) -> StructType | None:
        """The schema for Spark's reader; None lets a text file be one column."""
        from pyspark.errors import AnalysisException
        from pyspark.sql.types import StringType, StructType

        if self.schema is not None:
            schema = cast(StructType, StructType.fromDDL(self.schema))
        elif self.infer_schema:
            reader = spark.read.format(self.format).options(**self.options).option("inferSchema", "true")
            try:
                schema = reader.load(self.path).schema
            except AnalysisException as error:
                fault = f"no schema can be inferred from '{self.path}': {error.getCondition()}"
                fix = "put a file there first, or give schema: 'name TYPE, ...'"
                raise SourceError(code="HR332", what=fault, fix=fix) from error
        else:
            return None
        return schema.add(CORRUPT_RECORD, StringType()) if self.on_bad_row == "quarantine" else schema

    def _read(
        self,
        spark: SparkSession,
        prefix: contract.SourcePrefix,
        schema: StructType | None,
        *,
        batch_column: str | None,
        file_column: str | None = None,
        as_written: bool = False,
    ) -> DataFrame:
        """The rows as the stream's reader gives them, before any is judged; those of json with their texts if asked."""
        from headrace.connectors.files.texts import add_place

        taken = file_prefix.files(prefix)
        besides = tuple(name for name in (batch_column, file_column) if name is not None)
        if not taken:
            # Only the stream's reader gives a schema, with its key=value columns, without any file.
            stream = spark.readStream.name("nothing").options(**self._reader_options())
            shape = self._load(stream, schema, lambda shaped: add_place(shaped.load(self.path)), (PLACE,)).schema
            return file_prefix.empty_frame(spark, shape, batch_column, file_column)
        reader = spark.read.options(**self._reader_options())
        places = file_prefix.places(taken, self.path, self.source_archive_dir)

        def load(shaped: DataFrameReader) -> DataFrame:
            return file_prefix.frame(shaped, places, batch_column, file_column, place_column=PLACE)

        return self._load(reader, schema, load, (*besides, PLACE), as_written=as_written)

    def _load(
        self,
        reader: Reader,
        schema: StructType | None,
        load: Callable[[Reader], DataFrame],
        besides: tuple[str, ...] = (),
        *,
        as_written: bool = False,
    ) -> DataFrame:
        """Load the declared columns, then others; a column that is judged by its text is loaded as text.

        besides: columns that `load` adds. as_written: the texts of json too.
        """
        from headrace.connectors.files import texts
        from headrace.connectors.values.exact import Exact

        if schema is not None and (self.reads_texts or (as_written and self.format == "json")):
            return texts.read(self, reader, schema, load, besides)
        if schema is not None and as_written and self.format == "csv":
            return texts.read_csv(self, reader, schema, load, self._reader_options())
        shape = None if schema is None else Exact(self.rules, "").as_text(schema)
        frame = load(reader.format(self.format) if shape is None else reader.format(self.format).schema(shape))
        declared = self._select_declared(frame, schema, besides)
        return texts.restore_bytes(declared, () if schema is None else schema.names) if self.reads_bytes else declared

    def _select_declared(self, frame: DataFrame, schema: StructType | None, besides: tuple[str, ...] = ()) -> DataFrame:
        """The declared columns in their order: Spark puts those of key=value directories last, undeclared ones too."""
        names = list(frame.columns) if schema is None else [*schema.names, *besides]
        return frame if frame.columns == names else frame.select(*[f"`{name}`" for name in names])

    def _require_directory(self) -> None:
        if file_paths.is_local(self.path) and (named := file_paths.find_pattern(self.path)):
            fault = f"Spark takes the name of '{named}' for a pattern, and would read other files or none"
            fix = "give that directory a name without the characters * ? [ ] { }"
            raise SourceError(code="HR332", what=fault, fix=fix)
        if self._beginning is None or not is_known(self.path):
            return
        home = place(file_paths.local(self._beginning))
        try:
            # The root of a store is always there.
            is_there = (is_remote(home) and len(home.parts) == 2) or home.is_dir()
        except PlatformError:  # Spark may reach a store by ways that Headrace does not have.
            return
        if not is_there:
            fault = "is not a directory" if home.exists() else "does not exist"
            fix = "create it, or correct the path; files are read as they land in it"
            raise SourceError(code="HR332", what=f"'{home}', where files should land, {fault}", fix=fix)

    @property
    def _beginning(self) -> str | None:
        """The directory that must be there: the path, or a pattern's beginning; None: it comes with the first file."""
        return file_paths.base(self.path)
