"""Spark's messages become one sentence with a code and a fix."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.errors import NOWHERE, Finding, SinkError, Where
from headrace.generations.blame import attribute_errors
from headrace.spark.messages.failures import finding_of_message

pytestmark = pytest.mark.plain

HEAD = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "


def finding_of(message: str) -> Finding:
    return finding_of_message(message, subject="query 'clicks'", where=NOWHERE)


@pytest.mark.parametrize(
    ("message", "code", "says"),
    [
        pytest.param(
            HEAD
            + "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///in/7.json.  SQLSTATE: KD001\n"
            "Caused by: [MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed records are detected in record "
            "parsing: [x,null].\nParse Mode: FAILFAST.",
            "HR302",
            "in /in/7.json: [x,null]",
            id="malformed record",
        ),
        pytest.param(
            HEAD + "[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file file:///in/7.json. "
            "File does not exist.",
            "HR303",
            "is gone in /in/7.json",
            id="vanished file",
        ),
        pytest.param(
            HEAD + "Traceback (most recent call last):\n  File 'a.py', line 1\n"
            "headrace.errors.SourceError: headrace HR344: snapshot 7 deleted rows\n  fix: begin again\n\tat x.Y",
            "HR344",
            "snapshot 7 deleted rows",
            id="one of ours",
        ),
        pytest.param(
            HEAD + "assertion failed: Invalid batch: v#1 != v#5,dt#6\n",
            "HR310",
            "have come that change its columns from v#1 to v#5,dt#6",
            id="directories of another column",
        ),
        pytest.param(
            HEAD + "Traceback (most recent call last):\n  File 'a.py', line 1\n"
            "py4j.protocol.Py4JJavaError: An error occurred while calling o1023.getResult.\n"
            ": org.apache.spark.SparkException: Exception thrown in awaitResult:\n\tat x.Y\n"
            "Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)\n",
            "HR607",
            "a Python worker of Spark died",
            id="a dead Python worker",
        ),
        pytest.param(
            HEAD
            + "org.apache.spark.api.python.StreamingPythonRunner$StreamingPythonRunnerInitializationTimeoutException: "
            "[STREAMING_PYTHON_RUNNER_INITIALIZATION_TIMEOUT_FAILURE] Streaming Runner initialization failed. "
            "Socket connection timeout. Cause: null SQLSTATE: XXKST",
            "HR608",
            "was started and did not connect in time",
            id="a Python worker that says nothing",
        ),
        pytest.param(
            HEAD + "org.apache.spark.SparkException: Python worker failed to connect back.\n\tat x.Y\n"
            "Caused by: java.net.SocketTimeoutException: Timed out while waiting for the Python worker\n",
            "HR608",
            "was started and did not connect in time",
            id="a Python worker that is late",
        ),
        pytest.param(
            HEAD + "Traceback (most recent call last):\n  File 'a.py', line 1\n"
            "py4j.protocol.Py4JJavaError: An error occurred while calling o1023.getResult.\n"
            ": org.apache.spark.SparkException: Exception thrown in awaitResult:\n\tat x.Y\n"
            "Caused by: java.lang.ArithmeticException: long overflow\n",
            "HR601",
            "failed: long overflow",
            id="an exception of the JVM behind a call from Python",
        ),
        pytest.param(HEAD + "java.io.IOException: No space left on device", "HR541", "no space", id="disk full"),
        pytest.param(HEAD + "java.io.IOException: Permission denied", "HR540", "permission denied", id="no right"),
        pytest.param(HEAD + "java.lang.OutOfMemoryError: Java heap space", "HR604", "memory", id="no memory"),
        pytest.param(
            HEAD + "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log.", "HR409", "another driver", id="two"
        ),
        pytest.param(
            HEAD + "[CANNOT_LOAD_STATE_STORE.CANNOT_READ_STREAMING_STATE_FILE] An error occurred during loading state.",
            "HR518",
            "the state that its next batch begins with",
            id="state",
        ),
        pytest.param(
            HEAD + "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state.  SQLSTATE: 58030\n"
            "Caused by: java.net.ConnectException: Call From vm/127.0.0.1 to localhost:9000 failed on connection "
            "exception: java.net.ConnectException: Connection refused; For more details see:  http://wiki/\n"
            "Caused by: java.net.ConnectException: Connection refused",
            "HR831",
            "the store of its files does not answer: Call From vm/127.0.0.1 to localhost:9000 failed on connection",
            id="state, while the NameNode is away",
        ),
        pytest.param(
            HEAD + "File /c/commits/.7.tmp could only be written to 0 of the 1 minReplication nodes. There are 1 "
            "datanode(s) running and 1 node(s) are excluded in this operation.\n\tat x.Y",
            "HR831",
            "does not answer: File /c/commits/.7.tmp could only be written to 0 of the 1",
            id="a commit, while the DataNode is away",
        ),
        pytest.param(
            HEAD + "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file hdfs://n:9000/in/7.parquet.\n"
            "Caused by: java.io.IOException: Could not read footer for file\n"
            "Caused by: org.apache.hadoop.hdfs.BlockMissingException: Could not obtain block: BP-1 file=/in/7.parquet",
            "HR831",
            "does not answer: Could not obtain block: BP-1 file=/in/7.parquet",
            id="a source's file, while the DataNode is away",
        ),
        pytest.param(
            HEAD + "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file s3a://b/in/7.parquet.\n"
            "Caused by: org.apache.hadoop.fs.s3a.AWSClientIOException: read on s3a://b/in/7.parquet: "
            "software.amazon.awssdk.SdkClientException: Unable to execute HTTP request: Connection refused",
            "HR831",
            "does not answer: Unable to execute HTTP request: Connection refused",
            id="a source's file, while S3 is away",
        ),
        pytest.param(
            HEAD + "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file s3a://b/in/7.parquet.\n"
            "Caused by: org.apache.hadoop.fs.s3a.AWSServiceThrottledException: read on s3a://b/in/7.parquet: SlowDown",
            "HR831",
            "does not answer: AWSServiceThrottledException: read on s3a://b/in/7.parquet: SlowDown",
            id="a source's file, while S3 has too much to do",
        ),
        pytest.param(
            HEAD + "Traceback (most recent call last):\n  File 'a.py', line 1\nValueError: the pump is in safe mode\n",
            "HR601",
            "failed: ValueError: the pump is in safe mode",
            id="words of HDFS in an exception of the user's",
        ),
        pytest.param(
            HEAD + "org.apache.hadoop.fs.ChecksumException: Checksum error: file:/p/checkpoint/offsets/3 at 0",
            "HR518",
            "a file of its checkpoint",
            id="checksum",
        ),
        pytest.param(
            HEAD + "Multiple streaming queries are concurrently using file:/p/checkpoint/offsets.",
            "HR409",
            "another driver",
            id="two over one log",
        ),
        pytest.param(
            HEAD
            + "[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE] Provided value schema does not match existing state value "
            "schema. Please check number and type of fields.",
            "HR536",
            "another form of the query",
            id="state of another form",
        ),
        pytest.param(
            HEAD + "Traceback (most recent call last):\n  File 'a.py', line 1\nValueError: negative price\n\tat x.y.Z",
            "HR601",
            "ValueError: negative price",
            id="user's function",
        ),
        pytest.param(
            HEAD + "Job aborted.\n\tat a.b\nCaused by: java.lang.IllegalStateException: the end of it\n\tat c.d",
            "HR601",
            "the end of it",
            id="innermost cause",
        ),
    ],
)
def test_a_failure_is_one_sentence(message: str, code: str, says: str) -> None:
    finding = finding_of(message)
    assert finding.code == code
    assert says in finding.what
    assert finding.fix
    assert "\n" not in finding.what
    assert "\tat" not in finding.what


MALFORMED = (
    "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file://{file}.  SQLSTATE: KD001\n"
    "Caused by: [MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed records are detected in record "
    "parsing: [null,null].\n"
)


@pytest.mark.parametrize(
    ("content", "cause", "says"),
    [
        ('{"id": 1}\n{"id": \n{"id": 3}\n', "", 'line 2: {"id":'),
        ('{"id": 1}\n{"id": "many"}\n', "Cannot parse the field name `id` and the value `many` of JSON", "line 2: {"),
        ("1,2\n7\n", "[MALFORMED_CSV_RECORD] Malformed CSV record: 7 SQLSTATE: KD000", "line 2: 7"),
        ("1,2\nx,5\n", 'java.lang.NumberFormatException: For input string: "x"', "line 2: x,5"),
        ("what no look finds", "", "does not fit the schema in"),
    ],
)
def test_a_record_that_does_not_fit_is_shown_with_its_line(tmp_path, content: str, cause: str, says: str) -> None:
    file = tmp_path / "a.json"
    file.write_text(content)
    finding = finding_of(HEAD + MALFORMED.format(file=file) + f"Caused by: {cause}\n")
    assert finding.code == "HR302"
    assert str(file) in finding.what
    assert says in finding.what
    assert "null" not in finding.what


def test_no_message_ends_at_its_colon() -> None:
    assert "can't decode" in finding_of("'utf-8' codec can't decode byte 0xff").what
    assert finding_of("").what.endswith("no reason was given")


def test_a_connectors_fault_says_whose_it_is_and_names_the_command() -> None:
    sink = SimpleNamespace(reset=SimpleNamespace(droppable=True))
    query: Any = SimpleNamespace(name="clicks", where=Where(file="a.py", line=3), sink=sink)
    with pytest.raises(SinkError) as caught, attribute_errors(query):
        raise SinkError(code="HR331", what="the broker does not answer", fix="look at it, or headrace reset QUERY")
    [finding] = caught.value.findings
    assert str(finding).startswith("a.py:3 HR331: the sink of query 'clicks': the broker does not answer")
    assert finding.fix == "look at it, or headrace reset clicks --drop-result"


MISFIT = "[USER_RAISED_EXCEPTION] HEADRACE_MISFIT `amount` `INT` file://{file} `many`"
LINES = {
    "json": (
        b'{"amount": 1}\n{"amount": "many"}\n{"amount": 2}\n{"amount": "few"}\n',
        MISFIT,
        "line 2 of {file} does not fit the schema: 'many' in column 'amount' is not of type INT; so does line 4",
    ),
    "csv": (
        b"id;amount\n1;2\n2;many\n3;x\n4;y\n",
        MISFIT,
        "line 3 of {file} does not fit the schema: 'many' in column 'amount' is not of type INT; so do the lines 4, 5",
    ),
    "no value": (
        b'{"amount": 1}\n{"id": 2}\n',
        "[USER_RAISED_EXCEPTION] HEADRACE_MISSING_VALUE `amount` file://{file}",
        "line 2 of {file} has no value of 'amount'",
    ),
    "no UTF-8": (
        b"a,1\n\xfc,2\n",
        "[USER_RAISED_EXCEPTION] HEADRACE_ENCODING `name` file://{file}",
        "line 2 of {file} holds bytes in the column 'name' that are no UTF-8",
    ),
    "two objects": (
        b'{"a": 1}\n{"a": 1}{"a": 2}\n',
        '[USER_RAISED_EXCEPTION] HEADRACE_MALFORMED `` file://{file} `{{"a": 1}}{{"a": 2}}`',
        'line 2 of {file} is not exactly one object of the schema: {{"a": 1}}{{"a": 2}}',
    ),
    "out of sight": (b"", MISFIT, "a row of {file} does not fit"),
}


@pytest.mark.parametrize(("content", "message", "says"), LINES.values(), ids=LINES)
def test_a_row_that_is_refused_is_reported_with_its_line_and_the_others_like_it(
    tmp_path, content: bytes, message: str, says: str
) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(content)
    assert says.format(file=file) in finding_of(HEAD + message.format(file=file)).what


def test_all_lines_of_a_file_that_are_no_json_are_reported_at_once(tmp_path) -> None:
    file = tmp_path / "a.json"
    file.write_text('{"id": 1}\n{"id": \n{"id": 3}\nx\n')
    assert finding_of(HEAD + MALFORMED.format(file=file)).what.endswith('line 2: {"id":; so does line 4')
