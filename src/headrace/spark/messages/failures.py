"""Why a streaming query ended with an error, as one finding."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import unquote

from headrace.contract import Connector, Failure
from headrace.errors import Finding, HeadraceError, Where
from headrace.findings import OF_HDFS
from headrace.spark.messages import bad_records
from headrace.spark.messages.refusals import is_one_of, tidy

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

Installed: TypeAlias = Callable[[], Iterable[Failure]]
# Where a worker died, as by the kernel's out-of-memory killer, only its connection may show it: an end of the stream or
# of the socket that Spark's reader of the worker met. A damaged file of the state or a zipped input ends in the same
# exceptions, met by other readers; the first line of Spark's own in the trace says which. Trying those again would only
# delay what no attempt can fix.
_CONNECTION = re.compile(
    r"java\.(?:io\.EOFException|net\.SocketException)[^\n]*\n"
    r"(?:\s+at (?!org\.apache\.spark\.)[^\n]*\n)*"
    r"\s+at org\.apache\.spark\.(?:api\.python|sql\.execution\.python)\."
)


@dataclass(frozen=True)
class Known:
    """A failure of a running query, known by an error condition or by words of Spark's message.

    conditions: of Spark, Delta or Kafka, as their messages have them in brackets. `what` takes the pattern's groups.
    lines: finds the lines with the fault by these groups; `what` takes {row} and {more} of it then. of_files: Spark
    says the same where the store of a file did not answer; the cause of its error shows which it is.
    """

    code: str
    pattern: str
    what: str
    fix: str
    conditions: tuple[str, ...] = ()
    lines: Callable[[Mapping[str, str]], list[int]] | None = None
    of_files: bool = False


_PACKAGE = str(Path(__file__).parents[2])
_FILE = r"(?P<file>[^\s'\"`]+?)"
# A fault of ours that was raised below Spark, in a Python process of it or while it planned, as its message shows it.
_OURS = re.compile(
    r"^headrace\.errors\.\w+: headrace (?P<code>HR\d{3}): (?P<what>.+)\n\s*fix: (?P<fix>.+)$", re.MULTILINE
)
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\]")
_ANOTHER_DRIVER = (
    r"Concurrent update to the log|Multiple streaming jobs detected|Multiple streaming queries are concurrently using|"
    r"\[CONCURRENT_STREAM_LOG_UPDATE\b"
)
# The first that fits is taken; Spark's message holds every cause, the innermost last.
KNOWN = (
    Known(
        "HR525",
        r"Wrong basePath (?:file:/*(?=/))?(?P<base>\S+) for the root path: (?:file:/*(?=/))?(?P<file>\S+)",
        "its checkpoint names {file}, which does not lie in {base}, where the source is now",
        "put the old path and its files back, or reset the query (headrace reset QUERY)",
    ),
    Known(
        "HR302",
        r"HEADRACE_MALFORMED `` (?:file:/*(?=/))?(?P<place>\S+) `(?P<value>[^`]*)`",
        "{row} is not exactly one object of the schema: {value}{more}",
        "fix the file and start again: the batch is read again from its beginning; or set on_bad_row to quarantine, "
        "and such rows are quarantined",
        lines=lambda parts: bad_records.holding(parts["place"], parts["value"]),
    ),
    Known(
        "HR302",
        r"\[USER_RAISED_EXCEPTION\] HEADRACE_MISSING_VALUE `(?P<column>[^`]+)` (?:file:/*(?=/))?(?P<place>\S+)",
        "{row} has no value of '{column}', which the schema says is NOT NULL{more}",
        "fix the file and start again: the batch is read again from its beginning; or leave out NOT NULL",
        lines=lambda parts: bad_records.missing(parts["place"], parts["column"]),
    ),
    Known(
        "HR302",
        r"HEADRACE_MISFIT `(?P<column>[^`]+)` `(?P<type>[^`]+)` "
        r"(?:file:/*(?=/))?(?P<place>\S*/(?P=column)=[^/\s]*)/\S+ `(?P<value>[^`]*)`",
        "the directory {place} does not fit the schema: '{value}' in column '{column}' is not of type {type}",
        "set on_bad_row to quarantine and start again: the rows of its planned files are quarantined; then copy "
        "the files into a directory with a right value, from which they are read as new ones",
    ),
    Known(
        "HR361",
        r"HEADRACE_QUOTES `(?P<column>[^`]+)` (?:file:/*(?=/))?(?P<place>\S+) `(?P<value>[^`]*)`",
        "a value of {place} would be changed: {value} in column '{column}' has doubled quotes, and Spark takes a "
        "backslash before a quote in their place",
        "add options: {escape: '\"'}, which reads csv by RFC 4180, or {escape: '\\'}, which leaves the quotes in the "
        "value; or set inexact to round, as well; or set on_bad_row to quarantine, and such rows are quarantined",
    ),
    Known(
        "HR361",
        r"HEADRACE_INFINITE `(?P<column>[^`]+)` (?:file:/*(?=/))?(?P<place>\S+) `(?P<value>[^`]*)`",
        "a number of {place} in column '{column}' ({value}) would be Infinity: it is too large for the type, or "
        "written so",
        "declare a DECIMAL or STRING that holds it; if Infinity is meant, add options: {positiveInf: Infinity} for csv "
        "or {allowNonNumericNumbers: true} for json; or set on_bad_row to quarantine, and such rows are quarantined",
    ),
    Known(
        "HR302",
        r"HEADRACE_MISFIT `(?P<column>[^`]+)` `(?P<type>[^`]+)` (?:file:/*(?=/))?(?P<place>\S+) `(?P<value>[^`]*)`",
        "{row} does not fit the schema: '{value}' in column '{column}' is not of type {type}{more}",
        "fix the file and start again: the batch is read again from its beginning; or set on_bad_row to quarantine, "
        "and such rows are quarantined",
        lines=lambda parts: bad_records.misfits(parts["place"], parts["column"], parts["type"], parts["value"]),
    ),
    Known(
        "HR361",
        r"HEADRACE_INEXACT `(?P<column>[^`]+)` `(?P<type>[^`]+)` (?:file:/*(?=/))?(?P<place>\S+) `(?P<value>[^`]*)`",
        "a value of {place} would be changed: '{value}' in column '{column}' is not exactly a {type}",
        "declare a type that holds it, or STRING; or set inexact to round, and what does not fit is cut or rounded; "
        "or set on_bad_row to quarantine, and such rows are quarantined",
    ),
    Known(
        "HR325",
        r"\[USER_RAISED_EXCEPTION\] HEADRACE_ENCODING `(?P<column>[^`]+)` (?:file:/*(?=/))?(?P<place>\S+)",
        "{row} holds bytes in the column '{column}' that are no UTF-8{more}",
        "write the file in UTF-8, or name its encoding in the source's options (csv), then start again",
        lines=lambda parts: bad_records.list_undecoded_lines(parts["place"]),
    ),
    Known(
        "HR220",
        r"Binary inequality column is not supported with state store.*"
        r"\"name\":\"(?P<column>[^\"]+)\",\"type\":[^{}]*\"nullable\":\w+,\"metadata\":\{\"__COLLATIONS\"",
        "Spark keeps no state by the column '{column}', whose collation takes different texts for equal",
        "cast the column to STRING before; to take no notice of case, use lower() of that",
    ),
    Known(
        "HR325",
        r"pyarrow/array\.pxi[\s\S]*?\nUnicodeDecodeError: 'utf-8' codec can't decode",
        "a text of its result holds bytes that are no UTF-8, as a column of Parquet may that is not marked as text",
        "declare the column BINARY in the source's schema, or let the query use make_valid_utf8(column)",
    ),
    Known(
        "HR299",
        r"HEADRACE_NO_SEQUENCE `(?P<column>[^`]+)`",
        "a change has no place in the order: its sequence_by '{column}' is NULL",
        "let each change have a sequence; or declare the column NOT NULL in the source's schema and set on_bad_row to "
        "quarantine, and such rows are quarantined",
    ),
    Known(
        "HR297",
        r"HEADRACE_UNAVAILABLE_IN_FILTER `(?P<column>[^`]+)`",
        "a change does not say the value of '{column}', which the query filters by: the source leaves out large values "
        "that did not change",
        "let the source send whole rows (PostgreSQL: ALTER TABLE ... REPLICA IDENTITY FULL) and start again, or filter "
        "by another column",
    ),
    Known(
        "HR308",
        r"CSV header does not conform to the schema|Number of column in CSV header is not equal",
        "the header of a csv file is not that of the schema{at}",
        "correct the header, or the order and names of the schema, and start again: the batch is read again",
    ),
    Known(
        "HR310",
        r"Conflicting partition column names",
        "its key=value directories are not all of the same columns and depth{partitions}",
        "let all directories below the source's path have the same columns in the same order, and start again",
        conditions=("CONFLICTING_PARTITION_COLUMN_NAMES",),
    ),
    Known(
        "HR310",
        r"Failed to cast value '?`?(?P<value>[^'`]+)'?`? to (?:data type )?\"?(?P<type>\w+)\"? for partition column "
        r"`(?P<column>[^`]+)`",
        "a key=value directory gives the column '{column}' the value '{value}', and the schema says {type}",
        "name the directory by a value of that type, or correct the schema, and start again",
    ),
    Known(
        "HR310",
        r"Invalid batch: (?P<before>.+?) != (?P<after>[^\n]+)",
        "key=value directories have come that change its columns from {before} to {after}",
        "start the query again; it reads the columns of its schema and leaves out the others",
    ),
    Known(
        "HR302",
        r"Malformed (?:records|CSV record)",
        "a row does not fit the schema{at}{record}",
        "fix the file (or complete it, if it was half written) and start again: the batch is read again from its "
        "beginning; or set on_bad_row to quarantine, and such rows are quarantined",
        conditions=("MALFORMED_RECORD_IN_PARSING", "MALFORMED_CSV_RECORD"),
    ),
    Known(
        "HR303",
        r"FileNotFoundException|(?<!\]\)) does not exist",
        "a file of the batch is gone{at}",
        "put the file back and start again: the batch is read again from its beginning",
        conditions=("FAILED_READ_FILE.FILE_NOT_EXIST",),
        of_files=True,
    ),
    Known(
        "HR304",
        r"is not a Parquet file|Malformed ORC file|Could not read footer",
        "a file cannot be read{at}",
        "replace the damaged file and start again: the batch is read again from its beginning",
        conditions=("FAILED_READ_FILE",),
        of_files=True,
    ),
    Known(
        "HR541",
        r"No space left on device|Disk quota exceeded",
        "no space is left on the storage's disk",
        "make room and start again: the run resumes with the batch that was not committed",
    ),
    Known(
        "HR409",
        _ANOTHER_DRIVER,
        "another driver works on the same checkpoint, and this one has ended",
        "let only one driver run the query; `headrace status` shows the process of each run",
    ),
    Known(
        "HR518",
        r"CANNOT_READ_STREAMING_STATE_FILE|[Ee]rror reading (?:streaming state|delta|snapshot) "
        r"file|FAILED_TO_READ_(?:DELTA|SNAPSHOT)_FILE|INVALID_CHANGE_LOG_READER_VERSION",
        "the state that its next batch begins with cannot be read",
        "look which file it is: headrace inspect checkpoint; then do what it says, or restore the storage directory "
        "from a backup",
        conditions=("CANNOT_LOAD_STATE_STORE",),
        of_files=True,
    ),
    Known(
        "HR518",
        r"Checksum error: file:\S+/checkpoint/|Incomplete log file|Failed to read log file|batch \d+ doesn't exist",
        "a file of its checkpoint is missing or damaged",
        "look which file it is: headrace inspect checkpoint; then do what it says, or restore the storage directory "
        "from a backup",
        of_files=True,
    ),
    Known(
        "HR536",
        r"STATE_STORE_\w*SCHEMA|schema does not match existing state",
        "the state in its checkpoint was made by another form of the query",
        "undo the change, or reset the query (headrace reset QUERY)",
    ),
    Known(
        "HR540",
        r"Permission denied|AccessControlException",
        "the storage directory cannot be written: permission denied",
        "give the user that runs Headrace the right to write there, and start again",
    ),
    Known(
        "HR604",
        r"OutOfMemoryError|Java heap space|GC overhead limit",
        "Spark ran out of memory",
        "set spark.driver.memory higher, or bound the batch with the source's rate limit",
    ),
)
_STORE_AWAY = re.compile(
    # NetUtils and the DFS client of Hadoop, S3AFileSystem over the SDK of AWS.
    r"(?P<why>Call From \S+ to \S+ failed on [^;\n]+|End of File Exception between local host is[^;\n]+|"
    r"(?:Unable to execute HTTP request|AWSServiceThrottledException|AWSStatus500Exception)[^\n]*|(?m:^)[^\n]*(?:"
    + "|".join(map(re.escape, OF_HDFS))
    + r")[^\n]*)"
)
_BEFORE_THE_REASON = re.compile(r"^(?:.* terminated with exception: |Caused by: )?(?:(?:[\w$]+\.)+[\w$]+: )?")
_AWAY_FIX = "look whether the store runs; what was committed is safe, and the next start resumes from there"
_WORKER_DIED = Known(
    "HR607",
    r"Python worker exited unexpectedly|PYTHON_WORKER_EXITED_UNEXPECTEDLY|"
    r"STREAMING_PYTHON_RUNNER_INITIALIZATION_COMMUNICATION_FAILURE",
    "a Python worker of Spark died in the middle of a batch",
    "look into the machine's log for what killed it, mostly the lack of memory: give spark.executor.memoryOverhead or "
    "the machine more; then start again: the batch is made again",
)
# PythonWorkerFactory waits ten seconds for a worker that it has started, as for the one that prepares the state of a
# transformWithState; StreamingPythonRunner then waits for its first word.
_WORKER_LATE = Known(
    "HR608",
    r"Python worker failed to connect back|STREAMING_PYTHON_RUNNER_INITIALIZATION_TIMEOUT_FAILURE",
    "a Python worker of Spark was started and did not connect in time",
    "look whether the machine, or its name lookup, has too much to do: a batch that is made again mostly succeeds",
)


def failure_of(
    handle: StreamingQuery,
    faults: list[HeadraceError],
    *,
    subject: str,
    where: Where,
    connectors: Sequence[Connector] = (),
    installed: Installed = tuple,
) -> Finding | None:
    """The finding of an ended query, None when it ended well.

    An error that the sink reported itself is taken as it is; else Spark's message is read.
    """
    error = handle.exception()
    if error is None:
        return None
    if faults:
        finding = faults[-1].findings[0]
        return finding if finding.where.file else replace(finding, where=where)
    return finding_of_message(str(error), subject=subject, where=where, connectors=connectors, installed=installed)


def known_failure(text: str, *, subject: str, where: Where, connectors: Sequence[Connector] = ()) -> Finding | None:
    """The finding of a message of Spark's whose cause is known, to one of `connectors` or to all."""
    for connector in connectors:
        if (problem := connector.explain_failure(text)) is not None:
            return Finding(code=problem.code, what=f"{subject}: {problem.what}", fix=problem.fix, where=where)
    conditions = _CONDITION.findall(text)
    # An exception of the user's own may use the same words.
    away = None if python_error(text) else _STORE_AWAY.search(text)
    for failure in KNOWN:
        if away is not None and failure.of_files:
            continue
        match = re.search(failure.pattern, text) if failure.pattern else None
        if match or any(is_one_of(condition, failure.conditions) for condition in conditions):
            parts = match.groupdict() if match else {}
            seen = {"at": _at(text), "record": _record(text), "partitions": _partitions(text)}
            message = failure.what.format(**seen, **_lines_of(failure, parts), **parts)
            return Finding(code=failure.code, what=f"{subject}: {message}", fix=failure.fix, where=where)
    if away is not None:
        why = tidy(_BEFORE_THE_REASON.sub("", away["why"]))
        message = f"{subject}: the store of its files does not answer: {why}"
        return Finding(code="HR831", what=message, fix=_AWAY_FIX, where=where)
    return None


def finding_of_message(
    text: str, *, subject: str, where: Where, connectors: Sequence[Connector] = (), installed: Installed = tuple
) -> Finding:
    """The finding of a message of StreamingQueryException.

    connectors: those of the query. installed: gives what other connectors know of, which a function of the user's may
    read or write by itself; asked last.
    """
    if ours := _OURS.search(text):
        return Finding(code=ours["code"], what=f"{subject}: {ours['what']}", fix=ours["fix"], where=where)
    if finding := known_failure(text, subject=subject, where=where, connectors=connectors):
        return finding
    others = (failure.find_in(text) for failure in installed())
    if problem := _of_worker(text) or next((failure for failure in others if failure is not None), None):
        return Finding(code=problem.code, what=f"{subject}: {problem.what}", fix=problem.fix, where=where)
    python = python_error(text)
    return Finding(
        code="HR601",
        what=f"{subject} failed: {python or _innermost(text) or 'no reason was given'}",
        fix="correct the cause and start again: the run resumes with the batch that was not committed",
        where=_python_line(text) or where,
    )


def is_of_another_driver(text: str) -> bool:
    """Whether Spark says that another driver has written to the same checkpoint."""
    return re.search(_ANOTHER_DRIVER, text) is not None


def _at(text: str) -> str:
    match = re.search(r"while reading file\s+" + _FILE + r"\.?(?:\s|$)", text) or re.search(
        r"File (?:does not exist:?|)\s*" + _FILE + r"(?:\s|$)", text
    )
    return " in " + re.sub(r"^file:/+", "/", match.group("file")) if match else ""


def _lines_of(failure: Known, parts: Mapping[str, str]) -> dict[str, str]:
    """The first line of a file that has a fault, and those that have it too, as far as the file can be looked at."""
    if failure.lines is None:
        return {}
    lines = failure.lines({**parts, "place": unquote(parts["place"])})
    row = f"line {lines[0]} of {parts['place']}" if lines else f"a row of {parts['place']}"
    return {"row": row, "more": bad_records.also(lines[1:])}


def _partitions(text: str) -> str:
    """The lists of columns that Spark found in the directories."""
    lists = re.findall(r"Partition column name list #\d+: (.+)", text)
    return f": {' and '.join(sorted(set(lists)))}" if lists else ""


def _record(text: str) -> str:
    match = re.search(r"Malformed records? (?:are|is) detected in record parsing:?\s*(.+?)\.?\s*\n", text) or re.search(
        r"Malformed (?:CSV )?record[^:]*:\s*(.+?)\s*(?:SQLSTATE|\n|$)", text
    )
    file = _at(text).removeprefix(" in ")
    if line := bad_records.find(file, text) if file else None:
        return f", {line}"
    record = match.group(1).strip().rstrip(".") if match else ""
    if not record.strip("[], nul"):  # Spark shows what it could read of it, which may be nothing
        return ""
    return f": {record if len(record) <= 200 else record[:197] + '...'}"


def python_error(text: str) -> str:
    """The last line of a Python trace inside the message: the exception that a user's function raised."""
    errors = re.findall(r"^(?:\w+\.)*(\w*(?:Error|Exception|Interrupt)): (.+)$", text, re.MULTILINE)
    if "Traceback (most recent call last)" not in text or not errors:
        return ""
    name, sentence = errors[-1]
    if name.startswith("Py4J"):
        return ""  # PySpark called the JVM, whose own exception follows.
    return f"{name}: {tidy(sentence) or sentence}"


def _python_line(text: str) -> Where | None:
    """The innermost line of a Python trace inside the message that is of no installed package."""
    library = os.path.dirname(os.__file__)
    places = [
        (file, int(line))
        for file, line in re.findall(r'^\s*File "([^"<>]+)", line (\d+), in ', text, re.MULTILINE)
        if not file.startswith((library, _PACKAGE)) and "site-packages" not in file and ".zip/" not in file
    ]
    if not places:
        return None
    file, line = places[-1]
    shown = os.path.relpath(file)
    return Where(file=file if shown.startswith("..") else shown, line=line)


def _innermost(text: str) -> str:
    causes = re.findall(r"Caused by: (?:\w+\.)*\w+: ?(.+)", text)
    return tidy(causes[-1]) if causes else re.sub(r"^Query \[id = .*?\] terminated with exception: ", "", tidy(text))


def worker_fault(text: str) -> str | None:
    """Return what Spark's exception says of a Python worker: that it died, or never connected; None: nothing."""
    worker = _of_worker(text)
    return None if worker is None else worker.what


def _of_worker(text: str) -> Known | None:
    if re.search(_WORKER_LATE.pattern, text):
        return _WORKER_LATE
    died = re.search(_WORKER_DIED.pattern, text) or _CONNECTION.search(text)
    return _WORKER_DIED if died and "FAILED_READ_FILE" not in text else None
