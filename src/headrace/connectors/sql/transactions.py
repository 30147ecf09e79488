"""A transaction on a connection, and its errors as one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

from headrace.connectors.sql.dialect import Connection, Dialect, run
from headrace.errors import SinkError


class Transaction:
    """BEGIN, COMMIT or ROLLBACK, and whether a COMMIT was sent whose answer is not known."""

    def __init__(self) -> None:
        self.is_in_doubt = False

    @contextmanager
    def begin(self, connection: Connection, dialect: Dialect) -> Iterator[None]:
        """Do the block as a whole, or not at all."""
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


def explain_failure(
    dialect: Dialect, error: Exception, cannot: str, transaction: Transaction | None = None, done: str = ""
) -> SinkError:
    """Return a database's error as one sentence that begins with what cannot be done.

    done: the same as a fact, which is in doubt where the answer to the transaction's COMMIT is lost.
    """
    problem = dialect.explain(error)
    if transaction is not None and transaction.is_in_doubt:
        cannot = f"it is not known whether {done}"
    return SinkError(code=problem.code, what=f"{cannot}: {problem.what}", fix=problem.fix)


@contextmanager
def open_reader(dialect: Dialect, cannot: str) -> Iterator[Connection]:
    """Open a connection that reads; an error of the database becomes one sentence that begins with `cannot`."""
    try:
        with closing(dialect.connect_to_read()) as connection:
            yield connection
    except dialect.errors as error:
        raise explain_failure(dialect, error, cannot) from None


@contextmanager
def open_writer(dialect: Dialect, cannot: str, done: str) -> Iterator[tuple[Connection, Transaction]]:
    """Open a connection with a transaction; an error of the database becomes one sentence, by `explain_failure`."""
    transaction = Transaction()
    try:
        with closing(dialect.connect()) as connection:
            yield connection, transaction
    except dialect.errors as error:
        raise explain_failure(dialect, error, cannot, transaction, done) from None
