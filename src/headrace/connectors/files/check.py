"""The files of each batch, looked at on the driver before Spark reads them.

Spark's ORC reader turns a value that does not convert into NULL, its Parquet reader cuts whole numbers that are too
long, a file that is gone is left out, and so is one beside the key=value directories; a name that looks like a pattern
has all files of the batch read twice: all silently. Nothing in Spark's public interface is called between the planning
of a batch and its run; the checks that a session puts on every analysed plan are, and the plan of a batch names its
files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.checkpoint.read_files import READ_FILES, ReadFile, ReadFiles
from headrace.connectors.files.columns import FileColumns, incompatibilities, plain, struct, unreadable
from headrace.connectors.spark_files import paths as file_paths
from headrace.contract import OptionError
from headrace.errors import SourceError
from headrace.spark.jvm.gateway import gateway_with_callbacks, java_session
from headrace.storage.location import place
from headrace.storage.private import writing_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# An option of no meaning to Spark, by which a relation of ours is known; it holds the names that are NOT NULL.
OPTION = "headraceRequired"
SHAPED = ("parquet", "orc")
_READERS = 8
# How Hadoop writes the status of a file; that of S3 ends with `eTag=...`, or with `[eTag='...'` where it has locations.
_STATUS = re.compile(
    r"path=(.*); isDirectory=false; length=(\d+);.*? modification_time=(\d+);(?:.*[ \[]eTag='?\"?([^\s\"',]+))?"
)


def look_at_batches(spark: SparkSession) -> None:
    """Have the batches of streams that start in this session from now on looked at; a second call changes nothing."""
    gateway, extensions = gateway_with_callbacks(spark), java_session(spark).extensions()
    if any(known is gateway and looked_at.equals(extensions) for known, looked_at in _looked_at):
        return
    extensions.injectCheckRule(_ForSession(_Check(gateway.jvm)))
    _looked_at[:] = [(known, each) for known, each in _looked_at if known is gateway]
    _looked_at.append((gateway, extensions))


# The sessions that have the check, each with the JVM that it lives in.
_looked_at: list[tuple[Any, Any]] = []


class _ForSession:
    """Spark's `SparkSession => LogicalPlan => Unit`."""

    def __init__(self, check: _Check) -> None:
        self.check = check

    def apply(self, session: Any) -> _Check:
        return self.check

    class Java:
        implements: ClassVar = ["scala.Function1"]


class _Check:
    """Spark's `LogicalPlan => Unit`; it raises for a batch that is not to run, and Spark's message shows the fault."""

    def __init__(self, jvm: Any) -> None:
        self.columns = FileColumns(jvm)
        self.session_conf = jvm.org.apache.spark.sql.internal.SQLConf.get
        self.records: dict[str, ReadFiles] = {}
        # Kept, because each thread has a connection of its own to the JVM.
        self.readers = ThreadPoolExecutor(_READERS)

    def apply(self, plan: Any) -> None:
        read: dict[str, ReadFile] = {}
        for relation, required in _batches(plan):
            batch = _Batch(relation.location())
            if len(set(batch.planned)) < len(batch.planned):
                _read_once(batch.location)
                batch = _Batch(batch.location)
            for problem in self.problems(batch, relation, required):
                raise SourceError(code=problem.code, what=problem.what, fix=problem.fix)
            files = {file_paths.local(path): file for path, file in batch.files.items()}
            read.update((path, file_paths.with_digest(file, path)) for path, file in files.items())
        if read:
            self._keep(read)

    class Java:
        implements: ClassVar = ["scala.Function1"]

    def _keep(self, read: Mapping[str, ReadFile]) -> None:
        """Keep what the files of a batch are, beside the archive of its query. Raises PlatformError."""
        # In a callback the session of the stream is the active one.
        home = str(self.session_conf().getConfString(READ_FILES, ""))
        if home:
            record = self.records.setdefault(home, ReadFiles(place(home)))
            with writing_to(record.home):
                record.keep(read)

    def problems(self, batch: _Batch, relation: Any, required: frozenset[str]) -> Iterator[OptionError]:
        """What is wrong with the files of one batch: those that are gone, lie elsewhere, or hold other columns."""
        if named := [file for file in batch.planned if ":" in file.rpartition("/")[2]]:
            skips = relation.options().get("ignoreCorruptFiles")
            if not (skips.isDefined() and str(skips.get()).lower() == "true"):
                yield from map(_with_colon, named)
        yield from map(_gone, batch.gone())
        yield from (_beside(file, batch.directories) for file in batch.stray())
        format_ = str(relation.fileFormat().toString()).lower()
        if format_ in SHAPED:
            judge = self._judge(relation, format_, required)
            whole = [file for file in batch.planned if not batch.is_empty_stray(file)]
            yield from filter(None, map(judge, whole) if len(whole) < _READERS else self.readers.map(judge, whole))

    def _judge(self, relation: Any, format_: str, required: frozenset[str]) -> Callable[[str], OptionError | None]:
        """What says how the columns of a file differ from those that the source declares, if they do."""
        declared = struct(relation.dataSchema())
        state = relation.sparkSession().sessionState()
        conf, sql_conf = state.newHadoopConfWithOptions(relation.options()), state.conf()
        sensitive = sql_conf.caseSensitiveAnalysis()

        def judged(file: str) -> OptionError | None:
            found = self.columns.of(file, format_, declared, conf, sql_conf)
            if isinstance(found, OptionError):
                return found
            if not found.fields:
                return unreadable(file, format_, "it holds nothing")
            problem = next(incompatibilities(declared, found, required, format_, case_sensitive=sensitive), None)
            return problem and replace(problem, what=f"the file {plain(file)} does not fit: {problem.what}")

        return judged


def _batches(plan: Any) -> Iterator[tuple[Any, frozenset[str]]]:
    """The relations of a stream's batch that a files source of ours made, each with the names that are NOT NULL."""
    # The files of a batch alone may have been planned before the batch that holds them; each look takes time.
    # First what most plans are not: each question is a call into the JVM, several times a batch.
    if not plan.isStreaming() or plan.nodeName() == "LogicalRelation":
        return
    leaves = plan.collectLeaves()
    for leaf in map(leaves.apply, range(leaves.size())):
        if leaf.nodeName() == "LogicalRelation" and leaf.isStreaming():
            relation = leaf.relation()
            required = relation.options().get(OPTION)
            if required.isDefined():
                yield relation, frozenset(json.loads(required.get()))


@dataclass(frozen=True)
class _Batch:
    """The files that Spark planned for one source of one batch, and those of them that are there."""

    location: Any

    @cached_property
    def planned(self) -> list[str]:
        """Their paths; none where the batch holds nothing of this source and is planned again by a start."""
        return str(self.location.rootPaths().mkString("\n")).splitlines()

    @cached_property
    def files(self) -> dict[str, ReadFile]:
        """Those that are there, by their paths, as Spark has listed them; in one question to the JVM."""
        found = _STATUS.findall(self._listed.mkString("\n"))
        return {
            path: ReadFile(modified_ms=int(time), size_bytes=int(size), etag=None if tag in ("", "null") else tag)
            for path, size, time, tag in found
        }

    @cached_property
    def _listed(self) -> Any:
        return self.location.allFiles()

    def gone(self) -> list[str]:
        """Those that are not there any more."""
        if self._listed.size() == len(self.planned):
            return []
        return [file for file in self.planned if file not in self.files]

    @cached_property
    def _outside(self) -> frozenset[str]:
        """Those that lie in none of the key=value directories of the batch."""
        spec = self.location.partitionSpec()
        if spec.partitionColumns().isEmpty():
            return frozenset()
        parts = spec.partitions()
        inside = {parts.apply(number).path().toString() for number in range(parts.size())}
        return frozenset(file for file in self.planned if file.rpartition("/")[0] not in inside)

    def stray(self) -> list[str]:
        """Those with rows outside of the key=value directories; Spark leaves them out."""
        return [file for file in self.planned if file in self._outside and not self.is_empty_stray(file)]

    def is_empty_stray(self, file: str) -> bool:
        """Whether a file lies outside of the key=value directories and holds nothing that could be left out."""
        return file in self._outside and file in self.files and self.files[file].size_bytes == 0

    @property
    def directories(self) -> str:
        """How the directories of the batch are named."""
        return ", ".join(f"{name}=..." for name in self.location.partitionSpec().partitionColumns().names())


def _read_once(location: Any) -> None:
    """Have each file of a batch read once.

    Where a name looks like a pattern (one of {}[]*? or a backslash), Spark does not expand it, as the file source asks
    for; but it puts all paths of the batch in its place (DataSource.checkAndGlobPathIfNecessary), so that a batch with
    two such names has the rows of each file three times. The list of a batch's paths can be set by reflection alone.
    """
    paths = location.rootPaths()
    distinct = paths.distinct()
    if distinct.size() == paths.size():
        return
    listed = location.getClass()
    while listed is not None:
        found = [each for each in listed.getDeclaredFields() if each.getName() == "rootPaths"]
        if found:
            found[0].setAccessible(True)
            found[0].set(location, distinct)
            break
        listed = listed.getSuperclass()
    if location.rootPaths().size() != distinct.size():
        what = "a name of a file in the batch holds one of {}[]*? or a backslash, and Spark would read files twice"
        fix = "set max_files_per_trigger to 1, and start again"
        raise SourceError(code="HR304", what=what, fix=fix)


def _with_colon(file: str) -> OptionError:
    what = f"the name '{file.rpartition('/')[2]}' of a file holds a colon, which Hadoop takes for the end of a scheme: "
    what += f"Spark cannot read {plain(file)}"
    fix = (
        "copy it there under another name, start once with the source's option ignoreCorruptFiles: true, which leaves "
    )
    fix += "it out, and then without that option"
    return OptionError(code="HR304", what=what, fix=fix)


def _beside(file: str, columns: str) -> OptionError:
    what = f"the file {plain(file)} lies in no directory {columns} as the others of its batch do"
    fix = "copy it into one under another name, leave an empty file in its place, and start again"
    return OptionError(code="HR310", what=what, fix=fix)


def _gone(file: str) -> OptionError:
    fix = "put the file back and start again: the batch is read again from its beginning"
    return OptionError(code="HR303", what=f"a file of the batch is gone: {plain(file)}", fix=fix)
