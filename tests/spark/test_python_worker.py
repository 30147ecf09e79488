"""The death of a Python worker differs from a damaged file that ends in the same exception."""

from __future__ import annotations

import pytest

from headrace.spark.messages.failures import worker_fault

pytestmark = pytest.mark.plain
HEAD = "org.apache.spark.SparkException: Job aborted due to stage failure: Lost task 0.0 in stage 3.0 (TID 5)\n"
READ = (
    "Caused by: java.io.EOFException\n"
    "\tat java.base/java.io.DataInputStream.readFully(DataInputStream.java:210)\n"
    "\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:385)\n"
)
IN_PYTHON = "\tat org.apache.spark.sql.execution.python.PythonArrowOutput$$anon$1.read(PythonArrowOutput.scala:104)\n"
IN_STATE = (
    "\tat org.apache.spark.sql.execution.streaming.state.StateStoreChangelogReaderV1.getNext(Changelog.scala:1)\n"
)


@pytest.mark.parametrize(
    ("text", "died"),
    [
        (HEAD + READ + "\tat org.apache.spark.api.python.PythonRunner$$anon$3.read(PythonRunner.scala:774)\n", True),
        (HEAD + READ + IN_PYTHON, True),
        (HEAD + "java.net.SocketException: Broken pipe\n\tat java.base/sun.nio.ch.NioSocketImpl.write(N.java:1)\n"
         + IN_PYTHON, True),
        (HEAD + "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)\n" + READ, True),
        (HEAD + READ + IN_STATE, False),
        (HEAD + READ + IN_STATE + IN_PYTHON, False),
        (HEAD + "java.io.EOFException: Unexpected end of ZLIB input stream\n\tat java.base/java.util.zip.Inflater\n"
         "\tat org.apache.spark.sql.execution.datasources.HadoopFileLinesReader.next(H.scala:1)\n", False),
        (HEAD + "java.io.EOFException: Stream ended\n\tat net.jpountz.lz4.LZ4BlockInputStream.read(L.j)\n"
         + IN_STATE, False),
        ("java.lang.ArithmeticException: / by zero\n" + IN_PYTHON, False),
    ],
    ids=["runner", "arrow", "socket", "named", "state", "state below a UDF", "zip", "lz4", "other"],
)  # fmt: skip
def test_only_the_reader_of_a_worker_reports_its_death(text: str, died: bool) -> None:
    assert (worker_fault(text) is not None) is died
