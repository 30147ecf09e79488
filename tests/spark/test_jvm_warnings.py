"""What the driver's JVM warns of by itself goes to standard error: standard output has the lines of `--json`."""

from __future__ import annotations

import subprocess

import pytest

from headrace.spark.jvm.preconditions import require_java
from headrace.spark.jvm.session import jvm_options

pytestmark = pytest.mark.plain
# Nobody has so large pages, so that each JVM warns.
WARNED = "-XX:+UseLargePages", "-XX:LargePageSizeInBytes=1g"


def said(*options: str) -> tuple[str, str]:
    done = subprocess.run(
        [require_java().path, *options, *WARNED, "-version"], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout, done.stderr


def test_a_warning_of_the_jvm_goes_to_standard_error() -> None:
    assert "UseLargePages disabled" in said()[0]
    out, err = said(*jvm_options("stream", "", local=True))
    assert (out, "UseLargePages disabled" in err) == ("", True)
