"""The Java that Spark will run on, found and judged before anything is started."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import Finding, PlatformError

NEEDED = 17
INSTALL = (
    "install one: sudo apt-get install openjdk-17-jre-headless (Debian 12, Ubuntu; on Debian 13 "
    "openjdk-21-jre-headless), sudo dnf install java-21-openjdk-headless (Fedora), or brew install openjdk@21 and "
    "export JAVA_HOME=$(brew --prefix openjdk@21)/libexec/openjdk.jdk/Contents/Home (macOS)"
)

_RELEASE = re.compile(r'^JAVA_VERSION="([^"]+)"', re.MULTILINE)
_ANSWER = re.compile(r'version "([^"]+)"')


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
    version = _released(home) or _answered(program)
    if version is None:
        raise PlatformError(
            Finding(
                code="HR001",
                what=f"{place} does not answer as a Java does, and Spark needs Java {NEEDED} or newer",
                fix=INSTALL,
            )
        )
    major = _major(version)
    if major < NEEDED:
        raise PlatformError(
            Finding(
                code="HR002",
                what=f"{place} is Java {version}, and Spark needs Java {NEEDED} or newer",
                fix=INSTALL,
            )
        )
    return Java(path=path, home=home, version=version, major=major)


def _program(environ: Mapping[str, str]) -> tuple[str, str]:
    """The program, chosen as Spark's `spark-class` does, and how to speak of it."""
    if home := environ.get("JAVA_HOME"):
        program = os.path.join(home, "bin", "java")
        if not os.access(program, os.X_OK):
            raise PlatformError(
                Finding(
                    code="HR001",
                    what=f"JAVA_HOME is {home}, where there is no bin/java, and Spark needs Java {NEEDED} or newer",
                    fix=f"set JAVA_HOME to a Java that is there, or unset it; {INSTALL}",
                )
            )
        return program, f"{program} (from JAVA_HOME)"
    found = shutil.which("java", path=environ.get("PATH", os.defpath))
    if found is None:
        raise PlatformError(
            Finding(
                code="HR001",
                what=f"no Java was found on the PATH, JAVA_HOME is not set, and Spark needs Java {NEEDED} or newer",
                fix=INSTALL,
            )
        )
    return found, found


def _released(home: Path) -> str | None:
    try:
        found = _RELEASE.search((home / "release").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    return found.group(1) if found and _major(found.group(1)) else None


def _answered(program: str) -> str | None:
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, errors="replace", timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _ANSWER.search(done.stderr + done.stdout)
    return found.group(1) if found and _major(found.group(1)) else None


def _major(version: str) -> int:
    """17 of `17.0.15`, 8 of `1.8.0_392`, 0 of what is no version."""
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
    if numbers[:1] == [1]:
        return numbers[1] if len(numbers) > 1 else 1
    return numbers[0] if numbers else 0
