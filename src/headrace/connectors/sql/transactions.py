"""A transaction on a connection, and its errors as one sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass

from headrace.connectors.sql.dialect import Connection, Dialect, run
from headrace.errors import SinkError


@dataclass(frozen=True, kw_only=True)
class OfTable:
    """What is done with a sink's table is done with these.

    dialect: gives the database's own ways. system: where it is, for people. is_there: there may be such a database.
    """

    dialect: Callable[[], Dialect]
    table: str
    key: Sequence[str] = ()
    system: str = ""
    is_there: bool = True


class Transaction:
    """BEGIN, COMMIT or ROLLBACK, and whether a COMMIT was sent of which nothing is known."""

    def __init__(self) -> None:
        self.is_in_doubt = False

    @contextmanager
    def begin(self, connection: Connection, dialect: Dialect) -> Iterator[None]:
        """What is done in the block is done as a whole, or not at all."""
        run(connection, dialect.begin_write)
        try:
            yield
            self.is_in_doubt = True
            run(connection, "COMMIT")
            self.is_in_doubt = False
        except BaseException:
            with suppress(*dialect.errors):
                run(connection, "ROLLBACK")
                # The connection still answers: the COMMIT, if one was sent, was refused.
                self.is_in_doubt = False
            raise


def explained(
    dialect: Dialect, error: Exception, what: str, transaction: Transaction | None = None, done: str = ""
) -> SinkError:
    """A database's error in one sentence that begins with what cannot be done.

    done: the same as a fact, of which nothing is known where the answer to the transaction's COMMIT is lost.
    """
    problem = dialect.explain(error)
    if transaction is not None and transaction.is_in_doubt:
        what = f"it is not known whether {done}"
    return SinkError(code=problem.code, what=f"{what}: {problem.what}", fix=problem.fix)


@contextmanager
def reading(dialect: Dialect, what: str) -> Iterator[Connection]:
    """A connection that reads; an error of the database is told in one sentence that begins with `what`."""
    try:
        with closing(dialect.connect_to_read()) as connection:
            yield connection
    except dialect.errors as error:
        raise explained(dialect, error, what) from None


@contextmanager
def writing(dialect: Dialect, cannot: str, done: str) -> Iterator[tuple[Connection, Transaction]]:
    """A connection and its transaction; an error of the database is told in one sentence, as `explained` does."""
    transaction = Transaction()
    try:
        with closing(dialect.connect()) as connection:
            yield connection, transaction
    except dialect.errors as error:
        raise explained(dialect, error, cannot, transaction, done) from None
