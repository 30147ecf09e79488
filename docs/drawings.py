"""Drawings of the site as SVG: GitHub draws Mermaid's texts itself, and a page that is built offline has no Mermaid."""

from __future__ import annotations

import re
import shutil
import subprocess
from html import escape

MERMAID = re.compile(r"^```mermaid\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
NODE = re.compile(r'^\s+(?P<name>\w+)\[\(?"?(?P<label>[^"\])]+)"?\)?\]')
ARROW = re.compile(r"(?P<start>\w+)(?:\[\(.*\)\])? (?:-->|-\. (?P<label>.+?) \.->?) (?P<end>\w+)$")
WIDTH, HEIGHT, LEFT = 640, 160, 56


def draw(markdown: str) -> str:
    """Return a page whose Mermaid blocks are SVG, or text where this machine cannot draw them."""
    return MERMAID.sub(lambda block: _svg(block["text"]) or block[0].replace("mermaid", "text", 1), markdown)


def _svg(text: str) -> str:
    drawn = _chart(text) if text.startswith("xychart-beta") else _graph(text)
    # Markdown takes <svg> for a part of a paragraph, which a browser ends inside of the drawing.
    return drawn and f"<div>\n{drawn}</div>\n"


def _chart(text: str) -> str:
    """Return a line over two axes that begin at 0."""
    title, across = re.findall(r'"(.+)"', text)
    right, top = (int(end) for end in re.findall(r"0 --> (\d+)", text))
    values = [float(value) for value in re.findall(r"[\d.]+", text.partition("line [")[2])]
    step = (WIDTH - LEFT) / (len(values) - 1)
    line = " ".join(f"{LEFT + at * step:.1f},{HEIGHT * (1 - value / top):.1f}" for at, value in enumerate(values))
    return (
        f'<svg class="chart" role="img" viewBox="0 -8 {WIDTH + 8} {HEIGHT + 40}"><title>{escape(title)}</title>'
        f'<polyline points="{LEFT},0 {LEFT},{HEIGHT} {WIDTH},{HEIGHT}"/><polyline class="values" points="{line}"/>'
        f'<text x="{LEFT - 6}" y="8" text-anchor="end">{top}</text>'
        f'<text x="{LEFT - 6}" y="{HEIGHT}" text-anchor="end">0</text>'
        f'<text x="{WIDTH}" y="{HEIGHT + 18}" text-anchor="end">{right} {escape(across)}</text>'
        f'<text x="{LEFT + 8}" y="8">{escape(title)}</text></svg>\n'
    )


def _graph(text: str) -> str:
    """Return boxes and arrows, as Graphviz lays them out; nothing without Graphviz."""
    if not shutil.which("dot"):
        return ""
    lines = ["digraph {", "rankdir=TB; node [shape=box, style=rounded];"]
    for line in text.splitlines():
        if node := NODE.match(line):
            lines.append(f'{node["name"]} [label="{node["label"]}"];')
        if arrow := ARROW.search(line):
            style = f'[style=dashed, label="{arrow["label"]}"]' if arrow["label"] else ""
            lines.append(f"{arrow['start']} -> {arrow['end']} {style};")
    source = "\n".join([*lines, "}"])
    drawn = subprocess.run(["dot", "-Tsvg"], input=source, capture_output=True, text=True, check=True).stdout
    svg = re.sub(r"<!--.*?-->\n?", "", drawn[drawn.index("<svg") :], flags=re.DOTALL)
    svg = svg.replace("<svg ", '<svg class="graph" role="img" aria-label="The rooms and their imports" ', 1)
    # A blank line would end the block of HTML in Markdown.
    return "\n".join(line for line in svg.splitlines() if line.strip()) + "\n"
