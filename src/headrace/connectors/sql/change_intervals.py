"""Intervals of a table's history: every change is remembered, and the history of a key that changed is made again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.connectors.sql.change_memory import AT, BATCH
from headrace.connectors.sql.change_merge import ACTION, CHANGE, DELETE, INSERT, UPDATE, ChangeMerge
from headrace.connectors.sql.change_rows import OLDER, OPERATION, ORDER, SEQUENCE
from headrace.connectors.sql.system_tables import OWN_PREFIX

_KEYS, _CHANGES, _INTERVALS, _GONE = (f"{OWN_PREFIX}{name}" for name in ("touched", "history", "intervals", "gone"))
_SAME = -1


@dataclass(frozen=True, kw_only=True)
class IntervalMerge(ChangeMerge):
    """Keeps, for each key, the rows that it had, each with the sequences from and to which it was so."""

    def write(self, sources: Sequence[str]) -> Counter[int]:
        memory, dialect = self.memory, self.dialect
        # Each statement looks through all that is remembered. Types and collations of the first source may be others.
        new = sum(self._remember(part) for part in (sources[:1], sources[1:]) if part)
        key = dialect.identifiers(self.form.key)
        touched = [f"SELECT {key} FROM {source}" for source in sources]
        if self.content.changes.truncates:
            touched.append(f"SELECT {key} FROM {memory.quoted} WHERE {AT} IS NULL AND {BATCH} >= 0")
        if not touched:
            return Counter()
        self.make_temporary(_KEYS, f"SELECT DISTINCT {key} FROM ({' UNION ALL '.join(touched)}) AS given")
        own = f"{OPERATION}, {ORDER}, {OLDER}, {SEQUENCE}"
        values = self.names([column.name for column in self.form.others], "v")
        self.make_temporary(
            _CHANGES,
            f"SELECT {self.names(self.form.key, 'v')}{values and f', {values}'}, {own} "
            f"FROM {_KEYS} AS k JOIN {memory.quoted} AS v ON {self.same('k', 'v')} "
            f"WHERE v.{AT} IS NULL AND v.{BATCH} >= 0",
        )
        # A truncate is a delete of every key.
        memory.run(
            f"INSERT INTO {_CHANGES} ({key}, {OPERATION}, {ORDER}, {SEQUENCE}) "
            f"SELECT {self.names(self.form.key, 'k')}, 'delete', {ORDER}, {SEQUENCE} "
            f"FROM {_KEYS} AS k CROSS JOIN {memory.quoted} AS v WHERE {memory.truncates}"
        )
        self._make_intervals()
        return self._replace(new)

    def _remember(self, sources: Sequence[str]) -> int:
        """Remember the changes that are new; return how many."""
        memory, names = self.memory, self.dialect.identifiers([column.name for column in self.form.columns])
        is_there = f"EXISTS (SELECT 1 FROM {memory.quoted} AS d WHERE {self.same('d', 'g')} AND d.{AT} IS NULL "
        orders = [self.dialect.bytewise(f"{alias}.{ORDER}") for alias in ("d", "g")]
        is_there += f"AND d.{BATCH} >= 0 AND {orders[0]} = {orders[1]})"
        given = " UNION ALL ".join(f"SELECT {names} FROM {source}" for source in sources)
        return memory.run(
            f"INSERT INTO {memory.quoted} ({names}, {BATCH}) SELECT {names}, ? FROM ({given}) AS g "
            f"WHERE NOT {is_there}",
            self.batch,
        )

    def _make_intervals(self) -> None:
        """Make the intervals of the keys that were touched, each with whether the result has it as it is."""
        dialect, quote = self.dialect, self.dialect.quote
        key, others = dialect.identifiers(self.form.key), [quote(column.name) for column in self.form.others]
        names = ", ".join([key, *others, OPERATION, ORDER, SEQUENCE])
        order = f"ORDER BY {dialect.bytewise(ORDER)}"
        window, so_far = f"(PARTITION BY {key} {order})", "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
        running = f"(PARTITION BY {key} {order} {so_far})"
        source, following = _CHANGES, f"LEAD({SEQUENCE}) OVER {window} AS following"
        if self.has_gaps:
            # A gap takes the value of the change that began its run of gaps.
            counted = "".join(
                f", SUM(CASE WHEN {OPERATION} = 'upsert' AND {self.older_order(OLDER, column)} IS NOT NULL "
                f"THEN 0 ELSE 1 END) OVER {running} AS n{at}"
                for at, column in enumerate(self.form.others)
            )
            self._require_all_values(f"SELECT {names}, {OLDER}{counted} FROM {_CHANGES}", order)
            filled = [
                f"CASE WHEN n{at} > 0 THEN FIRST_VALUE({name}) OVER (PARTITION BY {key}, n{at} {order}) END AS {name}"
                for at, name in enumerate(others)
            ]
            source = f"(SELECT {names}{counted} FROM {_CHANGES}) AS counted"
            source = f"(SELECT {', '.join([key, *filled, OPERATION, ORDER, SEQUENCE])} FROM {source}) AS filled"
        # Of the changes with one sequence the newest counts.
        last = (
            f"SELECT {names} FROM (SELECT {names}, {following} FROM {source}) AS followed "
            f"WHERE following IS NULL OR NOT ({dialect.same_value('following', SEQUENCE)})"
        )
        tracked = [quote(name) for name in self.form.options.tracked_columns(self.table.names) if quote(name) in others]
        same = " AND ".join(dialect.same_value(f"was{at}", name) for at, name in enumerate(tracked)) or "1 = 1"
        before = "".join(f", LAG({name}) OVER {window} AS was{at}" for at, name in enumerate(tracked))
        compared = f"SELECT {names}, LAG({OPERATION}) OVER {window} AS former{before} FROM ({last}) AS last_ones"
        begins = f"CASE WHEN former IS NULL OR former <> {OPERATION} OR ({OPERATION} = 'upsert' AND NOT ({same})) "
        begins = f"SELECT {names}, {begins} THEN 1 ELSE 0 END AS begins FROM ({compared}) AS compared"
        # One window for all, so that the changes are sorted once. Of an interval the first and the last change stay.
        followed = f"SELECT {names}, begins, LEAD(begins) OVER {window} AS is_last, LEAD({SEQUENCE}) OVER {window} "
        followed += f"AS ended FROM ({begins}) AS begun"
        kept = f"SELECT {names}, begins, COALESCE(is_last, 1) AS is_last, ended, LAG({SEQUENCE}) OVER {window} "
        kept += f"AS first_one FROM ({followed}) AS followed_ones WHERE begins = 1 OR COALESCE(is_last, 1) = 1"
        whole = f"SELECT {names}, CASE WHEN begins = 1 THEN {SEQUENCE} ELSE first_one END AS begun, ended "
        whole += f"FROM ({kept}) AS kept WHERE is_last = 1"
        start, end = map(quote, (self.form.options.start_column, self.form.options.end_column))
        pairs = [(f"n.{name}", f"r.{name}") for name in others] + [("n.ended", f"r.{end}")]
        unchanged = " AND ".join(dialect.same_value(*pair) for pair in pairs)
        values = "".join(f", n.{name}" for name in others)
        self.make_temporary(
            _INTERVALS,
            f"SELECT {self.names(self.form.key, 'n')}{values}, n.begun AS {start}, n.ended AS {end}, "
            f"CASE WHEN r.{start} IS NULL THEN {INSERT} WHEN {unchanged} THEN {_SAME} ELSE {UPDATE} END AS {ACTION} "
            f"FROM ({whole}) AS n LEFT JOIN {self.result} AS r ON {self.same('r', 'n')} AND r.{start} = n.begun "
            f"WHERE n.{OPERATION} = 'upsert'",
        )

    def _require_all_values(self, counted: str, order: str) -> None:
        """Refuse a gap that begins a key's life; `counted` numbers, in `n` of each column, what a gap takes."""
        key = self.dialect.identifiers(self.form.key)
        begins = "".join(
            f", FIRST_VALUE({OPERATION}) OVER (PARTITION BY {key}, n{at} {order}) AS b{at}"
            for at, _ in enumerate(self.form.others)
        )
        is_lacking = " OR ".join(
            f"({self.older_order(OLDER, column)} IS NOT NULL AND (n{at} = 0 OR b{at} = 'delete'))"
            for at, column in enumerate(self.form.others)
        )
        source = f"(SELECT {key}, {OPERATION}, {OLDER}, n0"
        source += "".join(f", n{at}" for at in range(1, len(self.form.others)))
        self.require_values(
            f"{source}{begins} FROM ({counted}) AS counted) AS begun WHERE {OPERATION} = 'upsert' AND ({is_lacking})"
        )

    def _replace(self, new: int) -> Counter[int]:
        """Bring the intervals into the result, and take those out that are there no more."""
        memory, dialect = self.memory, self.dialect
        key = dialect.identifiers(self.table.key)
        self.make_temporary(
            _GONE,
            f"SELECT {key} FROM (SELECT {self.names(self.table.key, 'r')}, 1 AS held FROM {_KEYS} AS k "
            f"JOIN {self.result} AS r ON {self.same('k', 'r')} UNION ALL SELECT {key}, 2 AS held FROM {_INTERVALS}) "
            f"AS both_of GROUP BY {key} HAVING SUM(held) = 1",
        )
        [(gone,)] = memory.select(f"SELECT COUNT(*) FROM {_GONE}")
        self.keep(_GONE)
        self.keep(f"(SELECT {key} FROM {_INTERVALS} WHERE {ACTION} <> {_SAME})")
        refused = self.delete(_GONE)
        return self.write_actions(_INTERVALS) + Counter({DELETE: int(gone) - refused, CHANGE: new})
