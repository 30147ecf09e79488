"""`headrace doctor` names what is in the way of a run, with its fix, and leaves nothing behind."""

from __future__ import annotations

import json
import socket
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from headrace.cli import main
from headrace.spark.jvm.jars import CONTENT, SUMS, content, folder_of, known_connectors

MACHINE = ["python", "spark", "java", "memory", "disk", "host", "ports", "clock", "file system", "jars", "extras"]
PROJECT = """
name: shop
storage: {storage}
sources:
  orders:
    files: {{path: landing, format: json, schema: "id INT, amount INT"}}
queries:
  kept:
    select: SELECT id, amount FROM orders
    sink: {{sqlite: {{path: result.db, table: kept, key: [id]}}}}
  refused:
    select: SELECT id, amount FROM orders
    sink: {{postgres: {{url: "postgresql://127.0.0.1:{port}/shop", table: refused, key: [id]}}}}
"""


def examine(capsys: pytest.CaptureFixture[str], *arguments: str, code: int) -> dict[str, list[dict[str, Any]]]:
    """The lines by the part that they are about."""
    assert main(["doctor", *arguments, "--json"]) == code
    lines = json.loads(capsys.readouterr().out)["checks"]
    return {line["name"]: [other for other in lines if other["name"] == line["name"]] for line in lines}


@pytest.mark.plain
def test_a_machine_is_examined_without_a_project(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = examine(capsys, code=0)
    assert list(lines) == MACHINE
    assert all(line["state"] != "error" for part in lines.values() for line in part)
    assert list(tmp_path.iterdir()) == []
    assert main(["doctor"]) == 0
    assert "file system" in capsys.readouterr().out


@pytest.mark.plain
def test_no_java_is_an_error_with_its_fix(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    (line,) = examine(capsys, code=1)["java"]
    assert (line["state"], line["code"]) == ("error", "HR001")
    assert "JAVA_HOME" in line["fix"]


@pytest.mark.plain
def test_without_java_a_project_is_a_line_among_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    (tmp_path / "landing").mkdir()
    (tmp_path / "headrace.yml").write_text(PROJECT.format(port=1, storage=tmp_path).partition("  refused:")[0])
    lines = examine(capsys, "-C", str(tmp_path), code=1)
    assert list(lines) == [*MACHINE, "project"]
    assert [line["code"] for name in ("java", "project") for line in lines[name]] == ["HR001", "HR001"]


@pytest.mark.plain
def test_a_taken_port_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    with closing(socket.socket()) as other:
        with suppress(OSError):  # Another program has it already.
            other.bind(("127.0.0.1", 8470))
            other.listen()
        (line,) = examine(capsys, code=0)["ports"]
    assert (line["state"], line["code"]) == ("warning", "HR013")
    assert "--port" in line["fix"]


@pytest.mark.plain
def test_a_changed_jar_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path))
    monkeypatch.delenv("HEADRACE_CONNECTORS", raising=False)
    connector = known_connectors()["avro"]
    folder = folder_of(connector, tmp_path / "connectors")
    folder.mkdir(parents=True)
    (folder / "spark-avro.jar").write_bytes(b"another one")
    (folder / SUMS).write_text(f"{'0' * 64}  spark-avro.jar\n")
    (folder / CONTENT).write_text(content(connector))
    (changed, _) = examine(capsys, code=1)["jars"]
    assert (changed["state"], changed["code"]) == ("error", "HR483")


@pytest.mark.plain
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for a file system that takes no file: Linux's /proc")
def test_a_file_system_that_cannot_hold_the_storage_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "headrace.yml").write_text(PROJECT.format(storage="/proc/headrace", port=1))
    lines = examine(capsys, "-C", str(tmp_path), "--no-connect", code=1)
    assert {line["code"] for line in lines["file system"]} == {"HR014"}


@pytest.mark.plain
def test_a_project_that_cannot_be_loaded_is_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "headrace.yml").write_text("name: shop\nquery: {}\n")
    lines = examine(capsys, "-C", str(tmp_path), code=1)
    assert list(lines)[: len(MACHINE)] == MACHINE
    assert {line["code"] for line in lines["project"]} == {"HR103"}


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_what_a_project_reads_and_writes_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(socket.socket()) as closed:
        closed.bind(("127.0.0.1", 0))  # Nothing listens there.
        port = closed.getsockname()[1]
        (tmp_path / "landing").mkdir()
        (tmp_path / "headrace.yml").write_text(PROJECT.format(storage=".headrace", port=port))
        lines = examine(capsys, "-C", str(tmp_path), code=1)
    assert [line["state"] for line in lines["source orders"]] == ["ok"]
    assert [line["state"] for line in lines["query kept"]] == ["ok"]
    (refused,) = lines["query refused"]
    assert (refused["state"], str(port) in refused["seen"], bool(refused["fix"])) == ("error", True, True)
