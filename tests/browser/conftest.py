"""One browser for all the tests of pages; each begins with an empty page and an empty console."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium import webdriver

from tests.ui.chromium import chromium, faults


@pytest.fixture(scope="session")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    with chromium(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture
def browser(window: webdriver.Chrome) -> webdriver.Chrome:
    # The page of the test before may just learn that its server, or its database, is away, and say so.
    window.get("about:blank")
    faults(window)
    return window
