"""Schemas as Spark's texts, `id BIGINT, at TIMESTAMP`, read and judged without a JVM."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from headrace.contract import OptionError
from headrace.errors import nearest
from headrace.spark.sql_tokens import NOTHING, Token, tokens

# Spark's words for its types, and what it calls each in its JSON.
SIMPLE = {
    **{name: name for name in ("boolean", "float", "double", "date", "timestamp", "timestamp_ntz", "string", "binary")},
    **dict.fromkeys(("tinyint", "byte"), "byte"),
    **dict.fromkeys(("smallint", "short"), "short"),
    **dict.fromkeys(("int", "integer"), "integer"),
    **dict.fromkeys(("bigint", "long"), "long"),
    "real": "float",
    "timestamp_ltz": "timestamp",
    **dict.fromkeys(("void", "null"), "void"),
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
_EXAMPLES = {"array": "ARRAY<STRING>", "map": "MAP<STRING, BIGINT>", "struct": "STRUCT<id: BIGINT>"}
_INTERVALS = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")
_AFTER_TYPE = ("COLLATE", "WITH", "WITHOUT", *_INTERVALS)
MOST_DIGITS, MOST_DEPTH = 38, 100


class SchemaError(ValueError):
    """A text is not a schema: `what` is wrong with it, as a predicate, and the `fix`."""

    def __init__(self, what: str, fix: str) -> None:
        self.what, self.fix = what, fix
        super().__init__(f"{what}; {fix}")


def columns(text: str) -> list[dict[str, Any]]:
    """Read the fields of a schema, as Spark's JSON has them; raises SchemaError."""
    parser = _Parser(text)
    whole = parser.peek().keyword == "STRUCT" and parser.peek(1).text == "<"
    fields = parser.type("")["fields"] if whole else parser.fields("", end="")
    parser.finish()
    return list(fields)


def problems(text: str) -> Iterator[OptionError]:
    """Say what is wrong with a connector's option `schema`."""
    try:
        columns(text)
    except SchemaError as error:
        yield OptionError(code="HR123", what=f"its schema cannot be read: {error.what}", fix=error.fix)


def with_not_null(text: str, names: Collection[str]) -> str:
    """Return a schema in which the columns of these names are NOT NULL; the same text where it is not a plain list."""
    depth, starts, parts = 0, 0, list[tuple[int, list[Token]]]()
    own: list[Token] = []
    for token in [*tokens(text), Token(",", "other", 0, len(text) + 1)]:
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(token.text, 0) if token.kind == "other" else 0
        if token.text == "," and not depth:
            parts.append((token.end - 1, own))
            own = []
        elif not depth:
            own.append(token)
    written = ""
    for end, column in parts:
        keywords = [token.keyword for token in column]
        if column and column[0].text in names and "NOT" not in keywords[1:]:
            at = next(
                (before.end for before, word in zip(column, keywords[1:], strict=False) if word == "COMMENT"), end
            )
            written, starts = f"{written}{text[starts:at].rstrip()} NOT NULL", at
        written, starts = written + text[starts : end + 1], end + 1
    return written


def data_type(text: str) -> Any:
    """Read the type, or the schema, that `text` names, as Spark's JSON; raises SchemaError."""
    parser = _Parser(text)
    first, second = parser.peek(), parser.peek(1)
    ends = second.kind == "end" or second.text in ("<", "(") or second.keyword in _AFTER_TYPE
    is_type = first.keyword.lower() in (*SIMPLE, *SIZED, *NESTED, "interval") and ends
    if not is_type and second.kind == "end" and first.kind == "word":
        raise _unknown_type(first.text, "")
    result = parser.type("") if is_type else {"type": "struct", "fields": parser.fields("", end="")}
    parser.finish()
    return result


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens = tokens(text)
        self.at = self.depth = 0

    def peek(self, ahead: int = 0) -> Token:
        place = self.at + ahead
        return self.tokens[place] if place < len(self.tokens) else NOTHING

    def take(self) -> Token:
        token = self.peek()
        self.at += 1
        return token

    def takes(self, *words: str) -> bool:
        """Take the next token if it is one of these keywords or signs."""
        token = self.peek()
        fits = token.keyword in words or (token.kind == "other" and token.text in words)
        self.at += fits
        return fits

    def require(self, word: str, what: str, fix: str) -> None:
        if not self.takes(word):
            raise SchemaError(what, fix)

    def finish(self) -> None:
        rest = self.peek()
        if rest.kind != "end":
            raise SchemaError(f"'{rest.text}' stands where the text should end", "remove it, or put a comma before it")

    def fields(self, inside: str, *, end: str) -> list[dict[str, Any]]:
        """Read columns up to the sign `end`; `inside` is the path of the struct that they are in."""
        result: list[dict[str, Any]] = []
        whose = f"in '{inside}', " if inside else ""
        while self.peek().kind != "end" and self.peek().text != end:
            field = self.field(inside)
            if field["name"].lower() in (other["name"].lower() for other in result):
                fix = "name each column once; Spark does not distinguish capital letters from small ones"
                raise SchemaError(f"{whose}the column '{field['name']}' stands there twice", fix)
            result.append(field)
            if not self.takes(","):
                if (after := self.peek()).kind != "end" and after.text != end:
                    fault = f"'{after.text}' follows the type of the column '{field['name']}'"
                    raise SchemaError(fault, "put a comma between two columns, and brackets around a type's size only")
                return result
        if result:
            raise SchemaError(f"{whose}a comma ends it", "remove the comma, or write the column that follows")
        if not end:
            raise SchemaError("it names no column", "write columns and types: id BIGINT, at TIMESTAMP")
        return result

    def field(self, inside: str) -> dict[str, Any]:
        name, path = self.column_name(inside)
        kind = self.type(path)
        nullable, metadata = True, {}
        while True:
            if self.takes("NOT"):
                self.require("NULL", f"NOT without NULL follows the column '{path}'", "write NOT NULL")
                nullable = False
            elif self.takes("COMMENT"):
                comment = self.take()
                if comment.kind != "text":
                    raise SchemaError(f"the comment of the column '{path}' is not text", "write it in single quotes")
                metadata = {"comment": comment.text[1:-1]}
            elif self.takes("DEFAULT", "GENERATED"):
                while self.peek().kind != "end" and self.peek().text != ",":
                    self.take()
            else:
                return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}

    def column_name(self, inside: str) -> tuple[str, str]:
        """Read a column's name, which a type follows; returns it with its path."""
        token = self.take()
        name = token.text
        if token.kind not in ("word", "quoted") or not name:
            place = f"'{name}'" if name else "nothing"
            raise SchemaError(
                f"{place} stands where a column's name should", "write columns as: id BIGINT, at TIMESTAMP"
            )
        path = f"{inside}.{name}" if inside else name
        after = self.peek()
        if after.kind == "other" and after.text not in (":", ",", ">", "<") and not after.text[0].isdigit():
            fix = f"write a name with such a character in backticks: `{name}{after.text}...`"
            raise SchemaError(f"the column name '{name}' is followed by '{after.text}'", fix)
        self.takes(":")
        if self.peek().text == "<" and not path.count("."):
            place = f"the type {name.upper()} stands where a column's name should"
            raise SchemaError(place, f"write name {name.upper()}<...>")
        if self.peek().kind == "end" or self.peek().text in (",", ">"):
            raise SchemaError(f"the column '{path}' has no type", f"write one after it, as: {name} STRING")
        return name, path

    def type(self, path: str) -> Any:
        if self.depth >= MOST_DEPTH:
            raise SchemaError(f"its types are nested more than {MOST_DEPTH} deep", "read the inner ones as a STRING")
        self.depth += 1
        token = self.take()
        word = token.keyword.lower()
        result: Any
        if word in NESTED:
            result = self.read_nested(word, path)
        elif word in SIZED:
            result = self.read_sized(word, path)
        elif word == "interval":
            result = self.interval()
        elif word in SIMPLE:
            result = self.simple(token, path)
        else:
            raise _unknown_type(token.text, path)
        self.depth -= 1
        return result

    def simple(self, token: Token, path: str) -> str:
        word = token.keyword.lower()
        if self.peek().text == "(" and self.peek().kind == "other":
            fix = f"write {token.text} alone" + (", or VARCHAR(n)" if word == "string" else "")
            raise SchemaError(f"the type {token.text}{_of(path)} takes no size", fix)
        if word == "string" and self.takes("COLLATE"):
            return f"string collate {self.take().text}"
        if word == "timestamp" and self.peek().keyword in ("WITH", "WITHOUT"):
            is_local = self.take().keyword == "WITH"
            self.takes("LOCAL")
            for part in ("TIME", "ZONE"):
                self.require(part, f"TIMESTAMP{_of(path)} is not complete", "write TIMESTAMP or TIMESTAMP_NTZ")
            return "timestamp" if is_local else "timestamp_ntz"
        return SIMPLE[word]

    def read_nested(self, word: str, path: str) -> dict[str, Any]:
        whose, example = f"{word.upper()}{_of(path)}", _EXAMPLES[word]
        self.require("<", f"{whose} does not say of what", f"write for example {example}")
        result: dict[str, Any] = {"type": word}
        if word == "array":
            result |= {"elementType": self.type(path), "containsNull": True}
        elif word == "map":
            result["keyType"] = self.type(path)
            self.require(",", f"{whose} has one type, and needs two", f"write for example {example}")
            result |= {"valueType": self.type(path), "valueContainsNull": True}
        else:
            result["fields"] = self.fields(path, end=">")
        self.require(">", f"the bracket < of {whose} is not closed", f"close it: {example}")
        return result

    def read_sized(self, word: str, path: str) -> str:
        whose = f"{word.upper()}{_of(path)}"
        numbers = self.sizes(word, whose) if self.takes("(") else []
        if word in ("char", "character", "varchar"):
            if len(numbers) != 1 or not numbers[0]:
                raise SchemaError(f"{whose} needs one length", "write STRING, or VARCHAR(80)")
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

    def sizes(self, word: str, whose: str) -> list[int]:
        numbers: list[int] = []
        while not numbers or self.takes(","):
            number = self.take().text
            if not number.isdigit() and word not in ("geometry", "geography"):
                raise SchemaError(f"the size of {whose} is '{number}'", "write a whole number")
            numbers.append(int(number) if number.isdigit() else 0)
        self.require(")", f"the bracket ( of {whose} is not closed", "close it with )")
        return numbers

    def interval(self) -> str:
        if self.peek().keyword not in _INTERVALS:
            return "interval"
        first = self.take().text.lower()
        return f"interval {first} to {self.take().text.lower()}" if self.takes("TO") else f"interval {first}"


def _unknown_type(text: str, path: str) -> SchemaError:
    in_spark = ELSEWHERE.get(text.lower())
    near = nearest(text.lower(), (*SIMPLE, *SIZED[:7], *NESTED)).upper().replace("DID YOU MEAN", "did you mean")
    fix = f"write {in_spark}" if in_spark else near.replace(" OR ", " or ").replace("KNOWN", "known")
    return SchemaError(f"the type '{text}'{_of(path)} is not one of Spark's", fix)


def _of(path: str) -> str:
    return f" of the column '{path}'" if path else ""


def type_name(kind: Any) -> str:
    """Write a type of Spark as a schema does; names inside it keep their case."""
    text = str(kind.simpleString())
    return text if "<" in text else text.upper()
