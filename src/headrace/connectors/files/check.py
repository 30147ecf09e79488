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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.connectors.files.columns import FileColumns, plain, struct, unreadable
from headrace.connectors.files.types import incompatibilities
from headrace.contract import OptionError
from headrace.errors import Finding, SourceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# An option of no meaning to Spark, by which a relation of ours is known; it holds the names that are NOT NULL.
OPTION = "headraceRequired"
SHAPED = ("parquet", "orc")
_READERS = 8
# How Hadoop writes the status of a file.
_STATUS = re.compile(r"path=(.*); isDirectory=false; length=(\d+);")


def look_at_batches(spark: SparkSession) -> None:
    """Have the batches of streams that start in this session from now on looked at; a second call changes nothing."""
    from pyspark.java_gateway import ensure_callback_server_started

    gateway = spark.sparkContext._gateway
    assert gateway is not None, "a session that runs a query has a gateway"
    extensions = spark._jsparkSession.extensions()
    if any(known is gateway and looked_at.equals(extensions) for known, looked_at in _looked_at):
        return
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
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
        # Kept, because each thread has a connection of its own to the JVM.
        self.readers = ThreadPoolExecutor(_READERS)

    def apply(self, plan: Any) -> None:
        for relation, required in _batches(plan):
            _read_once(relation.location())
            for problem in self.problems(relation, required):
                raise SourceError(Finding(code=problem.code, what=problem.what, fix=problem.fix))

    class Java:
        implements: ClassVar = ["scala.Function1"]

    def problems(self, relation: Any, required: frozenset[str]) -> Iterator[OptionError]:
        """What is wrong with the files of one batch: those that are gone, lie elsewhere, or hold other columns."""
        batch = _Batch(relation.location())
        skips = relation.options().get("ignoreCorruptFiles")
        if not (skips.isDefined() and str(skips.get()).lower() == "true"):
            yield from (_with_colon(file) for file in batch.planned if ":" in file.rpartition("/")[2])
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
    if plan.nodeName() == "LogicalRelation" or not plan.isStreaming():
        return
    leaves = plan.collectLeaves()
    for leaf in map(leaves.apply, range(leaves.size())):
        if leaf.nodeName() == "LogicalRelation" and leaf.isStreaming():
            required = leaf.relation().options().get(OPTION)
            if required.isDefined():
                yield leaf.relation(), frozenset(json.loads(required.get()))


@dataclass(frozen=True)
class _Batch:
    """The files that Spark planned for one source of one batch, and those of them that are there."""

    location: Any

    @cached_property
    def planned(self) -> list[str]:
        """Their paths; none where the batch holds nothing of this source and is planned again by a start."""
        return str(self.location.rootPaths().mkString("\n")).splitlines()

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The paths and bytes of those that are there, in one question to the JVM."""
        return {path: int(size) for path, size in _STATUS.findall(self.location.allFiles().mkString("\n"))}

    def gone(self) -> list[str]:
        """Those that are not there any more."""
        if self.location.allFiles().size() == len(self.planned):
            return []
        return [file for file in self.planned if file not in self.sizes]

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
        return file in self._outside and self.sizes.get(file) == 0

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
        raise SourceError(Finding(code="HR304", what=what, fix=fix))


def _with_colon(file: str) -> OptionError:
    what = (
        f"the name '{file.rpartition('/')[2]}' of a file holds a colon, which Hadoop takes for the end of a scheme: "
        f"Spark cannot read {plain(file)}"
    )
    fix = (
        "copy it there under another name, start once with the source's option ignoreCorruptFiles: true, which leaves "
        "it out, and then without that option"
    )
    return OptionError(code="HR304", what=what, fix=fix)


def _beside(file: str, columns: str) -> OptionError:
    what = f"the file {plain(file)} lies in no directory {columns} as the others of its batch do"
    fix = "copy it into one under another name, leave an empty file in its place, and start again"
    return OptionError(code="HR310", what=what, fix=fix)


def _gone(file: str) -> OptionError:
    fix = "put the file back and start again: the batch is read again from its beginning"
    return OptionError(code="HR303", what=f"a file of the batch is gone: {plain(file)}", fix=fix)
