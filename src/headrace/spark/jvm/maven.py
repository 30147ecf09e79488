"""Jars by their Maven coordinates, fetched by Maven or by Spark's resolver, and held against known SHA-256 sums."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from xml.sax.saxutils import escape

PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
FETCH_SECONDS = 900
# Without updates Maven would take the answer of a day ago that it found nothing, though the repository has it now.
MAVEN = ("mvn", "--batch-mode", "--strict-checksums", "--quiet", "--update-snapshots", "--file")
# Spark's own descriptors ask a mirror first that many networks do not reach; declared here, it is not asked.
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>headrace</groupId><artifactId>connectors</artifactId><version>1</version><packaging>pom</packaging>
  <repositories>
    <repository>
      <id>gcs-maven-central-mirror</id><url>file:///nowhere</url>
      <releases><enabled>false</enabled></releases><snapshots><enabled>false</enabled></snapshots>
    </repository>
  </repositories>
  <dependencies>{dependencies}</dependencies>
</project>
"""


class FetchError(Exception):
    """Jars could not be fetched; the message is one sentence. `missing` are artifacts that the repository lacks."""

    def __init__(self, sentence: str, missing: Sequence[str] = ()) -> None:
        self.missing = tuple(missing)
        super().__init__(sentence)


class ChecksumError(FetchError):
    """A jar is not the one that is known by its name."""


def fetch(
    coordinates: Sequence[str],
    directory: Path,
    *,
    for_spark: bool = True,
    alone: Sequence[str] = (),
    sums: Mapping[str, str] | None = None,
) -> list[Path]:
    """Bring the jars of `coordinates` (group:artifact:version), with what they need, into `directory`.

    Maven does it where there is one, with its settings; else Ivy, which Spark brings along. alone: further jars,
    without what they need. `for_spark`: jars that Spark has itself are left out. Raises FetchError; ChecksumError when
    one is not the jar whose sum is known, by `sums` or the package's own, and then none is kept.
    """
    directory.mkdir(parents=True, exist_ok=True)
    # On the same file system, so that each jar is put into its place by one rename.
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=directory) as scratch:
        if shutil.which("mvn"):
            _fetch_by_maven(coordinates, alone, Path(scratch))
        else:
            _fetch_by_ivy(coordinates, alone, Path(scratch))
        sparks = (Path(str(files("pyspark"))) / "jars").glob("*.jar") if for_spark else ()
        own = {_artifact(jar.name) for jar in sparks}
        if other := changed_jars(Path(scratch).glob("*.jar"), known_sums() if sums is None else sums):
            named = ", ".join(sorted(other))
            raise ChecksumError(f"{named} has another SHA-256 sum than this version of Headrace knows")
        fetched = [jar for jar in sorted(Path(scratch).glob("*.jar")) if _artifact(jar.name) not in own]
        return [Path(shutil.move(jar, directory / jar.name)) for jar in fetched]


def _fetch_by_maven(coordinates: Sequence[str], alone: Sequence[str], directory: Path) -> None:
    wanted = _dependencies(coordinates, transitive=True) + _dependencies(alone, transitive=False)
    _run_maven(directory, wanted, "copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={directory}")


def _run_maven(directory: Path, dependencies: str, goal: str, *options: str) -> None:
    pom = directory / "pom.xml"
    pom.write_text(_POM.format(dependencies=dependencies))
    _finish([*MAVEN, str(pom), f"{PLUGIN}:{goal}", *options])


def nearest_version(coordinate: str) -> str | None:
    """The newest version with the same first two numbers that Maven's repositories have of group:artifact:version."""
    group, artifact, version = coordinate.split(":")
    if not shutil.which("mvn") or not re.match(r"\d+\.\d+", version):
        return None
    major, minor = version.split(".")[:2]
    wanted = f"{group}:{artifact}:[{major}.{minor},{major}.{int(minor) + 1}-alpha)"
    with tempfile.TemporaryDirectory(prefix="headrace-jars-") as scratch:
        answer = Path(scratch) / "answer"
        try:
            _run_maven(Path(scratch), _dependencies([wanted], transitive=False), "list", f"-DoutputFile={answer}")
            match = re.search(rf"{re.escape(artifact)}:jar:([\w.-]+):", answer.read_text())
        except (FetchError, OSError):
            return None
    return match[1] if match and match[1] != version else None


def _dependencies(coordinates: Sequence[str], transitive: bool) -> str:
    names = ("groupId", "artifactId", "version")
    alone = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    return "".join(
        "<dependency>"
        + "".join(f"<{name}>{escape(part)}</{name}>" for name, part in zip(names, coordinate.split(":"), strict=True))
        + ("" if transitive else alone)
        + "</dependency>"
        for coordinate in coordinates
    )


def _fetch_by_ivy(coordinates: Sequence[str], alone: Sequence[str], directory: Path) -> None:
    for kind, wanted in (("whole", coordinates), ("alone", alone)):
        if wanted:
            # In a process of its own: the JVM that resolves knows no session, and ends with it.
            _finish([sys.executable, "-m", "headrace.spark.jvm.maven", str(directory), kind, *wanted])


def _finish(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=FETCH_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FetchError(f"'{command[0]}' did not come to its end: {error}") from error
    if done.returncode:
        output = done.stdout + done.stderr
        raise FetchError(reason_of(output) or f"'{command[0]}' ended with {done.returncode}", missing_in(output))


def missing_in(output: str) -> list[str]:
    """The artifacts, as group:artifact:version, that no repository has, by what Maven or Ivy printed."""
    coordinates = (re.split("[:#;]", text) for pattern in _MISSING for text in re.findall(pattern, output))
    return list(dict.fromkeys(":".join((*parts[:2], parts[-1])) for parts in coordinates))


def reason_of(output: str) -> str:
    """Why nothing was fetched, in one whole sentence, from what Maven or Ivy printed; empty if it says nothing."""
    if missing := missing_in(output):
        return f"the repository does not have {', '.join(missing)}"
    if _UNREACHED.search(output):
        host = re.search(
            r"Unknown host ([\w.-]+)|Connect to ([\w.-]+:\d+)|([\w.-]+): Name or service not known", output
        )
        return "the repository cannot be reached" + (f" ({next(filter(None, host.groups()))})" if host else "")
    lines = [line for line in output.splitlines() if re.search(r"ERROR|rror:|not found", line)]
    return re.split(r"(?<=\w)\. |: \[|\s*->", re.sub(r"^\[ERROR\]\s*", "", lines[0]))[0].strip() if lines else ""


# As Maven 3 and Ivy name an artifact that no repository has: group:artifact:type:version.
_MISSING = (
    r"Could not find artifact ([\w.-]+(?::[\w.-]+){2,4})",
    r"([\w.-]+:[\w.-]+:jar:[\w.-]+) was not found in",
    r"unresolved dependency: ([\w.-]+#[\w.-]+;[\w.-]+)",
)
_UNREACHED = re.compile(
    r"Unknown host|Connection refused|Connection timed out|connect timed out|No route to host|Network is unreachable|"
    r"Name or service not known|status code: 5\d\d",
    re.IGNORECASE,
)


def _artifact(jar: str) -> str:
    """`kafka-clients` of `kafka-clients-3.9.0.jar`."""
    return re.sub(r"-\d.*$", "", jar.removesuffix(".jar"))


def main(directory: str, kind: str, coordinates: Sequence[str]) -> int:
    """Let Spark's resolver fetch the jars. Source: org.apache.spark.util.DependencyUtils."""
    from headrace.spark.jvm.gateway import without_session

    with without_session() as gateway:
        resolve = gateway.jvm.org.apache.spark.util.DependencyUtils.resolveMavenDependencies
        none = getattr(gateway.jvm.scala, "None$").__getattr__("MODULE$")
        resolved = resolve(kind == "whole", "", ",".join(coordinates), "", f"{directory}/ivy", none)
        for jar in (Path(resolved.apply(at)) for at in range(resolved.size())):
            # Ivy's names begin with the group.
            shutil.copy(jar, Path(directory) / jar.name.partition("_")[2])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))


def read_sums(text: str) -> dict[str, str]:
    """The sums by the jars' names, from lines as `sha256sum` writes them."""
    lines = (line.split() for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return {name: sum_ for sum_, name in lines}


@cache
def known_sums() -> Mapping[str, str]:
    """The sums of the connectors' jars, with all that they need."""
    return read_sums((files("headrace.spark") / "jars.sha256").read_text(encoding="utf-8"))


def changed_jars(jars: Iterable[Path], sums: Mapping[str, str]) -> list[str]:
    """The names of the jars that are not those whose sums are known."""
    return [jar.name for jar in jars if jar.name in sums and sum_of(jar) != sums[jar.name]]


def sum_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
