"""The crash log: what is written when an error was not foreseen, so that it can be reported."""

from __future__ import annotations

import platform
import sys
import tempfile
import traceback
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from headrace.errors import Finding
from headrace.redaction import redacted

PACKAGES = ("headrace", "pyspark", "pyarrow", "pandas", "click", "rich")


def unforeseen(error: BaseException, arguments: Sequence[str], *, near: Path) -> Finding:
    """Write the crash log below `near`, or in the temporary directory, and say where it is."""
    text = redacted("\n".join(_lines(error, arguments)))
    name = f"headrace-crash-{datetime.now(timezone.utc):%Y%m%dT%H%M%S%fZ}.log"
    path = _written(near, name, text)
    kept = f"the crash log is '{path}'" if path else "no crash log could be written"
    return Finding(
        code="HR999",
        what=f"an error that Headrace did not foresee, {type(error).__name__}; {kept}",
        fix="report it to Headrace's maintainers with that file, which holds no data and no settings; then try again",
    )


def _lines(error: BaseException, arguments: Sequence[str]) -> list[str]:
    return [
        f"command: headrace {' '.join(arguments)}",
        f"python: {sys.version.split()[0]} on {platform.platform()}",
        *(f"{package}: {_version(package)}" for package in PACKAGES),
        "",
        "".join(traceback.format_exception(type(error), error, error.__traceback__)),
    ]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _written(near: Path, name: str, text: str) -> Path | None:
    for directory in (near / ".headrace", Path(tempfile.gettempdir())):
        path = directory / name
        try:
            if directory.is_dir():
                path.touch(mode=0o600)
                path.write_text(text, encoding="utf-8")
                return path
        except OSError:
            continue
    return None
