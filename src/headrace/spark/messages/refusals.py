"""Spark's own refusals turned into findings: its error conditions, or words of its sentences, each with a fix.

Source: Structured Streaming guide, "Unsupported Operations".
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

from headrace.errors import NOWHERE, Finding, HeadraceError, Where, first_line
from headrace.spark.messages import wrong_words
from headrace.spark.messages.conditions import code_and_fix
from headrace.spark.messages.wrong_words import of_python

_SINK = "return the DataFrame and read the query's sink; the memory sink holds the result as a table of the session"
_NOTHING = "leave it out: each batch is read once, and a view that several queries ask for is computed by each"
INSTEAD = {
    "count": "use groupBy().count(), which is a stream of the running count",
    "foreach": "return the DataFrame and give the query a foreach sink, which takes the function",
    "foreachPartition": "return the DataFrame and give the query a foreach sink, which takes the function",
    "show": "return the DataFrame and give the query the console sink",
    **dict.fromkeys(("collect", "take", "head", "first", "tail", "toLocalIterator", "isEmpty"), _SINK),
    **dict.fromkeys(("toPandas", "toArrow"), f"{_SINK}; pandas code over the rows goes into mapInPandas"),
    **dict.fromkeys(("write", "writeTo"), "return the DataFrame and give the query a sink"),
    **dict.fromkeys(("cache", "persist", "checkpoint", "localCheckpoint"), _NOTHING),
    "rdd": "use DataFrame functions, or mapInPandas for code of your own",
}
ANY = "return the DataFrame: inside a query nothing may be counted, shown or collected"


@dataclass(frozen=True)
class Refusal:
    """A refusal of Spark, known by its error condition or by words of its sentence, with our code and the fix.

    conditions: as `getCondition` gives them; a condition stands for those below it too.
    """

    code: str
    pattern: str
    fix: str
    conditions: tuple[str, ...] = ()

    def fits(self, condition: str | None, text: str) -> bool:
        """Whether Spark means this one."""
        return is_one_of(condition, self.conditions) or bool(self.pattern and re.search(self.pattern, text, re.DOTALL))


def is_one_of(condition: str | None, names: Iterable[str]) -> bool:
    """Whether a condition is one of `names`, or below one of them."""
    return condition is not None and any(condition == name or condition.startswith(f"{name}.") for name in names)


CALLED = Refusal(
    "HR213", r"must be executed with writeStream", ANY, conditions=("CALL_ON_STREAMING_DATASET_UNSUPPORTED",)
)
# The first that fits is taken. Words as in UnsupportedOperationChecker and error-conditions.json of Spark 4.2.
REFUSALS = (
    Refusal(
        "HR261",
        r"Continuous processing does not support",
        "use the trigger every('1 second'): continuously only select, filter and the like can run",
    ),
    Refusal(
        "HR221",
        r"dropDuplicatesWithinWatermark .*without watermark",
        "give the source a watermark, or use dropDuplicates, which remembers every key",
    ),
    Refusal(
        "HR226",
        r"session window streaming aggregations",
        "use the mode append, or complete: in update mode a session that grows would leave its old row behind",
    ),
    Refusal(
        "HR227",
        r"State in \w+ mode is not supported (with|after) aggregation",
        "give the operator with state the mode append and aggregate after it, or write its rows to a table of its own "
        "and aggregate them in a second query",
    ),
    Refusal(
        "HR227",
        r"State in \w+ mode is not supported with \w+ output mode",
        "give the query the mode of its operator with state, or the operator that of the query",
    ),
    Refusal(
        "HR221",
        r"Event-time timeout not supported without watermark",
        "give the source a watermark, and keep its column in what is grouped",
    ),
    Refusal(
        "HR227",
        r"Multiple applyInPandasWithStates",
        "write the first step to a table of its own and read that as a second query, or use transformWithState",
    ),
    Refusal(
        "HR221",
        r"aggregations? without watermark|STREAMING_OUTPUT_MODE.*[Aa]ppend|append.*streaming aggregations",
        "give the source a watermark and group by its column or a window of it, or use the mode update or complete",
    ),
    Refusal(
        "HR227",
        r"complete.*no streaming aggregations|STREAMING_OUTPUT_MODE.*[Cc]omplete",
        "use the mode append or update; complete needs an aggregation",
    ),
    Refusal(
        "HR223", r"([Ll]imits are|Offset is) not supported", "leave limit out, or take the first rows from the sink"
    ),
    Refusal(
        "HR223",
        r"[Ss]orting is not supported",
        "sort where the result is read, or use the mode complete after an aggregation",
    ),
    Refusal(
        "HR226",
        r"[Dd]istinct aggregations",
        "use size(collect_set(x)), which is exact and keeps every value in state, or approx_count_distinct(x), which "
        "is smaller; or drop the duplicates first and count in a second query",
    ),
    Refusal(
        "HR226",
        r"[Nn]on-time-based windows",
        "for the row with ROW_NUMBER() = 1 of each group use max_by(row, order) or max(struct(order, ...)); for the "
        "first N write all rows to a table and rank where it is read, or keep N rows in a state function; for windows "
        "of time group by window(time, ...)",
        conditions=("NON_TIME_WINDOW_NOT_SUPPORTED_IN_STREAMING",),
    ),
    Refusal(
        "HR203",
        r"[Ss]tream-stream .*(without a watermark|watermark in the join keys)",
        "give both sources a watermark and bound the one time by the other in the join condition",
    ),
    Refusal(
        "HR227",
        r"[Jj]oin.* between two streaming.*only in append|[Jj]oin.*output mode",
        "use the mode append for joins of two streams",
    ),
    Refusal(
        "HR228",
        r"FullOuter joins? with.*static",
        "use a left outer join with the stream on the left: which rows of a table have no match is never known while "
        "the stream continues",
    ),
    Refusal(
        "HR228",
        r"LeftAnti joins? with",
        "put the stream on the left; of two streams take a left outer join with a time bound, and keep the rows whose "
        "right side is NULL",
    ),
    Refusal(
        "HR228",
        r"(Left|Right)(Outer|Semi) join with.*static",
        "put the stream on the side that keeps its rows: the left of a left outer or left semi join, the right of a "
        "right outer one",
    ),
    Refusal(
        "HR227",
        r"correctness.*global watermark|[Mm]ultiple (streaming aggregations|stateful operators)|chain",
        "use the mode append, or write the first step to a table of its own and read that as a second query",
    ),
    Refusal(
        "HR220",
        r"monotonically_increasing_id\(\) is not supported",
        "name a row by columns of its source; or by a hash of them, as xxhash64(*)",
    ),
    Refusal("HR220", r"[Ss]ampling fraction", "write a share from 0 to 1, as sample(0.1)"),
    Refusal("HR220", r"\"replaceValue\" is null", "give na.fill a value that is not None"),
    Refusal("HR223", r"[Ss]ampling is not supported", "filter on a hash of a column to take a fixed share of the rows"),
    Refusal(
        "HR231",
        r"(UNION|[Uu]nion) between streaming and batch",
        "read the batch input as a stream of files or a table, or join it",
    ),
    CALLED,
    Refusal(
        "HR252",
        r"without streaming sources cannot be executed",
        "let the query read at least one source",
        conditions=("WRITE_STREAM_NOT_ALLOWED",),
    ),
    Refusal(
        "HR220", r"otherwise\(\) can only be applied", "begin with F.when(condition, value), then .otherwise(value)"
    ),
    Refusal(
        "HR012",
        r"Failed to find (the )?data source: (kafka|avro|delta|iceberg)|'kafka' source requires",
        "let Headrace start the session, or give yours the jars of: headrace jars fetch DIR",
    ),
    Refusal(
        "HR218",
        r"event time.*timestamp",
        "make the watermark's column a TIMESTAMP in the schema or by to_timestamp",
        conditions=("EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE",),
    ),
)
UNNAMED = Refusal("HR220", "", "change the query as Spark's sentence says")
_PARSER = ("PARSE_SYNTAX_ERROR", "PARSE_EMPTY_STATEMENT")
# Such settings (spark.sql.legacy..., ANSI off) change values silently, so a finding must not pass them on.
_WRONG_ADVICE = re.compile(r"(?<![\w.])spark\.(sql|databricks)\.|^Use `try_")
# Sentences behind the first one that name the choices; the others advise what our fix says better.
_PROPOSAL = re.compile(r"Did you mean |Need |The |Supported ")


def finding_of(
    error: BaseException,
    *,
    where: Where = NOWHERE,
    subject: str = "the query",
    sql: str | None = None,
    otherwise: Callable[[], Finding | None] = lambda: None,
) -> Finding:
    """The finding of an exception that user code or Spark raised while a query was built or checked.

    sql: the statement that begins at the line of `where`, in which Spark then names the place. otherwise: asked for
    what none of our refusals fits.
    """
    if isinstance(error, HeadraceError):
        return error.findings[0]
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == "google":
        message = f"{subject} uses transformWithState, which needs the package protobuf, and that is not installed"
        return Finding(code="HR011", what=message, fix="pip install 'headrace[state]'", where=where)
    name, sentence = condition_of(error), sentence_of(error)
    if name is None and not is_from_spark(error):
        return Finding(
            code="HR210",
            what=f"{subject} failed with {type(error).__name__}: {sentence}",
            fix=of_python(error) or "correct the function at that line",
            where=where,
        )
    if sql is not None and where.line is not None:
        where = replace(where, line=where.line + line_of(error, sql))
    if name in _PARSER:
        stopped = wrong_words.stop(str(error))
        return Finding(code="HR216", what=f"{subject}: {sentence}", fix=wrong_words.fix_at(stopped), where=where)
    if entry := code_and_fix(name, parameters_of(error), error):
        code, fix = entry
        return Finding(code=code, what=f"{subject}: {_with_proposals(sentence)}", fix=fix, where=where)
    if called_with := re.search(r"Method (\w+)\(\[.*\]\) does not exist", sentence):
        message = f"{subject} gives the function {called_with[1]} arguments of other types than it takes"
        fix = f"see {called_with[1]} in PySpark's reference; a format is a text in quotes, a column F.col('name')"
        return Finding(code="HR460", what=message, fix=fix, where=where)
    text = f"{name or ''} {sentence}"
    refusal = next((candidate for candidate in REFUSALS if candidate.fits(name, text)), UNNAMED)
    if refusal is UNNAMED and (other := otherwise()):
        return other
    if refusal is CALLED and (method := called_method(error)):
        message = f"{subject} calls {method} on a stream, which has no end"
        return Finding(code=refusal.code, what=message, fix=INSTEAD[method], where=where)
    return Finding(code=refusal.code, what=f"{subject}: {sentence}", fix=refusal.fix, where=where)


def line_of(error: BaseException, sql: str) -> int:
    """The line of `sql`, from 0, at which Spark found a fault; the first if it names none."""
    if stopped := wrong_words.stop(str(error)):
        return stopped.line
    try:
        contexts = _ask(error, "getQueryContext") or []
        starts = [context.startIndex() for context in contexts if "SQL" in str(context.contextType())]
    except Exception:
        return 0
    # A context is a part of this statement, or of the text of an expression inside a table's function.
    return sql.count("\n", 0, starts[0]) if starts and 0 <= starts[0] < len(sql) else 0


def parameters_of(error: BaseException) -> dict[str, str]:
    """The parameters of Spark's error condition."""
    given = _ask(error, "getMessageParameters")
    return {str(key): str(value) for key, value in dict(given or {}).items()}


def with_directories(finding: Finding, error: BaseException, root: Path, of_spark: Path) -> Finding:
    """The finding of a function's `error`; of a path that is not there, with where relative paths start from.

    of_spark: the directory that Spark was started in.
    """
    if isinstance(error, FileNotFoundError):
        here = Path.cwd()
    elif condition_of(error) == "PATH_NOT_FOUND":
        here = of_spark
    else:
        return finding
    starts = f"a relative path here starts from '{here}', one of a source or a sink from '{root}'"
    return finding if here == root else finding.reword(fix=f"{finding.fix}; {starts}")


def condition_of(error: BaseException) -> str | None:
    """Spark's error class, as `UNRESOLVED_COLUMN.WITH_SUGGESTION`, or None for other exceptions."""
    condition = _ask(error, "getCondition")
    return str(condition) if condition else None


def _ask(error: BaseException, name: str) -> Any:
    """What a method of an exception of Spark's gives; None where it has none, or the JVM does not answer."""
    try:
        return getattr(error, name)()
    except Exception:
        return None


def sentence_of(error: BaseException) -> str:
    """The first sentence of an exception, without plan, stack trace or error-class bracket."""
    return tidy(str(error)) or type(error).__name__


def first_sentence(error: BaseException) -> str:
    """The first line of what Spark or a library in its JVM says, without error class and SQLSTATE."""
    cause: Any = getattr(error, "java_exception", None)
    message = str(error) if cause is None else str(cause.getMessage() or cause.toString())
    line = re.sub(r"^([\w.$]+(Exception|Error): )?\[[A-Z0-9_.]+\]\s*", "", first_line(message))
    return without_advice(re.sub(r"(?<!\s)\s*SQLSTATE.*$", "", line).strip()) or type(error).__name__


def without_advice(text: str) -> str:
    """Remove the sentences of Spark's message that advise a setting or a function which turns errors into NULL."""
    first, *others = _sentences(text)
    return " ".join((first, *(sentence for sentence in others if not _WRONG_ADVICE.search(sentence))))


def _with_proposals(text: str) -> str:
    """Keep of Spark's message the first sentence, without the operator it names, and what it proposes."""
    first, *others = _sentences(text)
    return " ".join((re.sub(r" in operator .*", "", first), *filter(_PROPOSAL.match, others)))


def _sentences(text: str) -> list[str]:
    return re.split(r"(?<=[.!?])\s+(?=[A-Z])", text)


def tidy(text: str) -> str:
    """One line of a message of Spark: the class in brackets, SQLSTATE, plans and JVM frames are left out."""
    kept: list[str] = []
    for line in map(str.strip, text.splitlines()):
        if line.startswith(("at ", "Traceback", "JVM stacktrace", "== ", "+- ", ":- ")):
            break
        # A plan; but a message of Python's own may begin with a quote as well.
        if kept and (not line or line.startswith(("'", "~"))):
            break
        if line:
            kept.append(line)
    sentence = " ".join(kept)
    sentence = re.sub(r"^\[[A-Z0-9_.]+\]\s*", "", sentence)
    sentence = re.sub(r"(?<!\s)\s*SQLSTATE: \w+", "", sentence)
    sentence = re.sub(r"^(An error occurred while calling \S+\s*:\s*)?(\w+\.)+\w*(Exception|Error):\s*", "", sentence)
    sentence = re.sub(r"^\[[A-Z0-9_.]+\]\s*", "", sentence)
    sentence = without_advice(re.sub(r";\s*(line \d+.*)?$", "", sentence).strip())
    return sentence if len(sentence) <= 400 else sentence[:397] + "..."


def is_from_spark(error: BaseException) -> bool:
    """Whether PySpark or the JVM behind it raised `error`."""
    return type(error).__module__.split(".")[0] in {"pyspark", "py4j"}


def called_method(error: BaseException) -> str | None:
    """The method of Spark that the user's code called when `error` was raised, if it is one of INSTEAD."""
    for frame in traceback.extract_tb(error.__traceback__):
        if "pyspark" in PurePath(frame.filename).parts:
            return frame.name if frame.name in INSTEAD else None
    return None
