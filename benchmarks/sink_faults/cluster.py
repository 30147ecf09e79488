"""A standalone cluster of Spark on this machine, for faults that need more than one host."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Spark gives the second attempt of a task to another host alone, so the two workers have addresses of their own.
# Linux has all of 127.0.0.0/8; elsewhere the workers do not come up, and the fault counts as "not shown".
WORKERS = ("127.0.0.2", "127.0.0.3")
SECONDS = 30.0


@contextlib.contextmanager
def cluster(python: str, home: Path) -> Iterator[str]:
    """A master and two workers with a core each, of the PySpark of that environment; gives the master's URL.

    home: for their log and the working directories of their executors.
    """
    asked = [python, "-c", "import pyspark; print(pyspark.__path__[0])"]
    spark = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    processes: list[subprocess.Popen[bytes]] = []

    def begin(kind: str, *arguments: str) -> None:
        options = {"SPARK_HOME": spark, "SPARK_DAEMON_MEMORY": "256m"}
        command = [f"{spark}/bin/spark-class", f"org.apache.spark.deploy.{kind}", "--webui-port", "0", *arguments]
        with open(home / "log", "ab") as log:
            streams: Any = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            environment = {**os.environ, **options}
            processes.append(subprocess.Popen(command, env=environment, start_new_session=True, **streams))

    try:
        begin("master.Master", "--host", "127.0.0.1", "--port", str(port))
        _await(port)
        master, place = f"spark://127.0.0.1:{port}", ("--cores", "1", "--memory", "1g", "--work-dir", f"{home}/work")
        for host in WORKERS:
            begin("worker.Worker", "--host", host, *place, master)
        yield master
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _await(port: int) -> None:
    latest = time.monotonic() + SECONDS
    while time.monotonic() < latest:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
