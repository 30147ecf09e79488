"""The site of the documentation, as `make docs-site` builds it."""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import headrace
from headrace.errors import Finding
from scripts.reference import VALUES
from tests.docs.blocks import ROOT

pytestmark = pytest.mark.plain


def build(docs: Path, site: Path) -> subprocess.CompletedProcess[str]:
    options = ("--quiet", "--fail-on-warning", "--builder", "html")
    return subprocess.run(
        [sys.executable, "-m", "sphinx", *options, str(docs), str(site)], capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("built") / "site"
    built = build(ROOT / "docs", place)
    assert built.returncode == 0, built.stderr
    return place


def test_the_site_is_built_without_a_warning_and_has_every_page_and_drawing(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        html = (site / page.relative_to(ROOT / "docs")).with_suffix(".html").read_text(encoding="utf-8")
        assert "language-mermaid" not in html
        assert not re.search(r"<p>\s*<svg", html), "a browser ends the paragraph inside of the drawing"
    assert "<polyline" in (site / "how-to" / "operate.html").read_text(encoding="utf-8")
    menu = (site / "index.html").read_text(encoding="utf-8")
    assert 'href="reference/sinks/postgres.html"' in menu
    assert (site / "searchindex.js").stat().st_size > 100_000
    scorer = (ROOT / "docs" / "site" / "scorer.js").read_text(encoding="utf-8")
    assert scorer in (site / "_static" / "language_data.js").read_text(encoding="utf-8")


def test_the_python_page_has_an_entry_for_each_function_and_class_with_links_to_types_and_errors(site: Path) -> None:
    html = (site / "reference" / "python-api.html").read_text(encoding="utf-8")
    functions = [name for name in headrace.__all__ if inspect.isfunction(getattr(headrace, name))]
    entries = [f"headrace.{name}" for name in ("Project", "inspect.state", *functions)]
    entries += [f"headrace.results.{cls.__name__}" for cls in VALUES if cls is not Finding]
    errors = ("headrace.errors.Finding", "headrace.errors.LeaseLost", "headrace.results.Change.undo")
    assert [name for name in (*entries, *errors) if f'id="{name}"' not in html] == []
    verify = html.partition('id="headrace.verify"')[2].partition("</section>")[0]
    assert 'href="#headrace.results.Verdict"' in verify
    assert 'href="#headrace.errors.CheckFailed"' in verify
    assert "<strong>since_batch</strong>" in verify
    verdict = html.partition('id="headrace.results.Verdict"')[2].partition("</section>")[0]
    assert 'id="headrace.results.Verdict.rows_open"' in verdict
    assert 'href="#headrace.errors.Finding"' in verdict


@pytest.mark.parametrize(
    ("page", "text", "warning"),
    [
        pytest.param("index.md", "\n[nowhere](how-to/nowhere.md)\n", "nowhere", id="a page that does not exist"),
        pytest.param(
            "index.md", "\n[nowhere](get-started.md#no-such)\n", "no-such", id="a heading that does not exist"
        ),
        pytest.param("lost.md", "# Lost\n", "not included in any toctree|isn't included", id="a page outside the menu"),
    ],
)
def test_a_wrong_link_and_a_lost_page_fail_the_build(tmp_path: Path, page: str, text: str, warning: str) -> None:
    (tmp_path / "docs").mkdir()
    for name in ("conf.py", "drawings.py", "python_api.py"):
        shutil.copy(ROOT / "docs" / name, tmp_path / "docs" / name)
    shutil.copytree(ROOT / "docs" / "site", tmp_path / "docs" / "site")
    index = "# Pages\n\n## Get started\n\n- [Get started](get-started.md)\n"
    (tmp_path / "docs" / "get-started.md").write_text("# Get started\n", encoding="utf-8")
    (tmp_path / "docs" / "index.md").write_text(index + (text if page == "index.md" else ""), encoding="utf-8")
    if page != "index.md":
        (tmp_path / "docs" / page).write_text(text, encoding="utf-8")
    built = build(tmp_path / "docs", tmp_path / "site")
    assert built.returncode != 0
    assert any(word in built.stderr for word in warning.split("|"))
