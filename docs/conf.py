"""The site of these pages, by `make docs-site`. Its menu comes from the lists of links in index.md."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent))
from drawings import draw
from python_api import describe_objects

project = "Headrace"
html_title = "Headrace"
extensions = ["myst_parser", "sphinx_copybutton"]
myst_enable_extensions = ["colon_fence", "fieldlist"]
myst_heading_anchors = 4
html_theme = "furo"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_static_path = ["site"]
html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).parent / "site" / "scorer.js")
pygments_dark_style = "github-dark"
# One parameter a line where a signature is long; the headings of a page are its contents.
maximum_signature_line_length = 72
add_module_names = False
toc_object_entries = False
# Blocks of a terminal begin with "$ ", which is not copied.
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True
copybutton_exclude = ".linenos, .gp, .go"

SECTION = re.compile(r"^## (?P<title>.+)\n+(?P<items>(?:- .*\n(?:  .*\n)*)+)", re.MULTILINE)
LINK = re.compile(r"^- \[[^]]+\]\((?P<page>[^)#]+)\.md\)", re.MULTILINE)


def add_menu(app: Sphinx, page: str, source: list[str]) -> None:
    """Append the menu: each section of the first page with a list of links is one part; connectors come below."""
    if page in ("reference/sources", "reference/sinks"):
        source[0] += f"\n```{{toctree}}\n:hidden:\n:glob:\n\n{Path(page).name}/*\n```\n"
    for section in SECTION.finditer(source[0]) if page == "index" else ():
        pages = "\n".join(link["page"] for link in LINK.finditer(section["items"]))
        source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {section['title']}\n\n{pages}\n```\n"


def point_out_of_docs(app: Sphinx, page: str, source: list[str]) -> None:
    """Write links to files of the repository that are no page as code: the site has no copy of them."""
    here = Path(app.srcdir, page).parent

    def as_code(link: re.Match[str]) -> str:
        target = (here / link["target"].partition("#")[0]).resolve()
        return link[0] if target.is_relative_to(Path(app.srcdir).resolve()) else link["label"]

    source[0] = re.sub(r"\[(?P<label>[^]]+)\]\((?P<target>(?:\.\./)[^)]+)\)", as_code, source[0])


def describe_python(app: Sphinx, page: str, source: list[str]) -> None:
    """Replace signatures and tables of the Python API, which GitHub shows as they are."""
    if page == "reference/python-api":
        source[0] = describe_objects(source[0])


def draw_mermaid(app: Sphinx, page: str, source: list[str]) -> None:
    """Replace the drawings that GitHub makes of a text."""
    source[0] = draw(source[0])


def setup(app: Sphinx) -> None:
    """Register the steps with Sphinx."""
    app.connect("source-read", add_menu)
    app.connect("source-read", point_out_of_docs)
    app.connect("source-read", draw_mermaid)
    app.connect("source-read", describe_python)
