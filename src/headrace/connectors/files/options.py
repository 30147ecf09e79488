"""The options of the file source, and what is wrong with them; only patterns are asked of Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from headrace.connectors.options import no_length
from headrace.connectors.spark_files import paths as file_paths
from headrace.connectors.spark_files.formats import unknown_options
from headrace.connectors.values.rules import ROW_FORMATS, TextRules
from headrace.contract import OptionError, ProjectPath
from headrace.errors import Finding, SourceError
from headrace.spark import ddl
from headrace.units import size_bytes, spark_milliseconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNLIMITED = "unlimited"
DEFAULT_MAX_BYTES = 256 * 1024 * 1024

_OURS = {"mode", "columnnameofcorruptrecord", "basepath", "path", "maxfilespertrigger", "maxbytespertrigger"}
_OURS |= {"latestfirst", "maxfileage", "filenameonly", "cleansource", "sourcearchivedir"}
# Options whose patterns of dates and times Spark looks at only in the first batch.
_PATTERNS = frozenset({"timestampformat", "timestampntzformat", "dateformat", "timeformat"})


def size(text: int | str) -> int | None:
    """The number of bytes that `64m` means, or None."""
    return size_bytes(str(text), iec=True)


def age_ms(text: str) -> float | None:
    """The milliseconds that `7d` means to Spark, or None."""
    age = spark_milliseconds(text)
    return None if age is None or age < 0 else age


@dataclass(frozen=True, kw_only=True)
class FilesOptions:
    """The options of the file source."""

    path: ProjectPath
    format: Literal["text", "csv", "json", "parquet", "orc"]
    schema: str | None = None
    infer_schema: bool = False
    max_files_per_trigger: int | None = None
    max_bytes_per_trigger: int | str | None = None
    latest_first: bool = False
    max_file_age: str | None = None
    file_name_only: bool = False
    clean_source: Literal["off", "archive", "delete"] = "off"
    source_archive_dir: ProjectPath | None = None
    on_bad_row: Literal["fail", "quarantine"] = "fail"
    inexact: Literal["bad-row", "round"] = "bad-row"
    options: Mapping[str, str] = field(default_factory=dict)

    def problems(self) -> Iterator[OptionError]:
        """Every fault of the options."""
        if not self.path:
            yield _wrong("path is empty", "give the directory in which the files land")
        yield from _schema(self)
        if self.on_bad_row == "quarantine" and self.format not in ROW_FORMATS:
            fault = f"on_bad_row: quarantine looks at rows, and a {self.format} file is good or bad as a whole"
            yield _wrong(fault, "choose on_bad_row: fail, or csv or json files")
        yield from _limits(self)
        yield from _cleaning(self)
        given = {name: value for name, value in self.options.items() if name.lower() not in _OURS}
        yield from unknown_options(self.format, given)
        for option in self.options:
            if option.lower() in _OURS:
                fix = "use the source's own field: on_bad_row, max_files_per_trigger, clean_source, ..."
                yield _wrong(f"options may not set '{option}', which the source sets itself", fix)

    @property
    def rules(self) -> TextRules:
        """The rules by which its values are judged."""
        return TextRules(
            format=self.format,
            is_exact=self.inexact == "bad-row",
            has_bytes=self.format == "text" or self.reads_bytes,
            options=self.options,
        )

    @property
    def encoding(self) -> str:
        """The encoding that `options` name, in upper case; UTF-8 if none."""
        named = (value for name, value in self.options.items() if name.lower() in ("encoding", "charset"))
        return next(named, "UTF-8").upper()

    @property
    def reads_texts(self) -> bool:
        """Whether json is read as texts that `connectors/values` parses, because Spark's reader changes them.

        With an encoding it rounds numbers that are read as text; with multiLine it reads a file's first value only.
        """
        return self.format == "json" and (self.encoding not in ("UTF-8", "UTF8") or self.is_multi_line)

    @property
    def is_multi_line(self) -> bool:
        return any(name.lower() == "multiline" and value.lower() == "true" for name, value in self.options.items())

    @property
    def reads_bytes(self) -> bool:
        """Whether csv is read byte by byte, which separates U+FFFD from what is not UTF-8.

        Spark's reader puts U+FFFD in the place of such bytes. In Latin-1 each byte is a character, so that options and
        names of columns must be ASCII. With multiLine the mark at the beginning of a file would be lost.
        """
        given = {name.lower() for name in self.options}
        texts = f"{self.schema}{''.join(self.options.values())}"
        is_plain = given.isdisjoint(("encoding", "charset", "multiline")) and texts.isascii()
        return self.format == "csv" and is_plain and self.schema is not None

    def limits(self) -> dict[str, str]:
        """Spark's option for the rate limit, the user's or ours; empty where there is none."""
        if self.max_files_per_trigger is not None:
            return {"maxFilesPerTrigger": str(self.max_files_per_trigger)}
        if self.max_bytes_per_trigger == UNLIMITED:
            return {}
        given = self.max_bytes_per_trigger
        return {"maxBytesPerTrigger": str(DEFAULT_MAX_BYTES if given is None else size(given))}


def _wrong(fault: str, fix: str, severity: Literal["error", "warning"] = "error") -> OptionError:
    return OptionError(what=fault, fix=fix, severity=severity)


def _schema(source: FilesOptions) -> Iterator[OptionError]:
    if source.schema is None and not source.infer_schema and source.format != "text":
        fix = "give schema: 'name TYPE, ...', or infer_schema: true to let Spark guess it at each start"
        yield _wrong(f"a {source.format} file source needs a schema", fix)
    if source.schema is not None:
        yield from ddl.problems(source.schema)
    if source.schema is not None and source.infer_schema:
        fault = "infer_schema has no effect, because a schema is given"
        yield _wrong(fault, "leave out one of the two", "warning")


def _limits(source: FilesOptions) -> Iterator[OptionError]:
    files, most = source.max_files_per_trigger, source.max_bytes_per_trigger
    if files is not None and most is not None:
        yield _wrong("max_files_per_trigger and max_bytes_per_trigger are both given", "keep one of the two")
    if files is not None and files <= 0:
        yield _wrong(f"max_files_per_trigger is {files}", "give a number above 0, or leave it out")
    if most is not None and most != UNLIMITED and not size(most):
        yield _wrong(f"max_bytes_per_trigger '{most}' is not a size", "write for example 64m, 1g or unlimited")
    if source.max_file_age is None:
        return
    yield from no_length("max_file_age", source.max_file_age, "7d or 12h")
    if source.latest_first and source.limits():
        fault = "max_file_age is ignored by Spark, because latest_first is used with a rate limit"
        fix = "leave out max_file_age or latest_first, or give max_bytes_per_trigger: unlimited"
        yield _wrong(fault, fix, "warning")


def _cleaning(source: FilesOptions) -> Iterator[OptionError]:
    archive = source.source_archive_dir
    if source.clean_source != "archive":
        if archive is not None:
            fault = "source_archive_dir has no effect without clean_source: archive"
            yield _wrong(fault, "add clean_source: archive, or leave out source_archive_dir", "warning")
    elif archive is None:
        yield _wrong("clean_source: archive needs source_archive_dir", "name a directory for the files that were read")
    elif not (file_paths.is_local(source.path) and file_paths.is_local(archive)) and (
        urlsplit(source.path)[:2] != urlsplit(archive)[:2]
    ):
        fault = f"the archive '{archive}' is not on the file system of '{source.path}'"
        yield _wrong(fault, "choose a directory on the same file system")
    elif file_paths.would_match(source.path, archive):
        fault = f"files archived in '{archive}' would match '{source.path}' and be read again"
        yield _wrong(fault, "choose an archive directory next to the source's path, neither in it nor above it")


def require_patterns(spark: SparkSession, format_: str, options: Mapping[str, str]) -> None:
    """Raise SourceError with each pattern among `options` that Spark cannot read by, as the session's settings are."""
    given = {name: text for name, text in options.items() if name.lower() in _PATTERNS}
    wrong = [name for name, text in given.items() if format_ in ("csv", "json") and not _is_pattern(spark, text)]
    if wrong:
        raise SourceError([_no_pattern(name, given[name]) for name in wrong])


def _is_pattern(spark: SparkSession, text: str) -> bool:
    from pyspark.errors import IllegalArgumentException, SparkRuntimeException, SparkUpgradeException

    try:
        # A text that does not fit is NULL; a wrong pattern is refused, some without a condition. No job runs.
        spark.sql("SELECT try_to_timestamp('x', :pattern)", args={"pattern": text}).collect()
    except (IllegalArgumentException, SparkRuntimeException, SparkUpgradeException):
        return False
    return True


def _no_pattern(name: str, text: str) -> Finding:
    return Finding(
        code="HR113",
        what=f"options: {name} is '{text}', which is not a pattern that Spark reads dates and times by",
        fix="write letters that stand for themselves in single quotes, as yyyy-MM-dd'T'HH:mm:ss; letters of weeks, "
        "quarters and names of days cannot be read by",
    )
