"""How results show themselves in a notebook: HTML without scripts, in colours that a light and a dark page take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, TypeVar

from headrace.redaction import redacted

Item = TypeVar("Item")
# The class three times: the rules of JupyterLab for tables have the weight of two.
_STYLE = """<style>.headrace.headrace.headrace table{border-collapse:collapse;margin:.3em 0;background:none;
color:inherit}
.headrace.headrace.headrace :is(th,td){padding:.2em .7em;border-bottom:1px solid rgba(128,128,128,.35);
vertical-align:top;color:inherit;background:none}
.headrace.headrace.headrace th{background:rgba(128,128,128,.14)}</style>"""
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
    return _table(columns, rows, title, lambda value: _text(_plain(value)))


def _table(columns: Sequence[str], rows: Iterable[Iterable[Any]], title: str, cell: Callable[[Any], str]) -> str:
    lines = list(rows)
    head = _line(("th", _text(column)) for column in columns)
    body = "".join(_line(("td", cell(value)) for value in row) for row in lines[:_MOST_ROWS])
    more = f"<div>and {len(lines) - _MOST_ROWS:,} more</div>" if len(lines) > _MOST_ROWS else ""
    return whole(f"{_title(title)}<table><thead>{head}</thead><tbody>{body}</tbody></table>{more}")


def records(facts: Iterable[Mapping[str, Any]], *, title: str = "") -> str:
    """Return mappings as a table: a column for each name of which one has a value; states have their colours."""
    rows = list(facts)
    names = dict.fromkeys(name for row in rows for name in row if _has(row[name]))
    return _table([_words(name) for name in names], ([row.get(name) for name in names] for row in rows), title, _cell)


def page(facts: Mapping[str, Any], *, title: str) -> str:
    """Return plain data: single values as one table, and each list of records as another below its name."""
    lists = {name: rows for name, value in facts.items() if (rows := list(_records_in(value)))}
    single = {name: value for name, value in facts.items() if _has(value) and name not in (*lists, "sentence")}
    lines = "".join(_line([("th", _text(_words(name))), ("td", _cell(value))]) for name, value in single.items())
    tables = (records(rows, title=_words(name)) for name, rows in lists.items())
    return whole("".join([_title(title), f"<table><tbody>{lines}</tbody></table>" if lines else "", *tables]))


def whole(inside: str) -> str:
    """Return a part of a page with its style, which the parts in it share."""
    return f'<div class="headrace">{_STYLE}{inside.replace(_STYLE, "")}</div>'


class Listing(list[Item]):
    """A list of results that a notebook shows as one table."""

    def _repr_html_(self) -> str:
        return records([item.as_dict() for item in self])  # type: ignore[attr-defined]


def _has(value: Any) -> bool:
    return value is not None and value != "" and value != () and value != [] and value != {}


def _records_in(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the records of a list, or of a mapping from names to records."""
    if isinstance(value, list | tuple) and all(isinstance(item, Mapping) for item in value):
        yield from value
    elif isinstance(value, Mapping):
        inner = {name: item if isinstance(item, list | tuple) else [item] for name, item in value.items()}
        if all(isinstance(item, Mapping) for items in inner.values() for item in items):
            yield from ({"": name, **item} for name, items in inner.items() for item in items)


def _line(cells: Iterable[tuple[str, str]]) -> str:
    # JupyterLab removes <style> from a notebook that it does not trust, and aligns such cells to the right.
    return "".join(["<tr>", *(f'<{tag} style="text-align:left">{text}</{tag}>' for tag, text in cells), "</tr>"])


def _title(text: str) -> str:
    return f"<div><b>{_text(text)}</b></div>" if text else ""


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
