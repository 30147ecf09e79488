"""`headrace inspect` and `headrace state`: what a query keeps, and in how many partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from headrace import api
from headrace import inspect as look
from headrace.cli.options import ProjectOptions, choose_queries, reads_project
from headrace.cli.output import amount, say_below, say_finding, show_waiting
from headrace.cli.view.formatting import NOTHING, format_lag, instant, number, size_of

if TYPE_CHECKING:
    from headrace.generations.inspect_checkpoint import CheckpointFacts, Range
    from headrace.verifier.inspect_progress import BatchOffsets, SourceOffsets, Watermarks
    from headrace.verifier.inspect_state import StateLook

_SHARES = 20


@click.group()
def inspect() -> None:
    """Look at what queries keep in their storage."""


@inspect.command()
@click.argument("queries", nargs=-1, metavar="[QUERY]...")
@reads_project
def checkpoint(queries: tuple[str, ...], options: ProjectOptions) -> int:
    """Say which files of a checkpoint are bad; 1 when a start would be refused.

    Looks at all that the next start of each QUERY, or of every one, would begin with: offsets, commits, the logs of
    sources, the state, and Headrace's own records. Nothing is changed and nothing is started. For each bad
    file it says what is lost and what to do. `headrace run` takes the same look before each start. Of a QUERY that is
    named it shows as well which batches the checkpoint and the archive have, sizes, state, and the settings that stay.
    """
    project = options.project(may_lack_variables=True)
    names = choose_queries(project, queries)

    reports = []
    for done, name in enumerate(names):
        with show_waiting(f"{name}: reading its checkpoint", done=done, total=len(names)):
            reports.append(look.checkpoint(project, name))

    def show() -> None:
        for report in reports:
            done = "none" if report.committed is None else report.committed
            stands = f"planned up to batch {report.planned}, committed up to {done}"
            stands = "no batch yet" if report.planned is None else stands
            click.echo(f"{report.query}: {stands}; {'usable' if report.usable else 'cannot be started from'}")
            for finding in report.findings:
                say_finding(finding, err=False)
            if queries and report.facts is not None:
                say_below(facts(report.facts))

    options.say({"queries": [report.as_dict() for report in reports]}, show)
    return 0 if all(report.usable for report in reports) else 1


@inspect.command()
@click.argument("query")
@click.option("--batch", type=click.IntRange(min=0), metavar="N", help="This batch [default: the newest planned one].")
@reads_project
def offsets(query: str, batch: int | None, options: ProjectOptions) -> int:
    """Show what a batch of QUERY takes of each source: where it begins and ends there, files or partitions.

    Batches that Spark has purged are taken from the archive. What a source still holds is shown where that is known
    without Spark.
    """
    project, name = options.with_query(query, may_lack_variables=True)

    with show_waiting(f"{name}: reading its checkpoint"):
        report = look.offsets(project, name, batch=batch)
    return _say(report, offset_lines, options)


@inspect.command()
@click.argument("query")
@click.option("--limit", type=click.IntRange(min=1), default=20, metavar="N", help="So many batches [default: 20].")
@reads_project
def watermark(query: str, limit: int, options: ProjectOptions) -> int:
    """Show how the watermark of QUERY moved, which source holds it back, and when the next window closes.

    Windows are shown where the text of the query names their length.
    """
    project, name = options.with_query(query, may_lack_variables=True)

    with show_waiting(f"{name}: reading its checkpoint"):
        report = look.watermark(project, name, limit=limit)
    return _say(report, watermark_lines, options)


@click.group()
def state() -> None:
    """Look at the state of a query, or work on it."""


@state.command()
@click.argument("query")
@click.option("--key", "keys", multiple=True, metavar="COLUMN=VALUE", help="Rows with this key alone; may be repeated.")
@click.option("--batch", type=click.IntRange(min=0), metavar="N", help="As this batch left it [default: the newest].")
@click.option("--limit", type=click.IntRange(min=0), default=5, metavar="N", help="So many samples [default: 5].")
@reads_project
def show(query: str, keys: tuple[str, ...], batch: int | None, limit: int, options: ProjectOptions) -> int:
    """Show what QUERY keeps: its operators, their columns, how many rows, and some of them.

    Spark reads the checkpoint; nothing is changed, and the query may be running. An empty VALUE means NULL.
    """
    project, name = options.with_query(query)
    pairs = [key.partition("=") for key in keys]
    if wrong := next((column for column, equals, _ in pairs if not equals), None):
        raise click.UsageError(f"write --key COLUMN=VALUE, not --key {wrong}")
    columns = [column for column, _, _ in pairs]
    if repeated := next((column for column in columns if columns.count(column) > 1), None):
        raise click.UsageError(f"--key has two values for column '{repeated}': name one")

    with show_waiting(f"{name}: reading its state"):
        report = look.state(project, name, key={column: value for column, _, value in pairs}, batch=batch, limit=limit)
    return _say(report, state_lines, options)


@state.command()
@click.argument("query")
@click.argument("partitions", type=click.IntRange(min=1))
@reads_project
def repartition(query: str, partitions: int, options: ProjectOptions) -> int:
    """Give the state of QUERY another number of partitions.

    The query must not be running. Its rows stay as they are, and it resumes where it was. After a crash, give the
    command again.
    """
    project, name = options.with_query(query)

    with show_waiting(f"{name}: writing its state in other partitions"):
        done = api.repartition(project, name, partitions)
    parts = amount(done.after, "partition")
    sentence = f"has {parts} already" if done.batch is None else f"is in {parts} instead of {done.before}"
    options.say(done.as_dict(), lambda: click.echo(f"{name}: the state {sentence}"))
    return 0


def _say(report: Any, lines: Callable[[Any], Iterator[str]], options: ProjectOptions) -> int:
    options.say(report.as_dict(), lambda: click.echo("\n".join(lines(report))))
    return 0


def facts(report: CheckpointFacts) -> Iterator[str]:
    yield f"id          {report.id or NOTHING}, generation {report.generation}"
    yield f"batches     {ranges(report.kept)} in the checkpoint, {ranges(report.archived)} in the archive"
    if report.purged:
        yield f"purged      {ranges(report.purged)} by Spark"
    if report.unknown:
        yield f"lost        {ranges(report.unknown)}, which neither has"
    yield f"sources     {', '.join(report.sources)}"
    for operator in report.operators:
        parts = amount(operator.partitions, "partition")
        yield f"state       operator {operator.number} {operator.name}: {parts}, stores {', '.join(operator.stores)}"
    yield f"sizes       {', '.join(f'{name} {size_of(size)}' for name, size in report.sizes_bytes.items())}"
    if report.set_aside:
        yield f"set aside   generations {', '.join(map(str, report.set_aside))}, kept until headrace change discard"
    for key, value in report.settings.items():
        yield f"setting     {key} = {value}"


def ranges(pairs: Sequence[Range]) -> str:
    """`0 to 4, 7`."""
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in pairs) or "none"


def offset_lines(report: BatchOffsets) -> Iterator[str]:
    done = "committed" if report.committed else "planned and not committed"
    yield f"{report.query}: batch {report.batch}, {done}; known are {report.first} to {report.last}"
    for source in report.sources:
        yield f"  {source.source} ({source.kind})"
        yield f"    before  {source.start or 'nothing'}"
        yield f"    after   {source.end or 'nothing'}"
        yield from (f"    {line}" for line in _shares(source))
        yield f"    lag     {format_lag(source.lag)}"


def _shares(source: SourceOffsets) -> Iterator[str]:
    for share in source.shares[:_SHARES]:
        if share.end is None:
            yield f"file    {share.name}"
        else:
            count = "" if share.count is None else f": {share.count:,}"
            yield f"part    {share.name} from {share.start or 'its beginning'} to {share.end}{count}"
    if len(source.shares) > _SHARES:
        yield f"        and {number(len(source.shares) - _SHARES)} more, all with --json"


def watermark_lines(report: Watermarks) -> Iterator[str]:
    if not report.sources and report.next_watermark is None:
        yield f"{report.query}: no watermark yet, and no source of it declares one"
        return
    stands = "" if report.since is None else f", where it stands since batch {report.since}"
    yield f"{report.query}: the next batch has the watermark {instant(report.next_watermark)}{stands}"
    for source in report.sources:
        gave = "no row is known of it" if source.last_batch is None else f"last row in batch {source.last_batch}"
        holds = "; it holds the watermark back" if source.holds_back and report.policy == "min" else ""
        yield f"  {source.source}: {source.column} less {source.delay}; {amount(source.rows, 'row')}, {gave}{holds}"
    if len(report.sources) > 1:
        which = "slowest" if report.policy == "min" else "fastest"
        yield f"  of several sources the {which} decides ({report.policy})"
    for window in report.windows:
        needs = " and ".join(f"{name} gives a row of {instant(at)} or later" for name, at in window.needs)
        yield f"  a window of {window.length} that ends {instant(window.ends)} closes when {needs}"
    for batch in report.batches:
        yield f"  batch {batch.batch:>8}  planned {instant(batch.planned)}  watermark {instant(batch.watermark)}"


def state_lines(report: StateLook) -> Iterator[str]:
    yield f"{report.query}: as batch {report.batch} left it"
    for operator in report.operators:
        yield (
            f"operator {operator.number} {operator.name}: {amount(operator.partitions, 'partition')}, "
            f"{size_of(operator.size_bytes)} of files"
        )
        for part in operator.parts:
            yield f"  {part.name + ': ' if part.name else ''}{amount(part.rows, 'row')}"
            yield f"    key    {part.key}"
            yield f"    value  {part.value}"
            for row in part.sample:
                yield f"    {_flat(row['key'])} -> {', '.join(_flat(row[name]) for name in row if name != 'key')}"


def _flat(value: Any) -> str:
    """`name=a, total=3`."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_flat(part)}" for name, part in value.items())
    return instant(value) if isinstance(value, datetime) else str(value)
