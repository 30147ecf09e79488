"""How results show themselves in a notebook: HTML without scripts, in colours that a light and a dark page take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, TypeVar

from headrace.redaction import redacted

Item = TypeVar("Item")
_LINE = "1px solid rgba(128,128,128,.35)"
_TABLE = "border-collapse:collapse;margin:.3em 0;color:inherit;background:transparent"
_HEAD = f"text-align:left;padding:.2em .7em;border-bottom:{_LINE};background:rgba(128,128,128,.14);color:inherit"
_CELL = f"text-align:left;padding:.2em .7em;border-bottom:{_LINE};vertical-align:top;color:inherit"
# Each is legible on white and on black.
_COLOURS = {
    "#2f9e5b": ("equal", "same", "running", "finished", "ok", "exactly once"),
    "#c77d00": ("open", "late", "safe", "forward", "warning", "undecided", "paused", "restarting", "at least once"),
    "#d9534f": ("mismatch", "rebuild", "forbidden", "failed", "error"),
}
_COLOUR_OF = {word: colour for colour, words in _COLOURS.items() for word in words}
_MOST_ROWS = 50


def table(columns: Sequence[str], rows: Iterable[Iterable[Any]], *, title: str = "") -> str:
    """Return rows below the names of their columns, the first fifty of them."""
    lines = list(rows)
    head = "".join(f'<th style="{_HEAD}">{_text(column)}</th>' for column in columns)
    body = "".join(
        f"<tr>{''.join(f'<td style={chr(34)}{_CELL}{chr(34)}>{_cell(value)}</td>' for value in row)}</tr>"
        for row in lines[:_MOST_ROWS]
    )
    more = f"<div>and {len(lines) - _MOST_ROWS:,} more rows</div>" if len(lines) > _MOST_ROWS else ""
    top = f"<div><b>{_text(title)}</b></div>" if title else ""
    return f'{top}<table style="{_TABLE}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}'


def records(facts: Iterable[Mapping[str, Any]], *, title: str = "") -> str:
    """Return mappings as a table: a column for each name of which one has a value."""
    rows = list(facts)
    names = [
        name for name in dict.fromkeys(name for row in rows for name in row) if any(_has(row.get(name)) for row in rows)
    ]
    return table([_words(name) for name in names], ([row.get(name) for name in names] for row in rows), title=title)


def page(facts: Mapping[str, Any], *, title: str) -> str:
    """Return plain data: single values as one table, and each list of records as another below its name."""
    single = {
        name: value for name, value in facts.items() if _has(value) and not _is_list(value) and name != "sentence"
    }
    lists = {name: value for name, value in facts.items() if _is_list(value)}
    parts = [f"<div><b>{_text(title)}</b></div>"]
    if single:
        rows = "".join(
            f'<tr><th style="{_HEAD}">{_text(_words(name))}</th><td style="{_CELL}">{_cell(value)}</td></tr>'
            for name, value in single.items()
        )
        parts.append(f'<table style="{_TABLE}"><tbody>{rows}</tbody></table>')
    parts += [records(value, title=_words(name)) for name, value in lists.items()]
    return "".join(parts)


class Listing(list[Item]):
    """A list of results that a notebook shows as one table."""

    def _repr_html_(self) -> str:
        return records([item.as_dict() for item in self])  # type: ignore[attr-defined]


def _has(value: Any) -> bool:
    return value is not None and value != "" and value != () and value != [] and value != {}


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _cell(value: Any) -> str:
    text = _text(_plain(value))
    colour = _COLOUR_OF.get(text)
    return f'<span style="color:{colour};font-weight:600">{text}</span>' if colour else text


def _plain(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_plain(item)}" for name, item in value.items() if _has(item))
    if isinstance(value, list | tuple):
        return "; ".join(map(_plain, value))
    return str(value)


def _text(value: str) -> str:
    return escape(redacted(value)).replace("\n", "<br>")
