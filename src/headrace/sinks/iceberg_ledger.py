"""The ledger of an Iceberg table: one of its properties, which changes in the commit that brings the rows."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from headrace.contract import SinkRun
from headrace.errors import Fenced, Finding, SinkFault

if TYPE_CHECKING:
    from pyiceberg.table import Table

PROPERTY = "headrace.ledger"


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """Whose table it is, which driver may write, and what is in.

    epoch: drawn anew by each start. batch: the last one that is in; -1: none yet. checkpoint: the id that Spark gave
    it. spark_schema: the result's, as Spark's JSON.
    """

    query: str
    generation: int
    epoch: str
    batch: int
    checkpoint: str
    spark_schema: str

    @classmethod
    def of(cls, table: Table) -> Ledger | None:
        """The ledger of `table`; None where no query has written it."""
        text = table.metadata.properties.get(PROPERTY)
        return None if text is None else cls(**json.loads(text))

    @property
    def properties(self) -> dict[str, str]:
        """What is to be set on the table."""
        return {PROPERTY: json.dumps(asdict(self))}

    @property
    def summary(self) -> dict[str, str]:
        """What a snapshot says of the batch that it is."""
        return {
            "headrace.query": self.query,
            "headrace.generation": str(self.generation),
            "headrace.batch": str(self.batch),
        }

    def is_of(self, life: SinkRun) -> bool:
        """Whether the table holds the batches of this generation of a query."""
        return (self.query, self.generation) == (life.query, life.generation)

    def require_epoch(self, epoch: str, batch: int) -> None:
        """Raise Fenced where a newer driver has taken the table over."""
        if self.epoch != epoch:
            what = f"a newer driver runs query '{self.query}'; batch {batch} of this one was not written"
            fix = "let only one driver run the query; this one has stopped"
            raise Fenced(Finding(code="HR409", what=what, fix=fix))


def require_ours(table: Table, name: str, life: SinkRun) -> None:
    """Raise SinkFault where rows of somebody else would be mixed with the result, or replaced by it."""
    found = Ledger.of(table)
    if found is not None and found.is_of(life):
        return
    if found is None:
        if _is_empty(table):
            return
        what = f"{name} already holds rows that no query wrote"
    elif found.query != life.query:
        what = f"{name} belongs to query '{found.query}'"
    elif found.batch < 0:
        return
    else:
        what = f"{name} still holds the result of generation {found.generation} of '{life.query}'"
    raise SinkFault(Finding(code="HR407", what=what, fix="write to another table, or drop this one"))


def _is_empty(table: Table) -> bool:
    """Whether the table has no rows, by its newest snapshot; one that does not tell is taken to have some."""
    snapshot = table.current_snapshot()
    if snapshot is None:
        return True
    return snapshot.summary is not None and int(snapshot.summary["total-records"] or "1") == 0
