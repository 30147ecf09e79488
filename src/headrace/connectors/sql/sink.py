"""The base of the sinks of all databases: options, abilities, and the connection to a server."""

from __future__ import annotations

import ssl
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from headrace import contract
from headrace.connectors.exactly_once import BatchWriter, Retry
from headrace.connectors.exactly_once.changes import TableChanges
from headrace.connectors.sql.answers import DatabaseAnswers
from headrace.connectors.sql.batches import SqlStore
from headrace.connectors.sql.change_rows import ChangeForm, table_schema
from headrace.connectors.sql.changes import change_store
from headrace.connectors.sql.corrections import TableCorrections
from headrace.connectors.sql.dialect import Dialect
from headrace.connectors.sql.generations import TableReset, TableSwap, shadow_name
from headrace.connectors.sql.preparation import incompatibilities, prepare
from headrace.connectors.sql.result_table import result_table
from headrace.connectors.sql.rewind import TableRewind
from headrace.connectors.sql.silence import SILENCE_SECONDS, wait_for_locks
from headrace.connectors.sql.sink_table import SinkTable
from headrace.connectors.sql.snapshot import DatabaseLedger, snapshot
from headrace.connectors.sql.staging import Content, Stage, staging_prefix
from headrace.connectors.sql.system_tables import OWN_PREFIX
from headrace.connectors.sql.takeover import TableAdoption, TableRename
from headrace.errors import Finding, SinkError
from headrace.redaction import encoding_fault
from headrace.units import Duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_Ability = TypeVar("_Ability", bound=SinkTable)


@dataclass(frozen=True, kw_only=True)
class DatabaseSink(contract.Sink):
    """A table of a database; each batch is one transaction with its line in the ledger.

    table: where the rows go; it is made when it is not there.
    renamed_from: the name that the table had before: it is renamed at the next start, with its ledger.
    key: the columns that identify a row.
    on_bad_row: a row that the table does not take (NULL in the key, a key that another row has, a value too long or
    out of range, or what the database itself refuses) ends the batch with an error that names it (fail), or goes to
    the table `_headrace_quarantine` in the batch's own transaction (quarantine).
    on_schema_change: a column that the table lacks is an error before start (refuse), or is added as a nullable one
    (add).
    retry_seconds: how long a batch is tried again while the database does not answer, a lock is held, or a row waits
    for the row that it refers to.
    silence_seconds: a server that has not answered for so long while a statement runs is asked on another connection
    whether it still works on it; if not, the connection is cut and the batch is tried again.
    rewindable: for how long each batch keeps what it replaces, such as `7 days`, so that `headrace rewind` can bring
    back what was there; in update and append mode by the key.
    """

    facts: ClassVar[contract.SinkFacts] = contract.SinkFacts(
        modes=frozenset(contract.OUTPUT_MODES), transactional=True, idempotent=True, deletes=True
    )
    longest_name: ClassVar[tuple[int, str] | None] = None
    table: str
    key: Sequence[str] = ()
    renamed_from: str = ""
    on_bad_row: Literal["fail", "quarantine"] = "fail"
    on_schema_change: Literal["refuse", "add"] = "refuse"
    retry_seconds: float = 60.0
    silence_seconds: float = SILENCE_SECONDS
    rewindable: str | None = None
    # How it applies change data; None: the rows of a batch are its rows.
    applies: contract.ChangeOptions | None = field(default=None, init=False, repr=False, compare=False)

    @abstractmethod
    def dialect(self) -> Dialect:
        """Return the database's own ways, with where it is."""

    def problems(self, mode: contract.OutputMode) -> Iterator[contract.OptionError]:
        if mode == "update" and not self.key:
            yield contract.OptionError(
                code="HR403",
                what=f"update mode into table '{self.table}' needs a key, to find the row to replace",
                fix="give key: the columns that identify a row of the result",
            )
        former, alone = self.renamed_from, self.table.rpartition(".")[2]
        for is_wrong, fault, fix in (
            (
                not self.table or self.table.lower().startswith(OWN_PREFIX),
                f"a result table may not be called '{self.table}'",
                "choose another name",
            ),
            (
                former and (former == self.table or former.lower().startswith(OWN_PREFIX)),
                f"table '{self.table}' cannot be renamed from '{former}'",
                "give renamed_from: the name that it had before",
            ),
            (
                "." in self.table,
                f"the table's name '{self.table}' has a dot",
                f"write table: {alone}; a schema or a database has an option, or its place in the url",
            ),
            (
                self._too_long(self.table),
                f"the name '{self.table}' has {self._too_long(self.table)}",
                "give the table a shorter name",
            ),
            (len(set(self.key)) != len(self.key), "the key names a column twice", "name each column once"),
            (self.silence_seconds < 1, "silence_seconds is less than 1", "leave it out, and it is 30"),
            (self.retry_seconds < 0, "retry_seconds is negative", "give 0 to try each batch once only"),
        ):
            if is_wrong:
                yield contract.OptionError(what=fault, fix=fix)
        yield from self._rewindable_problems(mode)

    def _rewindable_problems(self, mode: contract.OutputMode) -> Iterator[contract.OptionError]:
        if self.rewindable is None:
            return
        try:
            if Duration.parse(self.rewindable).seconds <= 0:
                raise ValueError("it must be longer than zero")
        except ValueError as error:
            yield contract.OptionError(what=f"rewindable: {error}", fix="write a length of time, such as 7 days")
        if mode == "append" and not self.key:
            fault = f"table '{self.table}' has no key, by which the rows of a batch in append mode would be found again"
            fix = "give key: the columns that identify a row; or leave rewindable out"
            yield contract.OptionError(code="HR403", what=fault, fix=fix)

    @property
    def rewindable_seconds(self) -> float:
        """How long replaced rows are kept; 0: they are not."""
        return 0.0 if self.rewindable is None else Duration.parse(self.rewindable).seconds

    @property
    def location(self) -> contract.SinkLocation:
        system = self.system()
        return contract.SinkLocation(
            name=self.table, systems=(system,), shown=f"table '{self.table}' in {system}", ledger=True
        )

    def system(self) -> str:
        """Return the server and the database, or the file, without user and password."""
        try:
            parts = urlsplit(getattr(self, "url", ""))
            if "@" in parts.path + parts.query + parts.fragment:
                # A password that is not encoded: what is read as the host is a piece of it.
                return "the database"
            return f"{parts.hostname or 'localhost'}{f':{parts.port}' if parts.port else ''}{parts.path}"
        except ValueError:
            return "the database"

    def check_result(self, frame: DataFrame, context: contract.SinkContext) -> Iterator[Finding]:
        yield from self.long_names(frame.columns)
        try:
            result_table(self.table, self.key, self._table_schema(frame), context)
        except SinkError as error:
            yield from error.findings

    def check_connection(self, frame: DataFrame, context: contract.SinkContext) -> Iterator[Finding]:
        adds = self.on_schema_change == "add"
        yield from incompatibilities(
            self.dialect(), self.table, self.key, self._table_schema(frame), context, adds=adds
        )

    def open(self, frame: DataFrame, context: contract.SinkContext) -> BatchWriter[Content]:
        if long := list(self.long_names(frame.columns)):
            raise SinkError(long)
        schema, form = self._table_schema(frame), ChangeForm.of(self.applies, frame.schema) if self.applies else None
        table = result_table(self.table, self.key, schema, context)
        adds = self.on_schema_change == "add"
        dialect = self.dialect()
        ready = wait_for_locks(
            lambda: prepare(
                dialect, table, schema.json(), context, adds=adds, rewindable=self.rewindable is not None, form=form
            ),
            dialect,
            context,
        )
        quarantines, deletes = self.on_bad_row == "quarantine", contract.DELETE_COLUMN in frame.columns
        stage = Stage(
            dialect=dialect,
            prefix=staging_prefix(context, ready.epoch),
            columns=ready.table.columns,
            key=ready.table.key,
            limits=ready.limits,
            # A plain INSERT is refused by the database if a row has the key of another.
            clustered=bool(ready.table.key)
            and (quarantines or deletes or (context.mode == "update" and not dialect.detects_duplicates)),
            quarantines=quarantines,
            driver_rows=dialect.driver_rows,
            widest=ready.widest,
            deletes=deletes,
        )
        store = SqlStore(
            dialect=dialect,
            table=ready.table,
            context=context,
            epoch=ready.epoch,
            stage=stage,
            retry=Retry(seconds=self.retry_seconds),
            widened=ready.widened,
            rewindable_seconds=self.rewindable_seconds,
        )
        return BatchWriter(store=store if form is None else change_store(store, form))

    def read_back(self, spark: SparkSession, context: contract.SinkContext) -> contract.Snapshot:
        return snapshot(self.dialect(), self.table, self.key, spark, context)

    def _table_schema(self, frame: DataFrame) -> StructType:
        """Return the columns of the table."""
        return table_schema(self.applies, frame.schema)

    @property
    def changes(self) -> TableChanges[DatabaseSink]:
        return TableChanges(sink=self)

    @property
    def ledger(self) -> DatabaseLedger:
        return self._of(DatabaseLedger)

    @property
    def corrections(self) -> TableCorrections | None:
        if self.applies is not None:
            # No change is late, and a row's order says from which change it comes.
            return None
        quarantines, rewindable = self.on_bad_row == "quarantine", self.rewindable is not None
        return self._of(TableCorrections, quarantines=quarantines, rewindable=rewindable)

    @property
    def answers(self) -> DatabaseAnswers:
        return self._of(DatabaseAnswers, dialect_to_ask=self.dialect_to_ask)

    @property
    def rename(self) -> TableRename:
        former = self._with_table(self.renamed_from) if self.renamed_from else None
        return self._of(TableRename, renamed_from=self.renamed_from, former=former)

    @property
    def reset(self) -> TableReset:
        return self._of(TableReset, droppable=True)

    @property
    def rewind(self) -> TableRewind:
        return self._of(TableRewind, keeps=self.rewindable is not None)

    @property
    def adoption(self) -> TableAdoption:
        return self._of(TableAdoption, takes_over=True)

    @property
    def swap(self) -> TableSwap:
        return self._of(TableSwap, shadow=self._with_table(shadow_name(self.table)))

    def _with_table(self, name: str) -> DatabaseSink:
        """Return the same sink with another table."""
        other = replace(self, table=name, renamed_from="")
        return other if self.applies is None else other.changes.bind(self.applies)

    def dialect_to_ask(self) -> Dialect:
        """Return the dialect for questions of people."""
        return self.dialect()

    def is_there(self) -> bool:
        """Whether there may be such a database."""
        return True

    def long_names(self, names: Sequence[str]) -> Iterator[Finding]:
        """Yield the columns whose names the database would cut or refuse."""
        for name in names:
            if too_long := self._too_long(name):
                fault = f"the name of the result's column '{name}' has {too_long}"
                yield Finding(code="HR404", what=fault, fix="give the column a shorter name in the query: AS name")

    def _too_long(self, name: str) -> str:
        if self.longest_name is None:
            return ""
        most, unit = self.longest_name
        length = len(name.encode()) if unit == "bytes" else len(name)
        return f"{length} {unit}, and the database takes {most}" if length > most else ""

    def _of(self, kind: type[_Ability], **more: Any) -> _Ability:
        facts: dict[str, Any] = {"key": self.key, "system": self.system(), "is_there": self.is_there(), **more}
        return kind(dialect=self.dialect, table=self.table, **facts)


# What leaves the choice of authorities to the client library.
SYSTEM = "system"
# Where Linux distributions and macOS keep the certificates of public authorities.
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


@dataclass(frozen=True, kw_only=True)
class ServerSink(DatabaseSink):
    """A table of a database server.

    tls: verify-full encrypts the connection, and lets it begin only if the server's certificate is signed by a known
    authority and made out to the url's host; without it, the url's own options count.
    tls_ca: the file with the certificates of the authorities, for verify-full; without it, those of the machine.
    ask_url: the url by which the dashboard's Ask reads the database, of a user that may only read; without it, `url`.
    """

    positional: ClassVar[str] = "url"
    # Characters that a password may have as they are.
    may_be_plain: ClassVar[str] = ""
    url: str = field(repr=False)
    tls: Literal["", "verify-full"] = ""
    tls_ca: contract.ProjectPath = ""
    ask_url: str = field(default="", repr=False)

    @abstractmethod
    def host(self) -> str:
        """Return the host that the url names; empty for a socket of this machine."""

    @abstractmethod
    def tls_in_url(self) -> tuple[dict[str, str], bool]:
        """Return the options of TLS that the url has, and whether they let the server's certificate be checked."""

    @abstractmethod
    def verify_full_options(self, ca: str) -> dict[str, str]:
        """Return the url's options for verify-full."""

    @abstractmethod
    def address_problem(self) -> contract.OptionError | None:
        """Return what the client library would refuse of the url, which is not repeated: it may hold a password."""

    def url_problems(self) -> Iterator[contract.OptionError]:
        """Yield what is wrong with the url and the options of TLS."""
        if character := encoding_fault(self.url, may=self.may_be_plain):
            fault = f"the password in the url of the database has a '{character}' that is not encoded"
            yield contract.OptionError(what=fault, fix=f"write '%{ord(character):02X}' for it")
        elif problem := self.address_problem():
            yield problem
        else:
            yield from self.tls_problems()

    def problems(self, mode: contract.OutputMode) -> Iterator[contract.OptionError]:
        yield from super().problems(mode)
        yield from self.url_problems()
        if self.ask_url:
            for problem in replace(self, url=self.ask_url).url_problems():
                yield replace(problem, what=f"ask_url: {problem.what}")
            asked, written = self._database_of(self.ask_url), self._database_of(self.url)
            if asked != written:
                named = f"the database '{asked}'" if asked else "no database"
                fault = f"ask_url names {named}, and the url '{written}'"
                yield contract.OptionError(what=fault, fix="write the same url with a user that may only read")

    @staticmethod
    def _database_of(url: str) -> str:
        """Return the database of a url, by its path or by an option; empty for one that cannot be read."""
        try:
            parts = urlsplit(url)
            given = dict(parse_qsl(parts.query))
            return unquote(parts.path.strip("/")) or given.get("dbname", "") or given.get("database", "")
        except ValueError:
            return ""

    def secured_url(self) -> str:
        """Return the url with what `tls` asks for."""
        if not self.tls:
            return self.url
        options = urlencode(self.verify_full_options(self.tls_ca or authorities()))
        return f"{self.url}{'&' if '?' in self.url else '?'}{options}"

    def dialect_to_ask(self) -> Dialect:
        return replace(self, url=self.ask_url).dialect() if self.ask_url else self.dialect()

    def tls_problems(self) -> Iterator[contract.OptionError]:
        """Yield the faults of the options of TLS, or a note about an unprotected connection to another machine."""
        given, checked = self.tls_in_url()
        conflict = f"the url of the database has {min(given, default='')}, and the sink has tls: {self.tls}"
        for is_wrong, fault, fix in (
            (self.tls and given, conflict, "give one of the two"),
            (
                self.tls_ca and not self.tls,
                "tls_ca is given, and tls is not, so that nothing is checked",
                "add tls: verify-full",
            ),
            (
                self.tls_ca and not Path(self.tls_ca).is_file(),
                f"the file '{self.tls_ca}', which tls_ca names, is not there",
                "correct the path",
            ),
        ):
            if is_wrong:
                yield contract.OptionError(what=fault, fix=fix)
                return
        if not self.tls and not checked and not contract.is_loopback(self.host()):
            yield contract.OptionError(
                code="HR482",
                what=f"the connection to '{self.host()}' may be unencrypted, and nothing checks that it is the server",
                fix="set tls: verify-full, with tls_ca: FILE for an authority of your own",
                severity="note",
            )


def authorities() -> str:
    """Return the file of the authorities that this machine trusts; SYSTEM if none is found."""
    configured = ssl.get_default_verify_paths().cafile
    return next((place for place in (configured, *_BUNDLES) if place and Path(place).is_file()), SYSTEM)
