"""PyFlink for the benchmarks: its installation, and how a job of it is started."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

from benchmarks.figures import Skipped
from benchmarks.processes import BASELINES
from headrace.spark.jvm import cds, maven

FLINK = "2.3.0"
# The collector that Headrace takes on a local master, for Flink too.
_JVM = "-XX:+UseParallelGC"


@dataclass(frozen=True, kw_only=True)
class Flink:
    """PyFlink in a virtual environment of its own."""

    home: Path

    @classmethod
    def install(cls, connectors: Sequence[str] = ()) -> Flink:
        """Install it, and jars by their coordinates, unless they are there. Raises Skipped where that cannot be."""
        flink = cls(home=cds.cache().parent / "benchmarks" / f"flink-{FLINK}")
        names = ["{1}-{2}.jar".format(*jar.split(":")) for jar in connectors]
        if not all((flink.home / name).exists() for name in (".installed", *names)):
            try:
                if not (flink.home / ".installed").exists():
                    flink._install()
                maven.fetch([], flink.home, for_spark=False, alone=connectors)
            except (OSError, subprocess.CalledProcessError, maven.FetchError) as error:
                raise Skipped(f"PyFlink {FLINK} cannot be installed: {_reason(error)}") from error
        return flink

    def command(self, job: str, landing: Path, place: Path) -> list[str | Path]:
        """What runs a job of `baselines/flink_jobs.py`, which writes `result` below `place`."""
        return self.script("flink_jobs.py", place, [job, landing, place / "result", place / "checkpoints"])

    def script(self, name: str, place: Path, arguments: Sequence[str | Path]) -> list[str | Path]:
        """What runs a script of `baselines` in `place`."""
        # The parquet format needs Hadoop's classes, which Flink leaves to its users; PySpark has them.
        jars = Path(str(distribution("pyspark").locate_file("pyspark/jars"))).glob("hadoop-client-*.jar")
        variables = {
            "HADOOP_CLASSPATH": os.pathsep.join(map(str, sorted(jars))),
            "JVM_ARGS": _JVM,
            "FLINK_LOG_DIR": str(place / "log"),
        }
        set_ = [f"{name}={value}" for name, value in variables.items()]
        return ["env", *set_, self._python, BASELINES / name, *arguments]

    @property
    def jars(self) -> str:
        """The connectors that are installed, as Flink's setting `pipeline.jars` names them."""
        return ";".join(f"file://{jar}" for jar in sorted(self.home.glob("*.jar")))

    @property
    def _python(self) -> Path:
        return self.home / "bin" / "python"

    def _install(self) -> None:
        shutil.rmtree(self.home, ignore_errors=True)
        _output([sys.executable, "-m", "venv", str(self.home)])
        pip = [str(self._python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _output([*pip, "--only-binary", "apache-flink", f"apache-flink=={FLINK}"])
        (package,) = self.home.glob("lib/python3*/site-packages/pyflink")
        parquet = f"org.apache.flink:flink-sql-parquet:{FLINK}"
        maven.fetch([], package / "lib", for_spark=False, alone=[parquet])
        (self.home / ".installed").touch()


def _output(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _reason(error: Exception) -> str:
    """The last line that the program printed, or what the error says."""
    lines = error.stderr.strip().splitlines() if isinstance(error, subprocess.CalledProcessError) else []
    return lines[-1] if lines else str(error)
