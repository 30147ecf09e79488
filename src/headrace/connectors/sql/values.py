"""Arrow columns as the values that a database takes: plain Python values, or lines of text for a bulk load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from headrace.connectors.sql.types import Kind, ResultColumn

if TYPE_CHECKING:
    import pyarrow as pa

# What COPY and LOAD DATA take as they are: tab, newline and backslash mean something to them.
_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"), ("\0", "\\0"))


@dataclass(frozen=True, kw_only=True)
class Forms:
    """How one database wants the values whose text is not the same everywhere.

    between: what stands between date and time; zone: what follows a timestamp with a zone, always of UTC.
    boolean, binary: as plain values, or as these texts. nan: whether NaN is stored as text, beside numbers.
    widens_floats: whether a float is stored as the double that is exactly it, however it is written.
    """

    between: Literal["T", " "] = " "
    zone: str = ""
    booleans: tuple[str, str] | None = None
    hexadecimal: str | None = None
    nan_as_text: bool = False
    widens_floats: bool = False
    plain_decimals: bool = False


ISO = Forms(between="T", zone="Z", nan_as_text=True, plain_decimals=True)


def arrays(table: pa.Table, known: Sequence[ResultColumn], forms: Forms) -> list[Any]:
    """The columns of `table` as Arrow arrays of numbers, texts, booleans and bytes."""
    return [_plain(table.column(at).combine_chunks(), column, forms) for at, column in enumerate(known)]


def rows(table: pa.Table, known: Sequence[ResultColumn], forms: Forms) -> list[tuple[Any, ...]]:
    """The rows of `table` as plain values: int, float, str, bytes, bool, None."""
    values = [array.to_pylist() for array in arrays(table, known, forms)]
    if forms.nan_as_text:
        for at, column in enumerate(known):
            if column.kind in ("float", "double"):
                # A database takes NaN for NULL, or refuses it; as text it stays what it is.
                values[at] = ["NaN" if value != value else value for value in values[at]]
    return list(zip(*values, strict=True))


def texts(table: pa.Table, known: Sequence[ResultColumn], forms: Forms) -> list[Any]:
    """The columns of `table` as Arrow arrays of text; NULL stays NULL."""
    import pyarrow as pa

    return [_text(array, column, forms).cast(pa.large_string()) for array, column in _with(table, known, forms)]


def lines(table: pa.Table, known: Sequence[ResultColumn], forms: Forms) -> memoryview:
    r"""The rows as lines of text with tabs between, NULL as `\N`: what COPY and LOAD DATA read by themselves."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = [
        _escaped(array) if column.kind in ("text", "json", "binary") else array
        for array, column in zip(texts(table, known, forms), known, strict=True)
    ]
    tab, end, nothing = (pa.scalar(text, pa.large_string()) for text in ("\t", "\n", ""))
    null = "\\N"
    joined = pc.binary_join_element_wise(*columns, tab, null_handling="replace", null_replacement=null)
    whole = pc.binary_join_element_wise(joined, end, nothing)
    offsets, data = whole.buffers()[1:3]
    if data is None:
        return memoryview(b"")
    first, last = (int.from_bytes(memoryview(offsets)[8 * at : 8 * at + 8], "little") for at in _ends(whole))
    return memoryview(data)[first:last]


def _ends(array: Any) -> tuple[int, int]:
    return array.offset, array.offset + len(array)


def _escaped(array: Any) -> Any:
    import pyarrow.compute as pc

    for mark, escape in _ESCAPES:
        if pc.any(pc.match_substring(array, mark)).as_py():
            array = pc.replace_substring(array, mark, escape)
    return array


def _with(table: pa.Table, known: Sequence[ResultColumn], forms: Forms) -> list[tuple[Any, ResultColumn]]:
    return list(zip(arrays(table, known, forms), known, strict=True))


def _text(array: Any, column: ResultColumn, forms: Forms) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.kind == "boolean":
        yes, no = forms.booleans or ("1", "0")
        return pc.if_else(array, pa.scalar(yes), pa.scalar(no))
    if column.kind == "binary":
        mark = forms.hexadecimal or ""
        return pa.array([None if value is None else mark + value.hex() for value in array.to_pylist()], pa.string())
    return array


def _plain(array: Any, column: ResultColumn, forms: Forms) -> Any:
    import pyarrow as pa

    convert: Mapping[Kind, Any] = {
        "date": lambda: array.cast(pa.string()),
        "timestamp": lambda: _moments(array, forms, forms.zone),
        "timestamp_ntz": lambda: _moments(array, forms, ""),
        "decimal": lambda: _decimals(array, forms),
        "float": lambda: array.cast(pa.float64()) if forms.widens_floats else array,
    }
    return convert[column.kind]() if column.kind in convert else array


def _moments(array: Any, forms: Forms, zone: str) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    found = array.cast(pa.timestamp("us")).cast(pa.string())
    if forms.between != " ":
        found = pc.replace_substring(found, " ", forms.between)
    return pc.binary_join_element_wise(found, pa.scalar(zone), "") if zone else found


def _decimals(array: Any, forms: Forms) -> Any:
    import pyarrow as pa

    if not forms.plain_decimals:
        return array.cast(pa.string())
    # Arrow's own text turns to exponents for small numbers; equal keys must have equal texts.
    return pa.array([None if value is None else f"{value:f}" for value in array.to_pylist()], pa.string())
