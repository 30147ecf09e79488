"""Write the stub that shows type checkers and editors what each connector takes: `python -m scripts.signatures`.

With `--check` nothing is written; it ends with 1 where the stub in the tree is not what would be written.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from headrace import registry
from headrace.contract import option_type

STUB = Path(__file__).resolve().parent.parent / "src" / "headrace" / "declare" / "signatures.pyi"
HEAD = '''\
"""The options of each connector, written by scripts/signatures.py from the connectors' fields; do not edit."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from headrace.declare.declarations import DeclaredSink, DeclaredSource'''
# What `hr.source` takes in addition to the connector's options.
OF_SOURCES = (
    "watermark: tuple[str, str] | None = None",
    "name: str | None = None",
    "renamed_from: str | Sequence[str] = ()",
)
# Spark's own options are texts; a number or a switch among them is written as one.
TEXTS = "Mapping[str, str | int | float | bool]"


def stub() -> str:
    """The stub as it should be."""
    return "\n\n".join([HEAD, "\n".join(_class("source")), "\n".join(_class("sink"))]) + "\n"


def _class(kind: registry.ConnectorKind) -> Iterator[str]:
    made = f"Declared{kind.capitalize()}"
    yield f"class {kind.capitalize()}s:"
    yield f'    """`hr.{kind}`: a method for each {kind} of this distribution."""\n'
    for name in registry.list_names(kind):
        if registry.connector(kind, name).__module__.startswith("headrace."):
            yield from _method(kind, name, made)
    yield "    # Those of other distributions, whose options are known at run time only."
    yield f"    def __getattr__(self, kind: str) -> Callable[..., {made}]: ..."


def _method(kind: registry.ConnectorKind, name: str, made: str) -> Iterator[str]:
    cls = registry.connector(kind, name)
    by_name = {option.name: option for option in fields(cls)}
    first, *others = [_parameter(cls, by_name[option]) for option in registry.options_of(cls)] or [""]
    named = [*others, *(OF_SOURCES if kind == "source" else ())]
    yield f"    def {name}("
    yield from (
        f"        {parameter}," for parameter in ("self", first, *(("*",) if named else ()), *named) if parameter
    )
    yield f"    ) -> {made}:"
    yield f"{_docstring(cls)}\n"


def _parameter(cls: Any, option: Field[Any]) -> str:
    written = f"{option.name}: {annotation(option_type(cls, option.name))}"
    if option.default is MISSING and option.default_factory is MISSING:
        return written
    default = None if option.default is MISSING else option.default
    return f"{written} = {'...' if option.default is MISSING else _literal(default)}"


def annotation(hint: Any) -> str:
    """The type of an option as source text; what an option takes in place of its own type is named too."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        # `None` stands last, as people write it.
        return " | ".join(dict.fromkeys(map(annotation, sorted(parts, key=lambda part: part is type(None)))))
    if origin is Literal:
        return f"Literal[{', '.join(map(_literal, parts))}]"
    if origin in (tuple, list, Sequence):
        return f"Sequence[{annotation(parts[0])}]"
    if origin is not None and issubclass(origin, Mapping):
        return TEXTS if parts == (str, str) else f"Mapping[{', '.join(map(annotation, parts))}]"
    if hint is type(None):
        return "None"
    if hint is Any or isinstance(hint, type):
        return "Any" if hint is Any else hint.__name__
    raise TypeError(f"no way is known to write the type {hint!r} of an option")


def _literal(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _docstring(cls: type[Any]) -> str:
    """The first paragraph of the class's docstring, without the place in Spark's guide."""
    text = " ".join((inspect.getdoc(cls) or "").split("\n\n")[0].split()).split(" Source:")[0]
    lines = textwrap.wrap(f'"""{text}"""', 112)
    return textwrap.indent("\n".join(lines), " " * 8)


def main(arguments: Sequence[str]) -> int:
    """Write the stub, or check that it is current."""
    made = stub()
    if STUB.exists() and STUB.read_text(encoding="utf-8") == made:
        return 0
    if "--check" in arguments:
        print(f"{STUB} does not say what the connectors take: run python -m scripts.signatures")
        return 1
    STUB.write_text(made, encoding="utf-8")
    print(f"wrote {STUB}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
