"""Schemas as Spark's texts, `id BIGINT, at TIMESTAMP`, read and judged without a JVM."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.contract import OptionError
from headrace.errors import nearest

_TOKEN = re.compile(
    r"""(?P<skip>\s+ | --[^\n]* | /\*.*?\*/)
      | (?P<text>'(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*")
      | (?P<quoted>`(?:[^`]|``)*`)
      | (?P<word>\w+)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
# Spark's words for its types, and what it calls each in its JSON.
SIMPLE = {
    "boolean": "boolean",
    "tinyint": "byte",
    "byte": "byte",
    "smallint": "short",
    "short": "short",
    "int": "integer",
    "integer": "integer",
    "bigint": "long",
    "long": "long",
    "float": "float",
    "real": "float",
    "double": "double",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ltz": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "string": "string",
    "binary": "binary",
    "void": "void",
    "null": "void",
    "variant": "variant",
}
SIZED = ("char", "character", "varchar", "decimal", "dec", "numeric", "time", "geometry", "geography")
NESTED = ("array", "map", "struct")
# What other databases call them.
ELSEWHERE = {
    **dict.fromkeys(("text", "clob", "str", "nvarchar", "uuid", "enum"), "STRING"),
    **dict.fromkeys(("json", "jsonb"), "STRING, or VARIANT"),
    "object": "STRUCT<...>",
    "dict": "MAP<STRING, ...>",
    "list": "ARRAY<...>",
    "number": "DOUBLE, or DECIMAL(10, 2)",
    "money": "DECIMAL(19, 4)",
    **dict.fromkeys(("datetime", "timestamptz"), "TIMESTAMP"),
    "int2": "SMALLINT",
    **dict.fromkeys(("int4", "int32", "serial"), "INT"),
    **dict.fromkeys(("int8", "int64", "uint", "unsigned", "bigserial"), "BIGINT"),
    "float4": "FLOAT",
    **dict.fromkeys(("float8", "float64"), "DOUBLE"),
    "bool": "BOOLEAN",
    **dict.fromkeys(("bytes", "bytea", "blob"), "BINARY"),
}
_INTERVALS = {"year": 0, "month": 1, "day": 2, "hour": 3, "minute": 4, "second": 5}
MOST_DIGITS, MOST_DEPTH = 38, 100


class SchemaError(ValueError):
    """A text is no schema: `what` is wrong with it, as a predicate, and the `fix`."""

    def __init__(self, what: str, fix: str) -> None:
        self.what, self.fix = what, fix
        super().__init__(f"{what}; {fix}")


@dataclass(frozen=True)
class _Token:
    text: str
    kind: str

    @property
    def word(self) -> str:
        return self.text.lower() if self.kind == "word" else ""


def columns(text: str) -> list[dict[str, Any]]:
    """The fields of a schema, as Spark's JSON has them; raises SchemaError."""
    parser = _Parser(text)
    if parser.peek().word == "struct" and parser.peek(1).text == "<":
        found = parser.type("")["fields"]
    else:
        found = parser.fields("", end="")
    parser.finish()
    return list(found)


def problems(text: str) -> Iterator[OptionError]:
    """What is wrong with a connector's option `schema`."""
    try:
        columns(text)
    except SchemaError as error:
        yield OptionError(code="HR123", what=f"its schema cannot be read: {error.what}", fix=error.fix)


def data_type(text: str) -> Any:
    """The type, or the schema, that `text` names, as Spark's JSON; raises SchemaError."""
    parser = _Parser(text)
    one = parser.peek().word in (*SIMPLE, *SIZED, *NESTED, "interval") and (
        parser.peek(1).kind == "end" or parser.peek(1).text in ("<", "(") or parser.peek(1).word in _AFTER_TYPE
    )
    if not one and parser.peek(1).kind == "end" and parser.peek().kind == "word":
        raise _unknown_type(parser.peek().text, "")
    found = parser.type("") if one else {"type": "struct", "fields": parser.fields("", end="")}
    parser.finish()
    return found


_AFTER_TYPE = ("collate", "with", "without", *_INTERVALS)


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens: list[_Token] = []
        self.at = self.depth = 0
        for match in _TOKEN.finditer(text):
            kind, value = str(match.lastgroup), match.group()
            if kind == "quoted":
                self.tokens.append(_Token(value[1:-1].replace("``", "`"), kind))
            elif kind != "skip":
                self.tokens.append(_Token(value, kind))

    def peek(self, ahead: int = 0) -> _Token:
        place = self.at + ahead
        return self.tokens[place] if place < len(self.tokens) else _Token("", "end")

    def take(self) -> _Token:
        token = self.peek()
        self.at += 1
        return token

    def takes(self, *words: str) -> bool:
        token = self.peek()
        found = token.word in words or (token.kind == "other" and token.text in words)
        self.at += found
        return found

    def finish(self) -> None:
        left = self.peek()
        if left.kind != "end":
            raise SchemaError(f"'{left.text}' stands where the text should end", "remove it, or put a comma before it")

    def fields(self, inside: str, *, end: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        names: dict[str, str] = {}
        whose = f"in '{inside}', " if inside else ""
        while True:
            name = self.peek()
            if name.kind == "end" or name.text == end:
                if not found and not end:
                    raise SchemaError("it names no column", "write columns and types: id BIGINT, at TIMESTAMP")
                if found:
                    raise SchemaError(f"{whose}a comma ends it", "remove the comma, or write the column that follows")
                return found
            field = self.field(inside)
            folded = str(field["name"]).lower()
            if folded in names:
                fix = "name each column once; Spark does not distinguish capital letters from small ones"
                raise SchemaError(f"{whose}the column '{field['name']}' stands there twice", fix)
            names[folded] = folded
            found.append(field)
            if not self.takes(","):
                if (follows := self.peek()).kind != "end" and follows.text != end:
                    what = f"'{follows.text}' follows the type of the column '{field['name']}'"
                    raise SchemaError(what, "put a comma between two columns, and brackets around a type's size only")
                return found

    def field(self, inside: str) -> dict[str, Any]:
        token = self.take()
        if token.kind not in ("word", "quoted") or not token.text:
            said = f"'{token.text}'" if token.text else "nothing"
            raise SchemaError(
                f"{said} stands where a column's name should", "write columns as: id BIGINT, at TIMESTAMP"
            )
        name = token.text
        path = f"{inside}.{name}" if inside else name
        following = self.peek()
        if following.kind == "other" and following.text not in (":", ",", ">", "<"):
            fix = f"write a name with such a character in backticks: `{name}{following.text}...`"
            raise SchemaError(f"the column name '{name}' is followed by '{following.text}'", fix)
        self.takes(":")
        if self.peek().text == "<" and not path.count("."):
            what = f"the type {name.upper()} stands where a column's name should"
            raise SchemaError(what, f"write name {name.upper()}<...>")
        if self.peek().kind == "end" or self.peek().text in (",", ">"):
            raise SchemaError(f"the column '{path}' has no type", f"write one after it, as: {name} STRING")
        found = self.type(path)
        nullable, metadata = True, {}
        while True:
            if self.takes("not"):
                if not self.takes("null"):
                    raise SchemaError(f"NOT without NULL follows the column '{path}'", "write NOT NULL")
                nullable = False
            elif self.takes("comment"):
                comment = self.take()
                if comment.kind != "text":
                    raise SchemaError(f"the comment of the column '{path}' is no text", "write it in single quotes")
                metadata = {"comment": comment.text[1:-1]}
            elif self.takes("default", "generated"):
                while self.peek().kind != "end" and self.peek().text != ",":
                    self.take()
            else:
                break
        return {"name": name, "type": found, "nullable": nullable, "metadata": metadata}

    def type(self, path: str) -> Any:
        self.depth += 1
        try:
            if self.depth > MOST_DEPTH:
                what = f"its types are nested more than {MOST_DEPTH} deep"
                raise SchemaError(what, "read the inner ones as a STRING")
            return self._type(path)
        finally:
            self.depth -= 1

    def _type(self, path: str) -> Any:
        token = self.take()
        word = token.word
        if word in NESTED:
            return self.nested(word, path)
        if word in SIZED:
            return self.sized(word, path)
        if word == "interval":
            return self.interval()
        if word not in SIMPLE:
            raise _unknown_type(token.text, path)
        if self.peek().text == "(" and self.peek().kind == "other":
            fix = f"write {token.text} alone" + (", or VARCHAR(n)" if word == "string" else "")
            raise SchemaError(f"the type {token.text}{_of(path)} takes no size", fix)
        if word == "string" and self.takes("collate"):
            return f"string collate {self.take().text}"
        if word == "timestamp" and self.peek().word in ("with", "without"):
            local = self.take().word == "with"
            self.takes("local")
            if not (self.takes("time") and self.takes("zone")):
                raise SchemaError(f"TIMESTAMP{_of(path)} is not complete", "write TIMESTAMP or TIMESTAMP_NTZ")
            return "timestamp" if local else "timestamp_ntz"
        return SIMPLE[word]

    def nested(self, word: str, path: str) -> Any:
        if word == "struct" and self.peek().text == "<" and self.peek(1).text == ">":
            self.at += 2
            return {"type": "struct", "fields": []}
        example = {"array": "ARRAY<STRING>", "map": "MAP<STRING, BIGINT>", "struct": "STRUCT<id: BIGINT>"}[word]
        if not self.takes("<"):
            raise SchemaError(f"{word.upper()}{_of(path)} does not say of what", f"write for example {example}")
        found: dict[str, Any] = {"type": word}
        if word == "array":
            found |= {"elementType": self.type(path), "containsNull": True}
        elif word == "map":
            found["keyType"] = self.type(path)
            if not self.takes(","):
                raise SchemaError(f"MAP{_of(path)} has one type, and needs two", f"write for example {example}")
            found |= {"valueType": self.type(path), "valueContainsNull": True}
        else:
            found["fields"] = self.fields(path, end=">")
        if not self.takes(">"):
            raise SchemaError(f"the bracket < of {word.upper()}{_of(path)} is not closed", f"close it: {example}")
        return found

    def sized(self, word: str, path: str) -> Any:
        numbers: list[int] = []
        if self.takes("("):
            while True:
                number = self.take().text
                if not number.isdigit() and word not in ("geometry", "geography"):
                    what = f"the size of {word.upper()}{_of(path)} is '{number}'"
                    raise SchemaError(what, "write a whole number")
                numbers.append(int(number) if number.isdigit() else 0)
                if not self.takes(","):
                    break
            if not self.takes(")"):
                raise SchemaError(f"the bracket ( of {word.upper()}{_of(path)} is not closed", "close it with )")
        if word in ("char", "character", "varchar"):
            if len(numbers) != 1 or not numbers[0]:
                raise SchemaError(f"{word.upper()}{_of(path)} needs one length", "write STRING, or VARCHAR(80)")
            return f"{'varchar' if word == 'varchar' else 'char'}({numbers[0]})"
        if word == "time":
            return f"time({numbers[0] if numbers else 6})"
        if word in ("geometry", "geography"):
            return word
        precision, scale, *more = (*(numbers or [10]), *([0] if len(numbers) < 2 else []))
        if more or not 0 < precision <= MOST_DIGITS or scale > precision:
            fix = f"write DECIMAL(digits, digits after the point), with {MOST_DIGITS} digits at most"
            raise SchemaError(f"{word.upper()}({', '.join(map(str, numbers))}){_of(path)} is not a DECIMAL", fix)
        return f"decimal({precision},{scale})"

    def interval(self) -> str:
        if self.peek().word not in _INTERVALS:
            return "interval"
        first = self.take().word
        return f"interval {first} to {self.take().word}" if self.takes("to") else f"interval {first}"


def _unknown_type(text: str, path: str) -> SchemaError:
    known = ELSEWHERE.get(text.lower())
    near = nearest(text.lower(), (*SIMPLE, *SIZED[:7], *NESTED)).upper().replace("DID YOU MEAN", "did you mean")
    fix = f"write {known}" if known else near.replace(" OR ", " or ").replace("KNOWN", "known")
    return SchemaError(f"the type '{text}'{_of(path)} is not one of Spark's", fix)


def _of(path: str) -> str:
    return f" of the column '{path}'" if path else ""


def type_name(kind: Any) -> str:
    """A type as a schema is written; names inside it keep their case."""
    text = str(kind.simpleString())
    return text if "<" in text else text.upper()
