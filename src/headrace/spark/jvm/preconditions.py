"""The Java, the PySpark and the master that Headrace runs on, found and judged before anything is started."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import PlatformError
from headrace.spark.messages.refusals import tidy

NEEDED = 17
INSTALL = (
    "install one: sudo apt-get install openjdk-17-jre-headless (Debian 12, Ubuntu; on Debian 13 "
    "openjdk-21-jre-headless), sudo dnf install java-21-openjdk-headless (Fedora), or brew install openjdk@21 and "
    "export JAVA_HOME=$(brew --prefix openjdk@21)/libexec/openjdk.jdk/Contents/Home (macOS)"
)
_RELEASE = re.compile(r'^JAVA_VERSION="([^"]+)"', re.MULTILINE)
_ANSWER = re.compile(r'version "([^"]+)"')
# From the first, up to and without the second: each in between was run with all canaries of Spark's private parts.
FIRST, BEYOND = (4, 2), (4, 4)
# Up to here all connectors are to be had, so pip is asked for no newer one.
COMPLETE_BEFORE = (4, 3)
ANSWER_SECONDS = 3.0
# What Spark says at its start of settings that no look at their text shows, with what to do.
_REASONS = (
    (r"System memory \d+ must be at least|[Nn]ot enough memory", "set spark.driver.memory to 1g or more"),
    (r"UnknownHostException|Name or service not known|nodename nor servname", "correct the host in master, or in DNS"),
    (r"BindException|[Aa]ddress already in use|Can't assign requested address", "set spark.driver.host or the port"),
    (
        r"ClassNotFoundException|NoClassDefFoundError",
        "correct the class in the project's `spark` settings, or add its jar",
    ),
    (r"HADOOP_CONF_DIR|YARN_CONF_DIR", "export HADOOP_CONF_DIR, the directory of the cluster's settings"),
)
_HOST = r"(\[[0-9A-Fa-f:]+\]|[^\s:/,\[\]]+)"
_MASTERS = (
    r"local(\[(\*|[1-9]\d*)(\s*,\s*[1-9]\d*)?\])?",
    rf"spark://{_HOST}:\d+(,{_HOST}:\d+)*",
    r"local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]",
    r"yarn",
    r"k8s://.+",
)
MASTER_FIX = "write local[*], local[2], spark://host:7077, yarn or k8s://..."


@dataclass(frozen=True, kw_only=True)
class Java:
    """One Java: the program that starts it, links followed, the directory that it is installed in, and its version."""

    path: Path
    home: Path
    version: str
    major: int


def require_java(environ: Mapping[str, str] | None = None) -> Java:
    """The Java that Spark's launcher will take; raises PlatformError where there is none or it is too old.

    Costs no process where the installation has a `release` file. Otherwise `java -version` is asked each time: a shim
    of a version manager answers differently in each directory.
    """
    environ = os.environ if environ is None else environ
    program, place = _program(environ)
    path = Path(os.path.realpath(program))
    home = path.parent.parent
    version = _read_release(home) or _ask_version(program)
    if version is None:
        raise _no_java(f"{place} does not answer as a Java does")
    major = _major(version)
    if major < NEEDED:
        raise _no_java(f"{place} is Java {version}")
    return Java(path=path, home=home, version=version, major=major)


def _no_java(reason: str, fix: str = INSTALL) -> PlatformError:
    return PlatformError(code="HR001", what=f"{reason}, and Spark needs Java {NEEDED} or newer", fix=fix)


def _program(environ: Mapping[str, str]) -> tuple[str, str]:
    """The program, chosen as Spark's `spark-class` does, and how to speak of it."""
    if home := environ.get("JAVA_HOME"):
        program = os.path.join(home, "bin", "java")
        if not os.access(program, os.X_OK):
            fix = f"set JAVA_HOME to a Java that is there, or unset it; {INSTALL}"
            raise _no_java(f"JAVA_HOME is {home}, where there is no bin/java", fix)
        return program, f"{program} (from JAVA_HOME)"
    java = shutil.which("java", path=environ.get("PATH", os.defpath))
    if java is None:
        raise _no_java("no Java was found on the PATH, JAVA_HOME is not set")
    return java, java


def _read_release(home: Path) -> str | None:
    try:
        return _version(_RELEASE, (home / "release").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None


def _ask_version(program: str) -> str | None:
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, errors="replace", timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return _version(_ANSWER, done.stderr + done.stdout)


def _version(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return match.group(1) if match and _major(match.group(1)) else None


def _major(version: str) -> int:
    """17 of `17.0.15`, 8 of `1.8.0_392`, 0 of what is not a version."""
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]] or [0]
    return numbers[-1] if numbers[0] == 1 else numbers[0]


def require_version(version: str) -> None:
    """Raise PlatformError for a version of Spark that Headrace was not tried with."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if FIRST <= numbers < BEYOND:
        return
    first, beyond, complete = (".".join(map(str, numbers)) for numbers in (FIRST, BEYOND, COMPLETE_BEFORE))
    raise PlatformError(
        code="HR446",
        what=f"this is Spark {version}, and Headrace runs on {first} and newer ones before {beyond}",
        fix=f"pip install 'pyspark>={first},<{complete}'",
    )


def require_master(master: str) -> None:
    """Raise PlatformError for a text that names no master, or a standalone one of which no host answers."""
    if (wrong := master_fault(master)) is not None:
        by = ", which SPARK_MASTER says," if os.environ.get("SPARK_MASTER") == master else ""
        raise PlatformError(code="HR125", what=f"'{master}'{by} {wrong[0]}", fix=wrong[1])
    hosts = master_hosts(master)
    reasons = []
    for host, port in hosts:
        try:
            socket.create_connection((host, port), timeout=ANSWER_SECONDS).close()
            return
        except (OSError, OverflowError, UnicodeError) as error:
            reasons.append(f"{host}:{port}: {getattr(error, 'strerror', None) or str(error) or 'no answer'}")
    if hosts:
        message = f"the master {master} does not answer ({'; '.join(reasons)})"
        raise PlatformError(code="HR126", what=message, fix="start the cluster, or correct the target's master")


def start_error(error: Exception, master: str) -> PlatformError:
    """Why no session could be made, from an exception of PySpark's or of the JVM's."""
    text = str(error)
    causes = re.findall(r"(?<![\w.])(?:\w+\.)+(\w*(?:Exception|Error)): ?(.+)", text)
    named = f"{causes[-1][1]} ({causes[-1][0]})" if causes else tidy(text)
    if "JAVA_GATEWAY_EXITED" in text or "Java gateway process exited" in text:
        named = "its JVM ended before it answered; what it printed stands above"
    fix = next(
        (fix for pattern, fix in _REASONS if re.search(pattern, text)),
        f"correct the `spark` settings of the target, or its master ({MASTER_FIX})",
    )
    return PlatformError(
        code="HR127", what=f"Spark cannot be started on {master}: {named or type(error).__name__}", fix=fix
    )


def master_fault(master: str) -> tuple[str, str] | None:
    """What is wrong with a master, and what to write."""
    if master.startswith("sc://"):
        return "is an address of Spark Connect, which cannot run Headrace's sinks", MASTER_FIX
    if any(re.fullmatch(form, master) for form in _MASTERS):
        wrong = [port for _, port in master_hosts(master) if not 0 < port < 65_536]
        return (f"has the port {wrong[0]}, which is not a number from 1 to 65535", MASTER_FIX) if wrong else None
    return "is not a master of Spark", MASTER_FIX


def master_hosts(master: str) -> list[tuple[str, int]]:
    """The hosts and ports of a standalone cluster's masters; none for another kind."""
    if not master.startswith("spark://"):
        return []
    pairs = (host.rpartition(":") for host in master.removeprefix("spark://").split(","))
    return [(host.strip("[]"), int(port)) for host, _, port in pairs]
