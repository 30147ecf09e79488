"""Prometheus on loopback with the files that `headrace service --monitoring` writes, all its intervals made short."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from services.process import free_port, program
from tests.servers import unavailable
from tests.waiting import eventually

INSTALL = "Prometheus is not installed: `python -m services install`, or `sudo apt-get install prometheus`"
START_SECONDS = 60.0
# A scrape asks the sources what they hold: on a loaded machine it takes more than a second, and has to end in time.
SCRAPE = "2s"
# Four scrapes, as Grafana takes it.
RATE_INTERVAL = "8s"


def require_program(name: str) -> str:
    """The path of Prometheus' server or of promtool; a machine without skips the test, except in CI."""
    return program(name) or unavailable(INSTALL)


class Prometheus:
    """A server that runs, by its HTTP API."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **parameters: str) -> Any:
        """The data of an answer; an expression that Prometheus refuses fails the test with what it says."""
        asked = urllib.parse.urlencode({name.rstrip("_"): value for name, value in parameters.items()})
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{asked}", timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error

    def series(self, expression: str) -> list[dict[str, Any]]:
        """What an expression gives now: `metric`, the labels, and `value`."""
        series: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return series

    def alerts(self) -> dict[str, set[str]]:
        """The alerts that fire, each with its queries; one that is pending may be over before anybody sees it."""
        alerts: dict[str, set[str]] = {}
        for alert in self.get("alerts")["alerts"]:
            if alert["state"] == "firing":
                alerts.setdefault(alert["labels"]["alertname"], set()).add(alert["labels"].get("query", ""))
        return alerts


@contextmanager
def watching(directory: Path, *, seconds: int = 1) -> Iterator[Prometheus]:
    """Prometheus over what was written into `directory`; what its rules wait for takes `seconds`, or a few times so."""
    server = require_program("prometheus")
    config, rules = directory / "prometheus.yml", directory / "alerts.yml"
    written = config.read_text()
    config.write_text(written.replace("15s", f"{SCRAPE}, scrape_timeout: {SCRAPE}, evaluation_interval: 1s"))
    text = re.sub(r"for: \w+", f"for: {seconds}s", rules.read_text())
    rules.write_text(
        re.sub(r"\[\d+[mh]\]", f"[{8 * seconds}s]", text)
        # A batch of a healthy query takes some seconds while others start.
        .replace("> 900", f"> {3 * seconds}")
        .replace("> 1700", f"> {seconds}")
    )
    log, port = directory / "log", free_port()
    command = [server, f"--config.file={config}", f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]
    with log.open("wb") as output:
        running = subprocess.Popen(
            [*command, f"--storage.tsdb.path={directory / 'data'}"], cwd=directory, stdout=output, stderr=output
        )
    try:
        url = f"http://127.0.0.1:{port}"
        eventually(lambda: _ready(url) or running.poll() is not None, START_SECONDS)
        assert running.poll() is None, log.read_text()
        yield Prometheus(url)
    finally:
        running.kill()
        running.wait()


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
