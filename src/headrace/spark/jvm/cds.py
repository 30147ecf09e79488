"""The CDS archive that lets Spark's JVM start without parsing its classes again.

Java calls it class-data sharing: the classes that a training run loaded are kept in one file, which later JVMs map
into memory. The file fits one Java and one set of jars only, so both are part of its name. Whatever goes wrong here,
Spark starts as it does without an archive.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from headrace.children import await_parent
from headrace.errors import Finding, PlatformError
from headrace.spark.jvm import gateway, hadoop_files
from headrace.spark.jvm import jars as connectors
from headrace.spark.jvm.preconditions import Java, require_java
from headrace.storage.durable import publish, replace_file

SWITCH = "HEADRACE_CDS"
# What masters, workers and executors would say in their logs of an archive that does not fit.
QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")
EXECUTOR_OPTIONS, EXECUTOR_CLASS_PATH = "spark.executor.extraJavaOptions", "spark.executor.extraClassPath"
_RECIPE = 3  # counts up when the training run changes
_MOST_SECONDS = 1800


class _NoArchiveError(Exception):
    """Why there is no archive, as the rest of a sentence."""


def is_enabled() -> bool:
    """Whether archives are used at all: `HEADRACE_CDS=off` says no."""
    return os.environ.get(SWITCH, "").lower() not in ("off", "0", "no", "false")


def cache() -> Path:
    """Where archives are kept."""
    return connectors.cache("cds")


def archive_for(java: Java) -> Path | None:
    """The archive that fits `java` and Spark's jars exactly, if it has been made."""
    jars = _jars()
    if jars is None or not is_enabled():
        return None
    archive = cache() / f"{_key(java.path, jars)}.jsa"
    return archive if archive.is_file() else None


def options(java: Java) -> list[str]:
    """Return the JVM's options for the archive; none where no archive fits.

    `auto`: a JVM that does not like the archive after all continues silently.
    """
    archive = archive_for(java)
    if archive is None or any(space in str(archive) for space in " \t\"'"):
        return []
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"]


def class_path(jars: Path) -> str | None:
    """The only class path that an archive fits: that of sessions, as Spark's launcher makes it, for JVMs without one.

    None where Spark has a directory of settings, which would be on it.
    """
    first, conf = hadoop_files.jar(), jars.parent / "conf"
    if conf.exists():
        return None
    return os.pathsep.join(map(str, [*filter(None, [first]), conf, *sorted(jars.glob("slf4j-api-*.jar")), jars / "*"]))


def executor_settings(java: Java, own: Mapping[str, str]) -> dict[str, str]:
    """What lets executors that `java` runs here use the archive, which fits none with a class path of their own."""
    chosen, first = options(java), hadoop_files.jar()
    if not chosen or EXECUTOR_CLASS_PATH in own:
        return {}
    settings = {EXECUTOR_OPTIONS: " ".join([*chosen, *QUIET, own.get(EXECUTOR_OPTIONS, "")]).strip()}
    return settings if first is None else {**settings, EXECUTOR_CLASS_PATH: str(first)}


def make(java: Java) -> Path | None:
    """Make the archive for `java` if there is none, and delete those that nothing can use any more.

    Waits for another process that is making it. On any fault one sentence goes to stderr and None comes back.
    """
    if not is_enabled():
        return None
    if ready := archive_for(java):
        return ready
    try:
        jars = _jars()
        if jars is None:
            raise _NoArchiveError("Spark's jars were not found")
        cache().mkdir(parents=True, exist_ok=True)
        key = _key(java.path, jars)
        with _lock(key):
            archive = cache() / f"{key}.jsa"
            for leftover in cache().glob(f"{key}-*"):
                shutil.rmtree(leftover, ignore_errors=True)
            if not archive.is_file():
                _discard_unusable()
                _train(java, jars, archive)
            return archive
    except (_NoArchiveError, OSError) as error:
        why = error if isinstance(error, _NoArchiveError) else f"{error.filename or cache()}: {error.strerror or error}"
        message = f"no CDS archive was made, so Spark starts a few seconds later: {why}"
        print(Finding(code="HR003", what=message), file=sys.stderr)
        return None


def ensure_in_background(java: Java) -> Finding | None:
    """Have the archive made by a process of its own, at the lowest priority, if none fits; the note says so.

    That process outlives the end of this one, but not its death: a killed driver leaves no work behind.
    Nothing is done, and nothing said, where an archive fits, where it is switched off, under `CI=true`, and where
    making it has failed before.
    """
    jars = _jars()
    if jars is None or not is_enabled() or os.environ.get("CI", "").lower() == "true" or archive_for(java):
        return None
    key = _key(java.path, jars)
    if (cache() / f"{key}.failed").exists() or _is_locked(key):
        return None
    try:
        cache().mkdir(parents=True, exist_ok=True)
        alive, own = os.pipe()
        subprocess.Popen(
            ["nice", "-n", "19", sys.executable, "-m", "headrace.spark.jvm.cds", "--with-parent"],
            stdin=alive,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd=cache(),
        )
        atexit.register(os.write, own, b"\n")
    except OSError:
        return None
    mismatch = any(note.get("jars") == str(jars) for _, note in _notes())
    why = "the CDS archive fits another Java or other jars" if mismatch else "there is no CDS archive yet"
    message = f"{why}: Spark starts a few seconds later this time, and one is being made in the background"
    return Finding(code="HR003", what=message)


# ------------------------------------------------------------------------------------------------ what it is bound to


def _jars() -> Path | None:
    """The directory of Spark's jars, found without importing pyspark."""
    places = [home] if (home := os.environ.get("SPARK_HOME")) else []
    if not places and (spec := importlib.util.find_spec("pyspark")):
        places += spec.submodule_search_locations or ()
    return next((jars for jars in (Path(place) / "jars" for place in places) if jars.is_dir()), None)


def _key(java: Path, jars: Path) -> str:
    """Twenty hexadecimal digits that change whenever the JVM would refuse the archive."""
    digest = hashlib.sha256(f"{_RECIPE}\n{java}\n{jars}\n".encode())
    for part in (java, java.parent.parent / "release", java.parent.parent / "lib" / "server" / "classes.jsa"):
        digest.update(_stamp(part).encode())
    # The order of a wildcard class path is the directory's own, and the JVM compares it.
    with os.scandir(jars) as entries:
        for entry in entries:
            if entry.name.endswith(".jar"):
                digest.update(_stamp(Path(entry.path)).encode())
    if first := hadoop_files.jar():
        digest.update(f"{first} {_stamp(first)}".encode())
    return digest.hexdigest()[:20]


def _stamp(path: Path) -> str:
    try:
        facts = path.stat()
    except OSError:
        return f"{path.name} none\n"
    return f"{path.name} {facts.st_size} {facts.st_mtime_ns}\n"


def _notes() -> Iterator[tuple[Path, dict[str, str]]]:
    """What each archive was made for, from the note next to it."""
    for path in cache().glob("*.json"):
        try:
            yield path, dict(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            yield path, {}


def _discard_unusable() -> None:
    """Delete archives whose Java or jars have changed or gone."""
    for note, made_for in _notes():
        try:
            kept = note.stem == _key(Path(made_for["java"]), Path(made_for["jars"]))
        except (KeyError, OSError):
            kept = False
        if not kept:
            for ending in (".jsa", ".failed", ".lock", ".json"):
                note.with_suffix(ending).unlink(missing_ok=True)


# ------------------------------------------------------------------------------------------------ making it


def end_with_parent() -> None:
    """End this process and its JVM at once when the process that holds its input dies without a word."""

    def end() -> None:
        gateway.kill()
        os._exit(1)

    await_parent(end)


def _train(java: Java, jars: Path, archive: Path) -> None:
    """Run the training in a process of its own and put what its JVM wrote in place, in one step."""
    failed = archive.with_suffix(".failed")
    # What would make the training's JVM another one than the user's.
    unwanted = ("PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "SPARK_REMOTE", "SPARK_MASTER")
    clean = {name: value for name, value in os.environ.items() if name not in unwanted}
    place = Path(tempfile.mkdtemp(prefix=f"{archive.stem}-", dir=archive.parent))
    try:
        written = place / "made.jsa"
        done = subprocess.run(
            [sys.executable, "-m", "headrace.demo.training", str(written)],
            stdin=os.pipe()[0],  # The system closes the other end when this process dies.
            capture_output=True,
            text=True,
            errors="replace",
            cwd=place,
            timeout=_MOST_SECONDS,
            env={**clean, SWITCH: "off", "TMPDIR": str(place), "SPARK_LOCAL_DIRS": str(place)},
        )
        if done.returncode != 0 or not written.is_file():
            reason = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()[-1]
            raise _NoArchiveError(f"the training run failed ({reason})")
        note = {"java": str(java.path), "version": java.version, "jars": str(jars)}
        replace_file(archive.with_suffix(".json"), json.dumps(note, indent=1) + "\n")
        publish(written, archive)
        failed.unlink(missing_ok=True)
    except (subprocess.TimeoutExpired, _NoArchiveError) as error:
        failed.touch()
        if isinstance(error, _NoArchiveError):
            raise
        raise _NoArchiveError(f"the training run took more than {_MOST_SECONDS} seconds") from error
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def _lock(key: str) -> Iterator[None]:
    with open(cache() / f"{key}.lock", "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _is_locked(key: str) -> bool:
    try:
        with open(cache() / f"{key}.lock", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def main() -> Literal[0]:
    """Make the archive once, and fetch what it is to hold; an installation must not fail for want of it."""
    try:
        if "--with-parent" in sys.argv:
            end_with_parent()
        if is_enabled():
            hadoop_files.ensure()
        make(require_java())
    except PlatformError as error:
        print(error, file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
