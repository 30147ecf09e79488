"""Whether a column of a Parquet or ORC file can be taken for the declared one without losing a value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.contract import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

# What a whole number of each type takes: digits in a decimal.
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
_WHOLE = tuple(_DIGITS)
# Other pairs that lose nothing: (in the file, declared). Parquet has no type of its own for many of them.
_FITS = {("float", "double"), ("void", "void"), *((whole, "double") for whole in _WHOLE[:3])}
_FITS_PARQUET = {
    ("binary", "string"),
    ("string", "binary"),
    ("timestamp_ntz", "timestamp"),
    ("timestamp", "timestamp_ntz"),
}


def incompatibilities(
    declared: StructType, found: StructType, required: frozenset[str], format_: str, *, case_sensitive: bool
) -> Iterator[OptionError]:
    """What is wrong with a file of the columns `found`: HR308 for a type, HR308 for what is not there.

    A column that the file lacks is NULL in each of its rows; that is allowed unless it is declared NOT NULL, or the
    file has none of the declared columns at all. Columns that are not declared are left out.
    """
    known = {_key(field.name, case_sensitive): field for field in found.fields}
    if found.fields and all(name.startswith("_col") for name in found.names) and format_ == "orc":
        # Hive wrote no names, and Spark goes by position.
        known = {
            _key(want.name, case_sensitive): have for want, have in zip(declared.fields, found.fields, strict=False)
        }
    there = [field for field in declared.fields if _key(field.name, case_sensitive) in known]
    for field in there:
        of_file = known[_key(field.name, case_sensitive)].dataType
        for path, have, want in _differences(field.name, of_file, field.dataType, format_):
            yield OptionError(
                code="HR308",
                what=f"its column '{path}' is {have}, and the schema says {want}",
                fix=f"rewrite the file with {path} as {want}, or correct the schema; then start again",
            )
    not_there = [field.name for field in declared.fields if field not in there]
    missing = [name for name in not_there if name in required]
    if missing:
        named = ", ".join(f"'{name}'" for name in missing)
        yield OptionError(
            code="HR308",
            what=f"it lacks {named}, which the schema says is NOT NULL",
            fix="rewrite the file with it, or leave out NOT NULL; then start again",
        )
    elif declared.fields and not there:
        has = ", ".join(found.names[:8]) + (", ..." if len(found.names) > 8 else "")
        yield OptionError(
            code="HR308",
            what=f"it has none of the columns of the schema but {has or 'none at all'}",
            fix="correct the schema, or put a file of this schema in its place; then start again",
        )


def _key(name: str, case_sensitive: bool) -> str:
    return name if case_sensitive else name.lower()


def _differences(path: str, found: DataType, declared: DataType, format_: str) -> Iterator[tuple[str, str, str]]:
    """Where the types differ in earnest: the place in the column, the type in the file and the declared one."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(found, StructType) and isinstance(declared, StructType):
        known = {field.name.lower(): field for field in found.fields}
        for field in declared.fields:
            if field.name.lower() in known:
                of_file = known[field.name.lower()].dataType
                yield from _differences(f"{path}.{field.name}", of_file, field.dataType, format_)
    elif isinstance(found, ArrayType) and isinstance(declared, ArrayType):
        yield from _differences(f"{path}[]", found.elementType, declared.elementType, format_)
    elif isinstance(found, MapType) and isinstance(declared, MapType):
        yield from _differences(f"{path}.key", found.keyType, declared.keyType, format_)
        yield from _differences(f"{path}.value", found.valueType, declared.valueType, format_)
    elif not _fits(found, declared, format_):
        yield path, _named(found), _named(declared)


def _fits(found: DataType, declared: DataType, format_: str) -> bool:
    from pyspark.sql.types import CharType, DecimalType, NullType, StringType, VarcharType

    texts = (StringType, VarcharType, CharType)
    if found == declared or isinstance(found, NullType) or (isinstance(found, texts) and isinstance(declared, texts)):
        return True
    have, want = found.simpleString(), declared.simpleString()
    if have in _WHOLE and want in _WHOLE:
        return _WHOLE.index(have) <= _WHOLE.index(want)
    if isinstance(declared, DecimalType):
        whole = declared.precision - declared.scale
        if isinstance(found, DecimalType):
            return found.scale <= declared.scale and found.precision - found.scale <= whole
        return have in _WHOLE and _DIGITS[have] <= whole
    return (have, want) in _FITS or (format_ == "parquet" and (have, want) in _FITS_PARQUET)


def _named(kind: DataType) -> str:
    """A type as a schema is written; names inside it keep their case."""
    text = kind.simpleString()
    return text if "<" in text else text.upper()
