"""Projects written to a temporary directory, which is also the working directory, so that messages name short paths."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from headrace.errors import Finding, ProjectError
from headrace.loader import load
from headrace.model import Project

Faults = Callable[..., list[Finding]]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Mapping[str, str]], Path]:
    """Write files, by their names, and stand in their directory."""
    monkeypatch.chdir(tmp_path)

    def written(files: Mapping[str, str]) -> Path:
        for name, text in files.items():
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(dedent(text))
        return tmp_path

    return written


@pytest.fixture
def load_texts(write: Callable[[Mapping[str, str]], Path]) -> Callable[..., Project]:
    """Load a project from the texts of its files; the environment is empty but for what is given."""

    def project(
        files: Mapping[str, str] | str, target: str | None = None, environ: Mapping[str, str] | None = None
    ) -> Project:
        root = write({"headrace.yml": files} if isinstance(files, str) else files)
        return load(root, target=target, environ=environ or {})

    return project


@pytest.fixture
def faults(load_texts: Callable[..., Project]) -> Faults:
    """The findings of a project that does not load."""

    def findings(*arguments: object, **named: object) -> list[Finding]:
        with pytest.raises(ProjectError) as caught:
            load_texts(*arguments, **named)
        return list(caught.value.findings)

    return findings
