"""The page of the Python API as entries of Sphinx: signatures and attributes whose types are links, found by search."""

from __future__ import annotations

import re
from collections.abc import Callable

FUNCTION = re.compile(
    r"^(?P<heading>#{2,3} (?P<name>[\w.]+)\n\n)```python\ndef \w+(?P<signature>.*?): \.\.\.\n```\n"
    r"(?P<text>.*?)(?=^#|^<!--)",
    re.MULTILINE | re.DOTALL,
)
CLASS = re.compile(
    r"^(?P<heading>#{2,3} (?P<name>\w+)\n\n)(?P<text>[^#]*?)\n\| attribute .*\n\|---.*\n(?P<rows>(?:\|.*\n)+)",
    re.MULTILINE,
)
ROW = re.compile(r"^\| `(?P<name>\w+)` \| `(?P<type>.+?)` \| (?P<meaning>.*) \|$", re.MULTILINE)
ERRORS = re.compile(r"^```text\n(?P<tree>HeadraceError .*?)```\n", re.MULTILINE | re.DOTALL)
SECTION = re.compile(r"^\*\*(?P<name>Args|Returns|Yields|Raises)\*\*\n\n(?P<text>(?:(?!\*\*|:::).*\n?)*)", re.MULTILINE)
MODULE_OF = {"Project": "headrace", "Finding": "headrace.errors"}


def describe_objects(markdown: str) -> str:
    """Return the page with its functions, classes and errors as directives of the Python domain."""
    classes = {name: f"{_module_of(name)}.{name}" for name in (match["name"] for match in CLASS.finditer(markdown))}
    types = re.compile(rf"\b(?:results\.)?({'|'.join(classes)})\b")

    def with_links(text: str) -> str:
        return types.sub(lambda match: f"~{classes[match[1]]}", text)

    def as_function(match: re.Match[str]) -> str:
        is_method = match["name"][0].isupper()
        kind, module = ("method", "headrace.results") if is_method else ("function", "headrace")
        signature = with_links(re.sub(r",?\s+(?=\))", "", re.sub(r"\s+", " ", match["signature"])).replace("( ", "("))
        return f"{match['heading']}{_directive(kind, match['name'] + signature, module, _fields(match['text']))}\n"

    def as_class(match: re.Match[str]) -> str:
        inside = match["text"] + "\n"
        for row in ROW.finditer(match["rows"]):
            kind = with_links(row["type"].replace("\\|", "|"))
            inside += _directive("attribute", row["name"], "", row["meaning"], f":type: {kind}\n") + "\n"
        return match["heading"] + _directive("class", match["name"], _module_of(match["name"]), inside, fence="::::")

    def with_targets(match: re.Match[str]) -> str:
        names = re.findall(r"^\W*([A-Z]\w+)", match["tree"], re.MULTILINE)
        targets = (_directive("exception", name, "headrace.errors", "", ":no-typesetting:\n") for name in names)
        return "\n".join([*targets, match[0]])

    steps: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...]
    steps = ((FUNCTION, as_function), (CLASS, as_class), (ERRORS, with_targets))
    for pattern, step in steps:
        markdown = pattern.sub(step, markdown)
    return markdown


def _module_of(name: str) -> str:
    return MODULE_OF.get(name, "headrace.results")


def _directive(kind: str, name: str, module: str, inside: str, options: str = "", fence: str = ":::") -> str:
    options += f":module: {module}\n" if module else ""
    return f"{fence}{{py:{kind}}} {name}\n{options}\n{inside.strip()}\n{fence}\n"


def _fields(text: str) -> str:
    """Return a docstring's sections as a list of fields."""

    def as_fields(match: re.Match[str]) -> str:
        lines = match["text"].strip("\n")
        if match["name"] in ("Returns", "Yields"):
            return f":{match['name'].lower()}: " + lines.replace("\n", "\n  ") + "\n"
        field, prefix = (":param ", "") if match["name"] == "Args" else (":raises ", "~headrace.errors.")
        return re.sub(r"^- `(\w+)`: ", rf"{field}{prefix}\1: ", lines, flags=re.MULTILINE) + "\n"

    return SECTION.sub(as_fields, text)
