"""The options of the driver's JVM: what it warns of goes to standard error, what it compiles, and its collector.

Standard output has the lines of `--json`.
"""

from __future__ import annotations

import re
import subprocess

import pytest

from headrace.spark.jvm.preconditions import require_java
from headrace.spark.jvm.session import jvm_options
from headrace.spark.jvm.settings import Purpose

pytestmark = pytest.mark.plain
# No machine has so large pages, so that each JVM warns.
WARNED = "-XX:+UseLargePages", "-XX:LargePageSizeInBytes=1g"


def run_java(*options: str) -> tuple[str, str]:
    done = subprocess.run(
        [require_java().path, *options, *WARNED, "-version"], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout, done.stderr


def test_a_warning_of_the_jvm_goes_to_standard_error() -> None:
    assert "UseLargePages disabled" in run_java()[0]
    out, err = run_java(*jvm_options("backlog", "", local=True))
    assert (out, "UseLargePages disabled" in err) == ("", True)


def test_the_second_compiler_of_a_backlog_leaves_out_what_a_start_runs() -> None:
    def left_out(purpose: Purpose, *, local: bool) -> bool:
        out, err = run_java(*jvm_options(purpose, "", local=local), "-XX:+UnlockDiagnosticVMOptions")
        assert out == ""
        return "1 compiler directives added" in err

    assert left_out("backlog", local=True), "the JVM reads the file"
    assert not left_out("backlog", local=False)
    assert not left_out("stream", local=True)
    assert not left_out("short", local=True)
    listed = run_java(*jvm_options("backlog", "", local=True), "-XX:+CompilerDirectivesPrint")[1]
    assert re.search(r"matching: .*org/codehaus/janino/\*\.\*.*?c2 directives:.*?Exclude:true", listed, re.DOTALL)


def collectors(options: list[str]) -> list[str]:
    return [option for option in options if option.endswith("GC")]


def test_a_stream_on_this_machine_gets_the_collector_with_the_most_throughput(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    for memory in ("", "8g", "512"):
        for purpose in ("stream", "backlog", "reading"):
            assert collectors(jvm_options(purpose, "", local=True, memory=memory)) == ["-XX:+UseParallelGC"]
    assert collectors(jvm_options("short", "", local=True)) == ["-XX:+UseSerialGC"]
    # Long pauses of a large heap, no second core, and a driver of a cluster: the JVM chooses.
    assert collectors(jvm_options("stream", "", local=True, memory="9g")) == []
    assert collectors(jvm_options("stream", "", local=False)) == []
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    assert collectors(jvm_options("stream", "", local=True)) == []


@pytest.mark.parametrize("purpose", ["stream", "short"])
@pytest.mark.parametrize(
    "variable", ["", "SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS"]
)
def test_a_collector_that_somebody_chose_stays(
    monkeypatch: pytest.MonkeyPatch, purpose: Purpose, variable: str
) -> None:
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    if variable:
        monkeypatch.setenv(variable, "-Xss2m -XX:+UseZGC")
    own = "" if variable else "-Xss2m -XX:+UseZGC -XX:+ZGenerational"
    assert collectors(jvm_options(purpose, own, local=True)) == []
