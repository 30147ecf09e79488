"""The systemd unit of a project, and the files by which Prometheus and Grafana watch it."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path

from headrace.errors import FINAL_EXIT_CODES, Finding, HeadraceError
from headrace.model import Project
from headrace.model.operations import Metrics
from headrace.operate.address import asked_at
from headrace.units import Duration

# Of metrics that are not declared, but asked for by `headrace run --metrics`.
PORT = 9108
MONITORING = ("alerts.yml", "dashboard.json")
STOP_TIMEOUT = Duration.parse("5 minutes")
# Starts that fail come less and less often, as far as systemd can do that: from its version 254 on. What it is to start
# again may be away for hours, so their number has no limit.
BACKOFF = ("RestartSec=10", "RestartSteps=8", "RestartMaxDelaySec=300")
NO_BACKOFF = ("RestartSec=60",)
SYSTEMD_WITH_BACKOFF = 254


def unit(
    project: Project, *, user: str | None = None, stop_timeout: Duration = STOP_TIMEOUT, systemd: int | None = None
) -> str:
    """The text of the unit; raises HeadraceError where it would run as root.

    user: whom it runs as; None: whom the project's directory belongs to. systemd: its version, if that is known.
    """
    owner = user or _owner(project.root)
    if owner in ("root", "0"):
        raise HeadraceError(
            Finding(
                code="HR877",
                what=f"the service would run as root, to whom {project.root} belongs",
                fix="name an unprivileged user who may write into the storage directory: --user NAME",
            )
        )
    name = unit_name(project)
    java = os.environ.get("JAVA_HOME")
    lines = [
        "[Unit]",
        f"Description=Headrace project {_text(project.name)}",
        "After=network-online.target",
        "Wants=network-online.target",
        "StartLimitIntervalSec=0",
        "",
        "[Service]",
        f"User={owner}",
        f"WorkingDirectory={_text(str(project.root.resolve()))}",
        f"Environment=HEADRACE_TARGET={_quoted(project.target.name)}",
        *([f"Environment=JAVA_HOME={_quoted(java)}"] if java else []),
        f"EnvironmentFile=-/etc/{name}.env",
        f"ExecStart={' '.join(map(_argument, (*command(), 'run')))}",
        "# SIGTERM for headrace alone, which lets the running batches finish; the JVM ends with it.",
        "KillMode=mixed",
        f"TimeoutStopSec={stop_timeout.seconds:.0f}",
        "Restart=on-failure",
        *(BACKOFF if systemd is not None and systemd >= SYSTEMD_WITH_BACKOFF else NO_BACKOFF),
        f"RestartPreventExitStatus={' '.join(map(str, FINAL_EXIT_CODES))}",
        "UMask=0077",
        "NoNewPrivileges=yes",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines) + "\n"


def systemd_version() -> int | None:
    """The version of this machine's systemd; None where there is none."""
    try:
        said = subprocess.run(["systemctl", "--version"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return None
    found = re.match(r"systemd (\d+)", said)
    return int(found[1]) if found else None


def unit_name(project: Project) -> str:
    """What the unit is called: the project's name, and the target where it is not `dev`."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", project.name).strip("-.") or "project"
    return f"headrace-{name}" if project.target.name == "dev" else f"headrace-{name}-{project.target.name}"


def command() -> list[str]:
    """How this Headrace is called, by its absolute path."""
    beside = Path(sys.executable).parent / "headrace"
    found = str(beside) if beside.is_file() else shutil.which("headrace")
    return [found] if found else [sys.executable, "-m", "headrace"]


def write_monitoring(directory: Path, project: Project) -> list[Path]:
    """Write the alert rules, the dashboard and a scrape configuration for the project into `directory`.

    Raises HeadraceError where each start of the project serves its metrics on another port.
    """
    scrape = _scrape(project)
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name in MONITORING:
        text = resources.files("headrace.operate").joinpath("monitoring").joinpath(name).read_text(encoding="utf-8")
        written.append(directory / name)
        written[-1].write_text(text, encoding="utf-8")
    written.append(directory / "prometheus.yml")
    written[-1].write_text(scrape, encoding="utf-8")
    return written


def _scrape(project: Project) -> str:
    served = project.target.operations.metrics or Metrics(port=PORT)
    if not served.port:
        raise HeadraceError(
            Finding(
                code="HR877",
                what="metrics: {port: 0} takes another port at each start, at which Prometheus would not find them",
                fix=f"name one that stays: metrics: {{port: {PORT}}}",
            )
        )
    token = "    authorization: {credentials_file: token}\n" if served.token else ""
    return (
        "global: {scrape_interval: 15s}\n"
        "rule_files: [alerts.yml]\n"
        "scrape_configs:\n"
        "  - job_name: headrace\n"
        f"{token}"
        f"    static_configs: [{{targets: ['{asked_at(served.address, served.port)}']}}]\n"
    )


def _owner(directory: Path) -> str:
    user = directory.stat().st_uid
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def _text(value: str) -> str:
    """`value` without what systemd fills in."""
    return value.replace("%", "%%")


def _quoted(value: str) -> str:
    plain = _text(value)
    return (
        plain if re.fullmatch(r"[\w./:@%+-]+", plain) else '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'
    )


def _argument(value: str) -> str:
    return _quoted(value.replace("$", "$$"))
