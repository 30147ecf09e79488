"""`headrace verify` and `headrace late`: whether results equal the batch query, and the rows dropped as late."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace import api
from headrace.cli.change import ChangeArguments, apply_change, begin_options, undo_change
from headrace.cli.options import ProjectOptions, choose_queries, reads_project
from headrace.cli.output import amount, pairs, say_below, say_finding, say_json, say_table, show_waiting, table_of
from headrace.cli.view.formatting import duration, instant, number

if TYPE_CHECKING:
    from rich.table import Table

    from headrace.changes.repair import RepairPlan
    from headrace.model import Project
    from headrace.verifier.verdict import Difference, Lateness, Replayed, Verdict

# What of an input row is shown.
_SHOWN_BY = {"batch": "the batch query", "rerun": "another run"}
_WIDTH = 160


@click.command()
@click.argument("queries", nargs=-1, metavar="[QUERY]...")
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="COLUMN=VALUE,...",
    help="Compare only the rows that have these values, as action=open,hour=2024-01-01T01:00.",
)
@click.option("--since", type=click.IntRange(min=0), metavar="BATCH", help="Compare only what later batches touched.")
@click.option("--part", metavar="K/N", help="Compare only the K-th of N parts of the keys, as 3/10.")
@click.option("--repair", is_flag=True, help="Put the wrong rows right, by their key.")
@click.option("--undo", is_flag=True, help="Bring back what the last repair has replaced.")
@begin_options
def verify(
    queries: tuple[str, ...],
    keys: Sequence[str],
    since: int | None,
    part: str | None,
    repair: bool,
    undo: bool,
    options: ChangeArguments,
) -> int:
    """Prove that results equal the batch query; 1 when one does not.

    Each query gets its own verdict, whatever the others do. With --json each verdict is a line, as soon as it is found.
    A differing row is shown with the last batch and the input rows that it goes back to. --repair is of one query,
    which must not be running: the wrong rows are shown first, then written in one transaction of the sink's database;
    --undo brings back what was there before, until the query has written a batch again.
    """
    given = [_key(text) for text in keys]
    way = "--undo" if undo else "--repair"
    for is_wrong, why in (
        (repair and undo, "--repair and --undo exclude each other: --undo takes back what --repair has done"),
        ((repair or undo) and not queries, f"{way} is of one query: headrace verify QUERY {way}"),
        ((repair or undo) and len(queries) > 1, f"{way} is of one query, and {len(queries)} are named"),
        (undo and keys, "--undo takes back the whole repair, and takes no --key"),
        ((repair or undo) and since is not None, f"{way} does not go with --since; --key limits a repair"),
        ((repair or undo) and part is not None, f"{way} does not go with --part; --key limits a repair"),
        (not repair and options.yes, "--yes answers the question of --repair, which is not given"),
        (not repair and options.dry_run, "--dry-run shows what --repair would do, which is not given"),
    ):
        if is_wrong:
            raise click.UsageError(why)
    if repair or undo:
        project, name = options.with_query(queries[0])
        change = api.repair(project, name, keys=given)
        return undo_change(change, options) if undo else apply_change(change, _plan, options)
    project = options.project()
    names = choose_queries(project, queries)
    worst = 0
    for verdict in _verdicts(project, names, given, since, None if part is None else _part(part)):
        worst = max(worst, verdict.exit_code)
        options.say(verdict.as_dict(), partial(_say, verdict))
    return worst


def _key(text: str) -> dict[str, str]:
    """Return the columns and values of a key; a comma in a value is one before which no name and `=` follow."""
    pairs = [part.partition("=") for part in re.split(r",(?=\s*\w+=)", text)]
    if not all(name.strip() and given for name, given, _ in pairs):
        raise click.BadParameter(f"'{text}' is not COLUMN=VALUE, as action=open", param_hint="--key")
    names = [name.strip() for name, _, _ in pairs]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        problem = f"'{text}' has two values for column '{repeated}': name two keys by --key twice"
        raise click.BadParameter(problem, param_hint="--key")
    return {name.strip(): value for name, _, value in pairs}


def _part(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise click.BadParameter(f"'{text}' is not K/N, as 3/10 for the third of ten parts", param_hint="--part")
    return int(match[1]), int(match[2])


def _plan(plan: RepairPlan | None) -> None:
    if plan is not None:
        _say(plan.verdict)
        click.echo(
            f"{plan.query}: {amount(plan.written, 'row')} are written and {amount(plan.deleted, 'row')} deleted; all "
            "others stay as they are"
        )


def _verdicts(
    project: Project,
    names: Sequence[str],
    keys: Sequence[Mapping[str, str]],
    since: int | None,
    part: tuple[int, int] | None,
) -> Iterator[Verdict]:
    """Yield each verdict as soon as it is found."""
    with closing(api.verify_each(project, names, keys=keys, since_batch=since, part=part)) as verdicts:
        for done, name in enumerate(names):
            with show_waiting(f"{name}: running the batch query", done=done, total=len(names)):
                verdict = next(verdicts)
            yield verdict


def _say(verdict: Verdict) -> None:
    click.echo(sentence(verdict))
    click.echo(f"  {figures(verdict)}")
    if verdict.shares and verdict.state != "undecided":
        click.echo(f"  shown by {_SHOWN_BY[verdict.shown_by]}; shared with the run: {', '.join(verdict.shares)}")
    say_below(verdict.findings)
    if verdict.differences:
        say_table(difference_table(verdict))


def sentence(verdict: Verdict) -> str:
    """Return what was found of which query, up to which batch."""
    upto = f", {verdict.scope}" if verdict.scope else ""
    upto += "" if verdict.batch is None else f", up to batch {verdict.batch}"
    return f"{verdict.query}{upto}: {verdict.sentence}"


def figures(verdict: Verdict) -> str:
    """Format counts, time and speed."""
    counts = {
        "rows read": verdict.rows_read,
        "rows expected": verdict.rows_expected,
        "rows in the sink": verdict.rows_actual,
        "open": verdict.rows_open,
        "late": verdict.rows_late,
    }
    if verdict.rows_set_aside:
        counts["quarantined"] = verdict.rows_set_aside
    if verdict.rows_untimed:
        counts["without event time"] = verdict.rows_untimed
    rows = ", ".join(f"{number(count)} {name}" for name, count in counts.items())
    return f"{rows}; {duration(verdict.seconds * 1000)}, {number(verdict.rate)} rows/s"


def difference_table(verdict: Verdict) -> Table:
    """Return the first rows that differ, by key."""
    total, shown = verdict.missing + verdict.unexpected + verdict.different, verdict.differences
    by = "another run" if verdict.shown_by == "rerun" and verdict.exit_code else "the batch query"
    return table_of(
        ("row", "key", f"{by} says", "the sink holds", "its last input"),
        [
            (
                difference.kind,
                *map(pairs, (difference.key, difference.expected, difference.actual)),
                _origin(difference),
            )
            for difference in shown
        ],
        title=f"the first {len(shown)} of {number(total)} differing rows",
    )


def _origin(difference: Difference) -> str:
    """Return the newest input rows that the row goes back to."""
    if difference.fed_by is None:
        return ""
    if not difference.fed_by:
        return "none: no batch has written this row"
    return "\n".join(str(row) if len(str(row)) <= _WIDTH else f"{str(row)[:_WIDTH]}..." for row in difference.fed_by)


@click.command()
@click.argument("query")
@click.option("--since", type=click.IntRange(min=0), default=0, metavar="BATCH", help="Only this batch and later ones.")
@click.option("--limit", type=click.IntRange(min=0), default=20, metavar="N", help="List so many rows [default: 20].")
@click.option("--count", is_flag=True, help="Count the rows, and list none.")
@click.option(
    "--export",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write the rows into DIR as their sources gave them, each once.",
)
@click.option("--replay", is_flag=True, help="Bring the rows back into the result of QUERY, which must not be running.")
@reads_project
def late(
    query: str, since: int, limit: int, count: bool, export: Path | None, replay: bool, options: ProjectOptions
) -> int:
    """Show which rows QUERY dropped as late, and how late they were.

    They are counted exactly, from each batch's rows and the watermark that was in force. Nothing is written, unless
    --export or --replay asks for it; both may be repeated, and resume where they were cut off. With --json each row is
    a line, and the counts are the last one.
    """
    if replay and (since or export is not None):
        raise click.UsageError("--replay brings every late row back, and takes neither --since nor --export")
    project, name = options.with_query(query, may_lack_variables=True)

    with show_waiting(f"{name}: looking for late rows"):
        lateness = api.late(project, name, since_batch=since, limit=0 if count else limit, export=export, replay=replay)
    if options.as_json:
        for row in lateness.rows:
            say_json({"event": "late row", "query": name, **row.as_dict()})
        say_json({"event": "result", **lateness.as_dict()})
    else:
        _say_late(lateness)
    return lateness.exit_code


def _say_late(lateness: Lateness) -> None:
    if lateness.replay is not None:
        click.echo(f"{lateness.query}: {replay_sentence(lateness.replay)}")
    click.echo(f"{lateness.query}: {lateness.sentence}")
    for finding in lateness.findings:
        say_finding(finding, err=False)
    if lateness.batches:
        say_table(batch_table(lateness))
    if lateness.rows:
        say_table(row_table(lateness))
    if lateness.exported:
        places = sorted({str(file.parent) for file in lateness.exported})
        click.echo(f"the rows are in {amount(len(lateness.exported), 'file')} in {', '.join(places)}")


def replay_sentence(replay: Replayed) -> str:
    """Return what bringing late rows back has done."""
    if not replay.late:
        return "no late row is missing in the result"
    written = f"{amount(replay.written, 'row')} of the result written"
    deleted = f", {number(replay.deleted)} deleted" if replay.deleted else ""
    return f"{amount(replay.late, 'late row')} brought back: {written}{deleted}"


def batch_table(lateness: Lateness) -> Table:
    """Return the counts of each operator and batch."""
    rows = [
        (number(batch.batch), batch.operator, instant(batch.watermark), number(batch.rows))
        for batch in lateness.batches
    ]
    return table_of(("batch", "dropped by", "watermark", "rows"), rows, right=("batch", "rows"))


def row_table(lateness: Lateness) -> Table:
    """Return the first rows, each with its event time and how far behind the watermark it was."""
    return table_of(
        ("batch", "event time", "behind the watermark", "row"),
        [(number(row.batch), instant(row.time), str(row.behind), pairs(row.row, _value)) for row in lateness.rows],
        title=f"the first {len(lateness.rows)} of {number(lateness.count)} late rows",
        right=("batch",),
    )


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"({' to '.join(map(_value, value.values()))})"
    return str(value)
