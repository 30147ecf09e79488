"""Several projects on one board in a real browser."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

import headrace as hr
from headrace.errors import HeadraceError
from headrace.generations.log import history_file
from headrace.history import History
from headrace.ui.guard import LINK
from headrace.ui.listed import list_projects
from headrace.ui.server import ServedAddress, serve_in_background
from headrace.ui.shown import ShownProject
from tests.browser.test_pages import find_misplaced
from tests.ui import made
from tests.ui.chromium import click, faults, look, texts, wait, words
from tests.ui.test_board import write_shop

pytestmark = pytest.mark.browser
TOKEN = "a-token-that-is-long-enough"
WIDTHS = (400, 1400)
THEMES = ("light", "dark")


def test_the_list_leads_to_each_project_and_its_pages_lead_back(browser: webdriver.Chrome, tmp_path: Path) -> None:
    first, other = made.project(tmp_path / "phones"), hr.load(write_shop(tmp_path / "other" / "phones"))
    made.fill(first, 60, started=datetime.now(timezone.utc) - timedelta(seconds=60))
    (tmp_path / "headrace.yml").write_text("name: [")
    with pytest.raises(HeadraceError) as broken:
        hr.load(tmp_path)
    listed = list_projects([(first.root, first), (other.root, other), (tmp_path, broken.value)])
    with serve_in_background(listed, ServedAddress(port=0, token=TOKEN)) as url:
        browser.get(f"{url}?{LINK}={TOKEN}")
        for theme in THEMES:
            for width in WIDTHS:
                look(browser, url, width=width, theme=theme, until="[aria-label='Projects'] td")
                assert (find_misplaced(browser), faults(browser)) == ([], []), (theme, width)
        rows = [" ".join(row.split()) for row in texts(browser, "[aria-label='Projects'] tbody tr")]
        assert "phones ✕ in trouble 1 of 2" in rows[0]
        assert "phones-2 ○ not running 0 of 1" in rows[1]
        assert "✕ cannot be shown" in rows[2]
        assert "HR101" in words(browser, "Cannot be shown")

        click(browser, "a[href='/projects/phones/']")
        wait(browser, lambda page: page.find_elements(By.CSS_SELECTOR, ".graph svg .node"))
        click(browser, "[aria-label='Queries'] a[href='/projects/phones/queries/counts']")
        wait(browser, lambda page: "Projects / phones / counts" in " ".join(texts(page, "#crumbs")))
        wait(browser, lambda page: page.find_elements(By.CSS_SELECTOR, ".charts canvas, [aria-label='Batches'] td"))
        # The database of this project is away.
        assert [fault for fault in faults(browser) if "/rows?" not in fault] == []
        click(browser, "#crumbs a[href='/projects/phones/']")
        wait(browser, lambda page: page.find_elements(By.CSS_SELECTOR, ".graph svg .node"))
        click(browser, "#crumbs a[href='/']")
        wait(browser, lambda page: "phones-2" in words(page, "Projects"))


def test_an_open_page_shows_what_a_deploy_has_brought(browser: webdriver.Chrome, tmp_path: Path) -> None:
    root = write_shop(tmp_path / "p")
    project = hr.load(root)
    with (
        History.open(history_file(project.local_storage)) as history,
        serve_in_background(ShownProject(project), ServedAddress(port=0, token=TOKEN)) as url,
    ):
        browser.get(f"{url}?{LINK}={TOKEN}")
        look(browser, url, until=".graph svg .node")
        write_shop(root, query="added")
        history.note("deployed", None, None, {"by": "x", "steps": []})
        wait(browser, lambda page: "added" in " ".join(texts(page, "[aria-label='Queries'] td")))
        assert "shown" not in words(browser, "Queries")
        assert faults(browser) == []
