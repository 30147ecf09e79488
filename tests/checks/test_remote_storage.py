"""Storage that cannot be used is one sentence before Spark starts."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from headrace.api import load
from headrace.checks.structure import check_structure
from headrace.cli.entry import main
from headrace.errors import EXIT_AWAY, EXIT_REFUSED
from headrace.storage import hdfs, s3
from headrace.storage.store import forget
from tests.runner.projects import write_project

pytestmark = pytest.mark.plain
QUERY = "q = hr.query(sink=hr.sink.files('out'), name='q')(lambda events: events)"
SILENT = "hdfs://127.0.0.1:9"
# What no start can pass before the project is changed, and what a later one can.
ENDS = {"HR831": EXIT_AWAY, "HR834": EXIT_REFUSED}


def project_at(root: Path, storage: str, web: str = "127.0.0.1:9") -> Path:
    write_project(root, QUERY)
    (root / "headrace.yml").write_text(
        f"storage: '{storage}'\nspark: {{spark.hadoop.dfs.namenode.http-address: '{web}'}}\n"
    )
    return root


@pytest.mark.parametrize(
    ("storage", "code", "words"),
    [
        (f"{SILENT}/lake", "HR831", "(by WebHDFS at 127.0.0.1:9) cannot be reached: Connection refused"),
        ("abfss://lake/headrace", "HR834", "is on abfss://"),
        ("gs://lake/headrace", "HR834", "is on gs://"),
        ("hdfs:///lake/headrace", "HR834", "names no host"),
        ("s3a:///lake", "HR834", "names no bucket"),
        ("hdfs:/lake", "HR834", "names no host"),
        ("file:///tmp/lake", None, ""),
    ],
)
def test_storage_that_cannot_be_used_is_reported_before_spark_starts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    storage: str,
    code: str | None,
    words: str,
) -> None:
    monkeypatch.setattr(hdfs, "_PAUSES", ())
    root = project_at(tmp_path / "p", storage)
    findings = [finding for finding in check_structure(load(root)) if finding.severity == "error"]
    assert [finding.code for finding in findings] == ([] if code is None else [code])
    if code is not None:
        assert words in findings[0].what
        assert findings[0].where.line is not None or findings[0].where.file
        assert main(["run", "-C", str(root)]) == ENDS.get(code, 1)
        assert code in capsys.readouterr().err


def test_a_look_at_a_store_that_does_not_answer_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hdfs, "_PAUSES", ())
    root = project_at(tmp_path / "p", f"{SILENT}/lake")
    for words in (["status", "--storage-only"], ["inspect", "checkpoint", "q"]):
        assert main([*words, "-C", str(root)]) == 2
        errors = capsys.readouterr().err
        assert "HR831" in errors
        assert "Traceback" not in errors


def test_a_package_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget("hdfs", "127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "headrace.storage.hdfs", None)
    codes = [finding.code for finding in check_structure(load(project_at(tmp_path / "p", f"{SILENT}/lake")))]
    assert "HR011" in codes


def test_the_address_of_webhdfs_is_found_as_hadoop_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = hdfs.Hdfs.of
    assert of("name:9000", {}).web_address == "name:9870"
    assert of("name:9000", {"spark.hadoop.dfs.namenode.http-address": "web:1"}).web_address == "web:1"
    (tmp_path / "hdfs-site.xml").write_text(
        "<configuration><property><name>dfs.namenode.http-address</name><value>0.0.0.0:8</value></property>"
        "</configuration>"
    )
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert of("name:9000", {}).web_address == "name:8"


EXPIRED = """<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"""
NOTHING = "<ListBucketResult><Name>lake</Name><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>"


@contextmanager
def bucket_that(expires: bool) -> Iterator[str]:
    """A server whose bucket `lake` refuses an old token, or takes every put, whatever its condition."""

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status = 400 if expires else 404 if self.command == "HEAD" else 204 if self.command == "DELETE" else 200
            text = EXPIRED if expires else NOTHING if self.command == "GET" else ""
            self.send_response(status)
            self.send_header("Content-Length", "0" if self.command == "HEAD" else str(len(text)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(text.encode())

        do_GET = do_HEAD = do_PUT = do_DELETE = answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def project_in(root: Path, endpoint: str, **settings: str) -> Path:
    keys = {} if settings.get("keys") == "none" else {"access.key": "me", "secret.key": "mine"}
    common = {"endpoint": endpoint, "path.style.access": "true", **keys, **settings}
    write_project(root, QUERY)
    spark = {f"spark.hadoop.fs.s3a.{name}": value for name, value in common.items() if name != "keys"}
    (root / "headrace.yml").write_text(f"storage: s3a://lake/headrace\nspark: {json.dumps(spark)}\n")
    return root


def test_a_bucket_that_cannot_be_used_is_reported_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(s3, "ATTEMPTS", 1)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    off = {"create.conditional.enabled": "false"}
    with bucket_that(expires=True) as old, bucket_that(expires=False) as careless:
        for number, (endpoint, settings, code, words) in enumerate(
            (
                ("http://127.0.0.1:9", {}, "HR831", "(at http://127.0.0.1:9) cannot be reached: Connection refused"),
                (old, {}, "HR833", "The provided token has expired (ExpiredToken)"),
                (careless, {"keys": "none"}, "HR833", "no credentials are found"),
                (careless, {}, "HR837", "both get the answer that they were the first"),
                (careless, off, "HR837", "spark.hadoop.fs.s3a.create.conditional.enabled is switched off"),
            )
        ):
            forget("s3a", "lake")
            root = project_in(tmp_path / str(number), endpoint, **settings)
            findings = [finding for finding in check_structure(load(root)) if finding.severity == "error"]
            assert findings, (code, words)
            assert (findings[0].code, words in findings[0].what) == (code, True), findings
            assert main(["run", "-C", str(root)]) == ENDS.get(code, 1)
            assert code in capsys.readouterr().err
    forget("s3a", "lake")
