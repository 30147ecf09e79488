"""Drivers that die young skip what pays off only in a long life."""

from __future__ import annotations

import os

import pytest

from tests.conftest import ROOT, WITHOUT_CODE_GENERATION


@pytest.fixture(autouse=True)
def short_lived(monkeypatch: pytest.MonkeyPatch) -> None:
    """No compiled queries, and workers forked ready; `make soak` starts drivers as users do."""
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", " ".join(WITHOUT_CODE_GENERATION))
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
