"""An archive of the packages that a project's tasks import, for workers whose Python lacks them."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from headrace.cluster.connection import COMMON
from headrace.errors import Finding, HeadraceError, PlatformError, reason
from headrace.storage.private import FULL, unwritable

# Where Spark unpacks it, in the directory that an executor works in.
DIRECTORY = "headrace-packages"
# Executors have Spark's own Python code from the Spark that they run.
_OF_SPARK = ("pyspark", "py4j")
_OURS = "headrace"
_SUFFIXES = (".tar.gz", ".tgz", ".tar")
_HASHES = re.compile(r"\s--hash|\s#")
# As pip prints it, on lines of their own.
_OTHER_FILE = re.compile(
    r"^\s+(?P<name>\S+) from .*\n\s+Expected (?P<kind>\w+) (?P<wanted>\w+)(?:\n\s+Expected\s+or \w+)*\n"
    r"\s+Got\s+(?P<got>\w+)",
    re.MULTILINE,
)


@dataclass(frozen=True, kw_only=True)
class Packed:
    """An archive that was made: what is in it, for which Python, on which kind of machine."""

    file: Path
    packages: Mapping[str, str]
    python: str
    machine: str

    @property
    def bytes(self) -> int:
        return self.file.stat().st_size


def settings(archive: Path | str, own: Mapping[str, str]) -> dict[str, str]:
    """Return the settings by which Spark unpacks an archive for each executor, and Python finds it."""
    archives = [f"{archive}#{DIRECTORY}", *filter(None, [own.get("spark.archives")])]
    paths = [f"./{DIRECTORY}", *filter(None, [own.get("spark.executorEnv.PYTHONPATH")])]
    return {"spark.archives": ",".join(archives), "spark.executorEnv.PYTHONPATH": ":".join(paths)}


def pack(out: Path, names: Collection[str], *, lock: Path | None = None) -> Packed:
    """Pack `names`, what Headrace itself needs on workers, and all that these need; for the Python that runs here.

    Without a lock file each in the version that is installed here, with one in that which the lock names, fetched by
    pip. Raises PlatformError.
    """
    if not out.name.endswith(_SUFFIXES):
        problem = f"'{out.name}' is not a valid name of an archive that is made here"
        raise PlatformError(code="HR857", what=problem, fix=f"end it with {', '.join(_SUFFIXES)}")
    with _report_unwritable(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        draft = out.with_name(f".{out.name}")
        draft.touch()
    wanted = required_distributions(names)
    with tempfile.TemporaryDirectory(prefix="headrace-pack-") as scratch:
        place = Path(scratch)
        if lock is None:
            for package in wanted.values():
                _copy(package, place)
            packages = {name: package.version for name, package in wanted.items()}
        else:
            packages = _fetch(place, read_lock(lock), wanted)
        mode = "w" if out.name.endswith(".tar") else "w:gz"
        # Packed quickly: it travels to each executor once.
        more = {} if mode == "w" else {"compresslevel": 1}
        with _report_unwritable(out), tarfile.open(draft, mode, **more) as archive:  # type: ignore[call-overload]
            for file in sorted(place.iterdir()):
                archive.add(file, file.name)
        with _report_unwritable(out):
            draft.replace(out)
    return Packed(
        file=out,
        packages=dict(sorted(packages.items())),
        python=".".join(platform.python_version_tuple()[:2]),
        machine=sysconfig.get_platform(),
    )


@contextmanager
def _report_unwritable(out: Path) -> Iterator[None]:
    """Turn what keeps the archive from being written into one finding."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise unwritable(f"'{out}'", error) from error
        problem = f"'{out}' cannot be written: {reason(error)}"
        fix = "name a file, in a directory that you may write into: headrace cluster pack --out FILE"
        raise PlatformError(code="HR857", what=problem, fix=fix) from error


def required_distributions(names: Collection[str]) -> dict[str, Distribution]:
    """Return the distributions of `names` and their requirements, by name; raises PlatformError for a missing one."""
    by_name: dict[str, Distribution] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    try:
        asked = [*(Requirement(name) for name in (*COMMON, *names)), *_own_requirements(names)]
    except InvalidRequirement as error:
        fix = "write it as pip takes it: requests, or 'requests>=2'"
        raise HeadraceError(code="HR090", what=f"a package cannot be named so: {error}", fix=fix) from error
    for requirement in asked:  # which grows as it is read
        name, extras = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if name in _OF_SPARK or (name, extras) in seen:
            continue
        seen.add((name, extras))
        there = _distribution(name)
        if name != _OURS:
            by_name[name] = there
        asked += _requirements(there, extras)
    return by_name


def read_lock(file: Path) -> dict[str, str]:
    """Read the entries of a lock file of pip or uv, by their packages' names; raises PlatformError."""
    try:
        text = file.read_text(encoding="utf-8").replace("\\\n", " ")
    except OSError as error:
        problem = f"the lock file {file} cannot be read: {reason(error)}"
        raise PlatformError(code="HR857", what=problem, fix="name one that pip can install from") from error
    entries: dict[str, str] = {}
    for line in text.splitlines():
        with suppress(InvalidRequirement):
            requirement = Requirement(_HASHES.split(line)[0].strip())
            if requirement.marker is None or requirement.marker.evaluate():
                entries[canonicalize_name(requirement.name)] = line.strip()
    return entries


def _fetch(place: Path, entries: Mapping[str, str], wanted: Collection[str]) -> dict[str, str]:
    if missing := sorted(set(wanted) - set(entries)):
        problem = f"the lock file names no version of {', '.join(missing)}"
        raise PlatformError(code="HR857", what=problem, fix="lock the project's dependencies again")
    lines = [entries[name] for name in wanted]
    chosen = place / "chosen.txt"
    chosen.write_text("\n".join(lines) + "\n", encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "--no-deps", "--no-compile", "--target", str(place), "--requirement", str(chosen)],
        capture_output=True,
        text=True,
        check=False,
    )
    chosen.unlink()
    if done.returncode:
        raise PlatformError(_pip_failure(done.stderr))
    shutil.rmtree(place / "bin", ignore_errors=True)
    versions = (re.split(r"[\s;]", line.partition("==")[2], maxsplit=1)[0] for line in lines)
    return dict(zip(wanted, versions, strict=True))


def _pip_failure(output: str) -> Finding:
    """Return why pip has installed nothing, in a sentence."""
    if other := _OTHER_FILE.search(output):
        problem = f"{other['name']} is another file than the lock file names: its {other['kind']} begins with "
        problem += f"{other['got'][:12]}, and that of the lock file with {other['wanted'][:12]}"
        fix = "see where pip fetches from and who has changed the file there; or lock the dependencies again"
        return Finding(code="HR857", what=problem, fix=fix)
    line = next((line for line in output.splitlines() if "ERROR" in line), output.strip()[-200:])
    problem = f"pip cannot install what the lock file names: {line.removeprefix('ERROR: ')}"
    return Finding(code="HR857", what=problem, fix="correct the lock file, or leave --lock out")


def _copy(package: Distribution, place: Path) -> None:
    """Copy an installed distribution's files, without its commands and what Python has compiled."""
    for file in package.files or ():
        path = PurePosixPath(file)
        if ".." in path.parts or path.is_absolute() or "__pycache__" in path.parts:
            continue
        source = Path(str(package.locate_file(file)))
        if source.is_file():
            target = place / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)


def _own_requirements(names: Collection[str]) -> Iterator[Requirement]:
    """Yield what Headrace itself needs, and `names` with those parts of them that its extras ask for."""
    ours = _distribution(_OURS)
    yield from _requirements(ours, ())
    wanted = {canonicalize_name(Requirement(name).name) for name in names}
    for requirement in map(Requirement, ours.requires or ()):
        if canonicalize_name(requirement.name) in wanted:
            yield requirement


def _requirements(package: Distribution, extras: Collection[str]) -> Iterator[Requirement]:
    """Yield what a distribution needs on this machine, with `extras` of it."""
    given: Sequence[str] = ["", *extras]
    for text in package.requires or ():
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in given):
            yield requirement


def _distribution(name: str) -> Distribution:
    try:
        return distribution(name)
    except PackageNotFoundError:
        problem = f"{name} is not installed here, so that it is not known what it needs"
        raise PlatformError(code="HR857", what=problem, fix=f"pip install {name}") from None
