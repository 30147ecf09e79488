"""The few lines of Java that Headrace brings, compiled where they are used, by the compiler that Spark brings.

Spark has no setting for what they do, and what is compiled here fits the Spark that is here.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

SECONDS = 120


class CompileError(Exception):
    """The message is one sentence."""


def digest(source: str) -> str:
    """What tells a compiled source from one that was compiled of another text, or for another Spark."""
    text = (files("headrace.spark") / source).read_bytes()
    return f"{source}:{version('pyspark')}:{hashlib.sha256(text).hexdigest()[:16]}"


def compile_into(source: str, directory: Path) -> Path:
    """The jar of the classes of `source`, a file of this package. Raises CompileError, OSError."""
    jar = directory / f"headrace-{Path(source).stem}.jar"
    with tempfile.TemporaryDirectory(prefix="headrace-java-") as scratch:
        # In a process of its own: its JVM knows no session, and ends with it.
        command = [sys.executable, "-m", "headrace.spark.compiled", str(files("headrace.spark") / source), scratch]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired as error:
            raise CompileError(f"the compiler of Java did not come to its end: {error}") from error
        made = sorted(Path(scratch).rglob("*.class"))
        if done.returncode or not made:
            lines = [line for line in done.stderr.splitlines() if "xception" in line] or done.stderr.splitlines()
            raise CompileError(f"{source} cannot be compiled: {lines[-1] if lines else 'nothing was made'}")
        with zipfile.ZipFile(jar, "w") as packed:
            for each in made:
                packed.write(each, str(each.relative_to(scratch)))
    return jar


def main(source: str, target: str) -> int:
    """Let Janino, which Spark compiles its queries with, write the classes of `source` below `target`."""
    from pyspark import SparkContext

    from headrace.spark.gateway import ensure

    ensure({})
    gateway: Any = SparkContext._gateway
    write_classes(gateway, source, target)
    gateway.shutdown()
    return 0


def write_classes(gateway: Any, source: str, target: str) -> None:
    """Compile `source` in the JVM of a gateway."""
    jvm = gateway.jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    compiler = jvm.org.codehaus.janino.Compiler()
    compiler.setIClassLoader(jvm.org.codehaus.janino.ClassLoaderIClassLoader(loader))
    compiler.setDestinationDirectory(jvm.java.io.File(target), False)
    given = gateway.new_array(jvm.java.io.File, 1)
    given[0] = jvm.java.io.File(source)
    compiler.compile(given)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
