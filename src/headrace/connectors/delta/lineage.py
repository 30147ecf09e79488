"""Which rows of a Delta table with several writers are not those of one query."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.connectors.delta import ledger
from headrace.connectors.delta.log import Add, Commit
from headrace.connectors.delta.table import LogCutError, State
from headrace.contract import SinkContext
from headrace.errors import Finding, SinkError


def own_files(state: State, context: SinkContext, name: str) -> list[Add] | None:
    """The files of `state` without those of other queries and of the time before; None where all are the query's.

    What neither Headrace nor the table's past explains counts as the query's, so that verify finds it. Raises SinkError
    where rows of others were rewritten together with the query's, or the table's log no longer tells.
    """
    txn_ids = state.txn_ids
    begun = ledger.beginning(context, txn_ids)
    known = ledger.progress_of_all(txn_ids)
    others = [key for key, each in known.items() if key[0] != context.query and each.batch is not None]
    if not others and not begun.had_rows:
        return None
    try:
        strangers = {add["path"] for add in state.table.at(begun.version).files()} if begun.had_rows else set()
        commits = state.table.commits(begun.version + 1, state.version)
    except LogCutError as cut:
        what = f"{name} has rows of others too, and its log no longer has {cut}, which said whose rows are whose"
        fix = "let the table keep its log for longer (delta.logRetentionDuration), and give each query one of its own"
        raise SinkError(Finding(code="HR402", what=what, fix=fix)) from None
    strangers = _followed(strangers, commits.values(), ledger.names_of(context, txn_ids), name)
    return [add for add in state.files() if add["path"] not in strangers]


def _followed(strangers: set[str], commits: Iterable[Commit], own: set[str], name: str) -> set[str]:
    """The files of others than `own`, through every version that added to them or rewrote them."""
    for commit in commits:
        writers = {app for app in commit.txn_ids if app.startswith(ledger.PREFIX)}
        removed = {remove["path"] for remove in commit.removes}
        foreign = removed & strangers
        if own & writers:
            continue
        if foreign and foreign != removed:
            what = f"version {commit.version} of {name} put rows of several writers into the same files"
            fix = "give each query a table of its own; verify can then identify its rows"
            raise SinkError(Finding(code="HR402", what=what, fix=fix))
        if writers or foreign:
            strangers |= {add["path"] for add in commit.adds}
    return strangers
