"""What the tables of a lake share: changes among other writers, and the way back to a version of their own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Generic, TypeVar

from headrace.checkpoint import Checkpoint
from headrace.connectors.exactly_once.batches import take_epoch
from headrace.contract import Held, Session, SinkContext, SinkRewind
from headrace.errors import CheckpointError, Finding, HeadraceError, NothingChanged, SinkError

Changed = TypeVar("Changed")
Known = TypeVar("Known")
Version = TypeVar("Version")


def among_writers(name: str, change: Callable[[], Changed], *, then: str = "give the command again") -> Changed:
    """Return what `change` returns; it is tried again while it raises Conflict, because others were quicker."""
    fix = f"let other writers leave pauses, or write to a table of its own; then {then}"
    return take_epoch(change, Finding(code="HR441", what=f"others change {name} all the time", fix=fix))


def no_result(name: str, context: SinkContext, *, kind: str = "table") -> HeadraceError:
    """Return the error of a table (or `kind`) without a batch of the generation; if one was committed, it is lost."""
    fault = f"{name} holds no result of generation {context.generation} of query '{context.query}'"
    committed = Checkpoint(context.checkpoint).last_committed
    if committed is None:
        return SinkError(code="HR402", what=fault, fix=f"run query '{context.query}' first")
    fix = f"put the {kind} and its ledger back, or reset the query (headrace reset QUERY)"
    lost = f"{fault}, which has committed batch {committed}: the {kind} or its ledger was deleted, or is a new one"
    return CheckpointError(code="HR410", what=lost, fix=fix)


def not_there(name: str, context: SinkContext) -> SinkError:
    """Return the error of an adopted query whose table is not there."""
    fault = f"{name} is not there, which holds what query '{context.query}' has written"
    fix = "name the table that the former job writes to, or put it back"
    return SinkError(code="HR596", what=fault, fix=fix)


def shadow_name(table: str) -> str:
    """Return the name of a rebuild's table until it is put in place."""
    return f"{table}__headrace_rebuild"


def name_aside(table: str, context: SinkContext) -> str:
    """Return the name of the generation's table when it is set aside."""
    return f"{table}__headrace_aside_g{context.generation}"


@dataclass(frozen=True, kw_only=True)
class Renames:
    """A rebuilt table put in place, and taken back, where a catalog renames one table at a time.

    The names that exist show how far it came, so that both may be called again after a crash.
    """

    table: str
    context: SinkContext
    exists: Callable[[str], bool]
    rename: Callable[[str, str], object]

    def swap_in(self) -> None:
        """Set the table aside, and give its name to the rebuilt one."""
        if not self.exists(shadow_name(self.table)):
            return
        if self.exists(self.table):
            self.rename(self.table, name_aside(self.table, self.context))
        self.rename(shadow_name(self.table), self.table)

    def swap_out(self) -> None:
        """Undo `swap_in`."""
        shadow, aside = shadow_name(self.table), name_aside(self.table, self.context)
        if not self.exists(shadow) and self.exists(self.table):
            self.rename(self.table, shadow)
        if self.exists(aside) and not self.exists(self.table):
            self.rename(aside, self.table)


@dataclass(frozen=True, kw_only=True)
class Reached(Generic[Version]):
    """The version that a table had after a batch; without one, the first batch after it that has one, and why."""

    version: Version | None = None
    earliest: int | None = None
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class VersionRewind(SinkRewind, Generic[Known, Version]):
    """A table brought back to a version of its own by one more version, which can be undone; nothing is rewritten.

    name: the table, for people. `restore`, `bring_back` and `forget_former` raise Conflict where others were quicker.
    """

    name: str

    @abstractmethod
    def current(self, context: SinkContext, session: Session) -> Known | None:
        """Return the table as it is now; None where it has no batch of the generation."""

    @abstractmethod
    def last(self, table: Known) -> int:
        """Return the newest batch that is in."""

    @abstractmethod
    def reach(self, table: Known, context: SinkContext, batch: int) -> Reached[Version]:
        """Return the newest version of `batch`, without versions that earlier rewinds took off."""

    @abstractmethod
    def count(self, table: Known, version: Version | None) -> int:
        """Return the rows of a version; None: of the present one."""

    @abstractmethod
    def restore(self, table: Known, version: Version, context: SinkContext, batch: int) -> None:
        """Restore the files of `version`."""

    @abstractmethod
    def is_rewound(self, table: Known, context: SinkContext, batch: int) -> bool:
        """Whether the table went back to `batch` and remembers what it was before."""

    @abstractmethod
    def bring_back(self, table: Known, context: SinkContext, batch: int) -> None:
        """Restore that version. Raises NothingChanged where it is gone."""

    @abstractmethod
    def forget_former(self, context: SinkContext, session: Session) -> None:
        """Forget the version from before the rewind."""

    def translate_errors(self) -> AbstractContextManager[None]:
        """Translate the errors of the table's library in the block."""
        return nullcontext()

    def earliest(self, context: SinkContext, batch: int, session: Session) -> int | None:
        with self.translate_errors():
            table = self.current(context, session)
            if table is None:
                return None
            reached = self.reach(table, context, batch)
            return reached.earliest if reached.version is None else batch

    def list_taken_back(self, context: SinkContext, batch: int, session: Session) -> tuple[Held, ...]:
        with self.translate_errors():
            table = self.current(context, session)
            if table is None or self.last(table) <= batch:
                return ()
            version = self.reach(table, context, batch).version
            if version is None:
                return ()
            now, then = self.count(table, None), self.count(table, version)
            return (
                Held(count=now, what=f"rows of {self.name}, which go back to the {then:,} rows after batch {batch}"),
                Held(count=self.last(table) - batch, what=f"batches of {self.name} are taken back"),
            )

    def go_back(self, context: SinkContext, batch: int, session: Session) -> None:
        def change() -> None:
            table = self.current(context, session)
            if table is None or self.last(table) <= batch:
                return
            reached = self.reach(table, context, batch)
            if reached.version is None:
                fix = "" if reached.earliest is None else f"go back to batch {reached.earliest} at most; or "
                fix += f"recompute the result: headrace rebuild {context.query}"
                fault = f"{self.name} cannot go back to batch {batch}: {reached.why}"
                raise NothingChanged(code="HR580", what=fault, fix=fix)
            self.restore(table, reached.version, context, batch)

        with self.translate_errors():
            among_writers(self.name, change)

    def undo(self, context: SinkContext, batch: int, session: Session) -> None:
        def change() -> None:
            table = self.current(context, session)
            if table is None or not self.is_rewound(table, context, batch):
                return
            if self.last(table) != batch:
                fault = f"{self.name} has batches of query '{context.query}' after batch {batch} again"
                fix = "go back to that batch once more, or keep them"
                raise NothingChanged(code="HR583", what=fault, fix=fix)
            self.bring_back(table, context, batch)

        with self.translate_errors():
            among_writers(self.name, change)

    def forget(self, context: SinkContext, session: Session) -> None:
        with self.translate_errors():
            among_writers(self.name, lambda: self.forget_former(context, session))
