"""A table of an Iceberg catalog, as pyiceberg opens it, and how a result's columns fit to it."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import unquote

from headrace.connectors.iceberg.files import column_types
from headrace.contract import Identity, OptionError, RefusedValue, canonical_address
from headrace.errors import HeadraceError, PlatformError, SourceError, first_line

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

DEFAULT_CATALOG = "default"
_BY_LIBHDFS = ("hdfs:", "viewfs:")
NAME = re.compile(r"[^.\s]+(?:\.[^.\s]+)+")
_SECRET = re.compile(r"secret|token|password|credential|key|sas|header\.authorization", re.IGNORECASE)
_PART = re.compile(r"(?P<name>\w+)|(?P<kind>\w+)\(\s*(?:(?P<number>\d+)\s*,\s*)?(?P<of>\w+)\s*\)")
_PLAIN = ("year", "month", "day", "hour")
_NUMBERED = ("bucket", "truncate")
# The types of Spark that Iceberg has, but for those that hold others.
_KINDS = "boolean byte short integer long float double decimal string binary date timestamp timestamp_ntz"
# Iceberg has no smaller whole numbers than these, and it may widen a column.
_WIDER = {"tinyint": ("int", "bigint"), "smallint": ("int", "bigint"), "int": ("bigint",), "float": ("double",)}


# What no later try changes, of pyiceberg's classes and Python's.
_FINAL = (
    *("NoSuchTableError", "NoSuchIcebergTableError", "NoSuchNamespaceError", "NoSuchPropertyException", "TypeError"),
    *("BadRequestError", "UnauthorizedError", "ForbiddenError", "OAuthError", "ValidationError", "ValidationException"),
    *("ValueError", "ArrowInvalid", "PermissionError"),
)


def _missing_package(reason: str) -> OptionError:
    return OptionError(
        code="HR011",
        what=f"Iceberg tables need a package that is not installed: {reason}",
        fix="pip install 'headrace[iceberg]', and pyiceberg's own extra for a catalog other than SQL and REST",
    )


def _needs_libhdfs(place: str) -> OptionError:
    return OptionError(
        code="HR838",
        what=f"{place} is on HDFS, which pyiceberg reaches only by Hadoop's libhdfs; Headrace was never run with it",
        fix="put the warehouse on s3:// or on a local or mounted directory; or write a Delta table, or files, on hdfs://",
    )


@dataclass(frozen=True, kw_only=True)
class TableRef:
    """Where a table is, and the kind of error by which its faults are reported.

    catalog: a name of pyiceberg's own configuration, or the catalog's properties; `name` among them is its name.
    """

    table: str
    catalog: str | Mapping[str, str] = field(repr=False)
    error: type[HeadraceError]

    def problems(self) -> Iterator[OptionError]:
        """Find what is wrong with the name, is not installed, and a warehouse that no Python package can reach."""
        if find_spec("pyiceberg") is None:
            yield _missing_package("no module named 'pyiceberg'")
        warehouse = "" if isinstance(self.catalog, str) else str(self.catalog.get("warehouse", ""))
        if warehouse.lower().startswith(_BY_LIBHDFS):
            yield _needs_libhdfs(f"the warehouse {warehouse}")
        if NAME.fullmatch(self.table) is None:
            fault = f"'{self.table}' is not a valid name of an Iceberg table"
            yield OptionError(what=fault, fix="write namespace.table")

    def open(self) -> Table:
        """The table as it is now. Raises `error`, or PlatformError where a package is not installed."""
        table = self.find()
        if table is None:
            raise self._not_there()
        return table

    def again(self, table: Table) -> Table:
        """The table as it is now, even if it was recreated, by the catalog that has given it. Raises as `open` does."""
        with self.translate_errors():
            from pyiceberg.exceptions import NoSuchTableError

            try:
                return table.catalog.load_table(self.table)
            except NoSuchTableError:
                raise self._not_there() from None

    def find(self) -> Table | None:
        """The table, or None where the catalog has none of this name. Raises as `open` does."""
        with self.translate_errors():
            from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

            try:
                return self.connect().load_table(self.table)
            except (NoSuchTableError, NoSuchNamespaceError):
                return None

    def connect(self) -> Catalog:
        """The catalog; to be called within `translate_errors`."""
        from pyiceberg.catalog import load_catalog

        properties = {"name": self.catalog} if isinstance(self.catalog, str) else dict(self.catalog)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # They repeat addresses with their passwords.
            return load_catalog(properties.pop("name", DEFAULT_CATALOG), **properties)

    def with_namespace(self) -> Catalog:
        """The catalog, in which the table's namespace is made if it is not there."""
        catalog, namespace = self.connect(), self.table.rpartition(".")[0]
        if not catalog.namespace_exists(namespace):
            catalog.create_namespace(namespace)
        return catalog

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Raise every error of pyiceberg as one of ours, in a sentence without the catalog's secrets."""
        try:
            yield
        except HeadraceError:
            raise
        except Exception as error:
            raise self.as_headrace_error(error) from None

    def as_headrace_error(self, error: Exception) -> HeadraceError:
        """A fault of pyiceberg's as one of ours."""
        reason = self.mask(first_line(error) or "no reason was given")
        if isinstance(error, ImportError) or type(error).__name__ == "NotInstalledError":
            problem = _missing_package(reason)
            return PlatformError(code=problem.code, what=problem.what, fix=problem.fix)
        if "libhdfs" in reason or "libjvm" in reason:
            problem = _needs_libhdfs(str(self))
            return self.error(code=problem.code, what=problem.what, fix=problem.fix)
        fault = f"{self} cannot be used: {type(error).__name__}: {reason}"
        fix = "start the catalog, or correct its properties; then start again"
        passes, final = ("HR331", "HR355") if self.error is SourceError else ("HR405", "HR425")
        return self.error(code=final if type(error).__name__ in _FINAL else passes, what=fault, fix=fix)

    def _not_there(self) -> HeadraceError:
        code, fix = "HR332" if self.error is SourceError else "HR425", "create it, or correct its name or the catalog"
        return self.error(code=code, what=f"{self} is not there", fix=fix)

    def mask(self, text: str) -> str:
        """`text` without the values of the catalog's properties that are secret."""
        for secret in sorted(self._secrets(), key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    def _secrets(self) -> set[str]:
        properties = {} if isinstance(self.catalog, str) else self.catalog
        secrets = {value for key, value in properties.items() if _SECRET.search(key)}
        for value in properties.values():
            if address := re.match(r"[^/]*://[^/@]*:(?P<password>[^/]*)@", value):
                secrets |= {address["password"], unquote(address["password"])}
        for value in tuple(secrets):
            secrets |= set(value.split(":"))  # A credential is an id and a secret.
        return {value for value in secrets if len(value) > 2}

    def identity(self) -> Identity:
        """What identifies the table in its kind of catalog; the properties hold secrets."""
        if isinstance(self.catalog, str) or not self.catalog.keys() - {"name"}:
            return {"system": "iceberg", "catalog": self._catalog_name, "table": self.table}
        address = canonical_address(self.catalog.get("uri", ""))
        kind = self.catalog.get("type", address.partition("://")[0])
        identity = {"system": "iceberg", "catalog": address or kind, "table": self.table}
        if kind in ("rest", "http", "https"):
            return {**identity, "warehouse": canonical_address(self.catalog.get("warehouse", ""))}
        return identity if kind in ("hive", "thrift") else {**identity, "name": self._catalog_name}

    @property
    def _catalog_name(self) -> str:
        return self.catalog if isinstance(self.catalog, str) else self.catalog.get("name", DEFAULT_CATALOG)

    def __str__(self) -> str:
        return f"table '{self.table}' of the Iceberg catalog '{self._catalog_name}'"


@dataclass(frozen=True, kw_only=True)
class PartitionField:
    """One field of a partition spec: a column, or a function of one, such as day(time) or bucket(16, id)."""

    column: str
    transform: str

    @classmethod
    def of(cls, text: str) -> PartitionField | None:
        """Parse `text`; None where it is no such field."""
        match = _PART.fullmatch(text.strip())
        if match is None:
            return None
        if match["name"]:
            return cls(column=match["name"], transform="identity")
        kind, number = match["kind"].lower(), match["number"]
        if kind in _PLAIN and number is None:
            return cls(column=match["of"], transform=kind)
        if kind in _NUMBERED and number is not None and int(number) > 0:
            return cls(column=match["of"], transform=f"{kind}[{number}]")
        return None

    def __str__(self) -> str:
        if self.transform == "identity":
            return self.column
        match = re.fullmatch(r"(\w+)\[(\d+)\]", self.transform)
        return f"{match[1]}({match[2]}, {self.column})" if match else f"{self.transform}({self.column})"


def parts_of(table: Table) -> list[str]:
    """Return the partitions of `table` as an option would declare them."""
    schema = table.schema()
    return [
        str(PartitionField(column=schema.find_column_name(part.source_id) or "?", transform=str(part.transform)))
        for part in table.spec().fields
    ]


def find_refused_values(frame: DataFrame, parts: Sequence[str]) -> Iterator[RefusedValue]:
    """The values of `frame` that pyiceberg puts into no partition, where `parts` are how the table is partitioned."""
    from pyspark.sql import functions as F

    for column in frame.schema:
        if column.name in parts and column.dataType.typeName() in ("float", "double"):
            why, fix = "is NaN, which no partition takes", "filter such rows out in the query's last select"
            yield RefusedValue(column.name, F.isnan(f"`{column.name}`"), why, f"{fix}, or partition by another column")


def find_unsupported(schema: StructType) -> Iterator[str]:
    """Find what of a result no Iceberg table could take."""
    for column in schema.fields:
        if not _is_known(column.dataType):
            yield f"column '{column.name}' is of type {column.dataType.simpleString()}, which Iceberg does not have"
    for name in sorted({name for name in schema.names if schema.names.count(name) > 1}):
        yield f"two columns are named '{name}'"


def incompatibilities(table: Table, schema: StructType) -> Iterator[str]:
    """Find why an existing table cannot take a result."""
    there = column_types(table)
    for column in schema.fields:
        given = column.dataType.simpleString()
        if column.name not in there:
            yield f"it has no column '{column.name}'"
            continue
        kind = there[column.name]
        of_table = "another type" if kind is None else kind.simpleString()
        if of_table != given and of_table not in _WIDER.get(given, ()):
            yield f"its column '{column.name}' is {of_table}, and that of the result {given}"
    for own in table.schema().fields:
        if own.required and own.name not in schema.names:
            yield f"its column '{own.name}' takes no NULL, and the result has no such column"


def arrow_schema(schema: StructType) -> pa.Schema:
    """The columns of a table for a result: each may be NULL, and small whole numbers are wider."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    small = (pa.int8(), pa.int16())
    return pa.schema(
        [
            pa.field(column.name, pa.int32() if column.type in small else column.type, nullable=True)
            for column in to_arrow_schema(schema, timezone="UTC")
        ]
    )


def _is_known(kind: DataType) -> bool:
    from pyspark.sql import types

    inside: list[DataType] = []
    if isinstance(kind, types.ArrayType):
        inside = [kind.elementType]
    elif isinstance(kind, types.MapType):
        inside = [kind.keyType, kind.valueType]
    elif isinstance(kind, types.StructType):
        inside = [part.dataType for part in kind.fields]
    elif kind.typeName() not in _KINDS.split():
        return False
    # Inside of arrays, maps and structs a column is not widened.
    return all(_is_known(part) and part.simpleString() not in ("tinyint", "smallint") for part in inside)
