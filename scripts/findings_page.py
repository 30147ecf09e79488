"""The page of findings: its headings come from the catalogue, what stands below each is written by hand."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.findings import CATALOGUE, CODES, Code

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "findings.md"
_HEADING = re.compile(r"^(?=##+ )", re.MULTILINE)
_CODE = re.compile(r"### (HR\d{3})\b")


def page(text: str) -> str:
    """The page as it should be: a heading for each code of the catalogue, in order, with the text that it had."""
    parts = _HEADING.split(text)
    parts = [_rename(part) for part in parts]
    for code in CODES:
        if not any(_of(part) == code.code for part in parts):
            parts.insert(_place(parts, code.code), f"### {heading(code)}\n\n")
    return "".join(parts)


def heading(code: Code) -> str:
    """The heading of a code on the page."""
    weight = "" if code.severities == ("error",) else f" ({' or '.join(code.severities)})"
    return f"{code.code}: {code.title}{weight}"


def _of(part: str) -> str | None:
    """The code that a part of the page is about."""
    match = _CODE.match(part)
    return match[1] if match else None


def _rename(part: str) -> str:
    code = _of(part)
    if code is None:
        return part
    if code not in CATALOGUE:
        raise SystemExit(f"{PAGE.name} describes {code}, which is not in src/headrace/findings.py")
    return f"### {heading(CATALOGUE[code])}\n{part.partition(chr(10))[2]}"


def _place(parts: list[str], code: str) -> int:
    """Behind the next smaller code of the same hundred, or in front of the next larger one, or at the end."""
    places = ((_of(part), at) for at, part in enumerate(parts))
    hundred = [(other, at) for other, at in places if other and _section_of(other) == _section_of(code)]
    smaller = [at for other, at in hundred if other < code]
    larger = [at for _, at in hundred] or [len(parts)]
    return smaller[-1] + 1 if smaller else larger[0]


def _section_of(code: str) -> str:
    """The section that a code belongs to; the last ten are Headrace's own."""
    return code[:4] if code.startswith("HR99") else code[:3]
