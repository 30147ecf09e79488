"""NULL in place of an array or a map of structs, which pyiceberg 0.12 reads and writes as an empty one."""

from __future__ import annotations

from functools import cache, wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


@cache
def keep_nulls() -> None:
    """Let pyiceberg keep them, in this process; where it does by itself, as it will some day, nothing changes."""
    from pyiceberg.io.pyarrow import ArrowProjectionVisitor

    for kind in ("list", "map"):
        setattr(ArrowProjectionVisitor, kind, _keeping(getattr(ArrowProjectionVisitor, kind)))


def _keeping(project: Any) -> Any:
    @wraps(project)
    def kept(self: Any, declared: Any, given: pa.Array | None, *parts: pa.Array | None) -> pa.Array | None:
        made = project(self, declared, given, *parts)
        if made is None or given is None or made.null_count == given.null_count:
            return made
        return with_nulls(made, given)

    return kept


def with_nulls(made: pa.Array, given: pa.Array) -> pa.Array:
    """`made` with the NULLs of `given`, and otherwise the same: its type bears the identities of the fields inside."""
    import pyarrow as pa
    import pyarrow.compute as pc

    valid = pc.and_(given.is_valid(), True).buffers()[1]
    offsets = pc.add(made.offsets, pa.scalar(0, made.offsets.type)).buffers()[1]
    inside = made.values
    if isinstance(made, pa.MapArray):
        inside = pa.StructArray.from_arrays([made.keys, made.items], fields=[made.type.key_field, made.type.item_field])
    return pa.Array.from_buffers(made.type, len(made), [valid, offsets], children=[inside])
