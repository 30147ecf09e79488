"""The archive of what workers lack: which packages, in which versions, and what is said where it cannot be made."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path

import pytest

from headrace.api import load
from headrace.cluster import pack
from headrace.errors import PlatformError
from headrace.frames.project_session import session
from tests.runner.projects import write_project

pytestmark = pytest.mark.plain


def test_an_archive_has_the_packages_and_what_they_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "COMMON", ())
    monkeypatch.setattr(pack, "_own_requirements", lambda names: iter(()))
    made = pack.pack(tmp_path / "workers.tar.gz", ["rich"])
    assert {"rich", "pygments", "markdown-it-py", "mdurl"} == set(made.packages)
    assert made.packages["rich"] == version("rich")
    with tarfile.open(made.file) as archive:
        archive.extractall(tmp_path / "there", filter="data")
    program = "import rich, markdown_it, importlib.metadata as m; print(rich.__file__, m.version('rich'))"
    result = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "there")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.split() == [str(tmp_path / "there" / "rich" / "__init__.py"), version("rich")]


def test_what_workers_need_is_known_without_spark_itself() -> None:
    names = pack.required_distributions(["psycopg", "pyiceberg"])
    assert {"pyarrow", "pandas", "psycopg", "psycopg-binary", "pyiceberg", "click"} < set(names)
    assert not {"pyspark", "py4j", "headrace", "pytest"} & set(names)


def test_a_lock_file_gives_the_versions_for_this_python(tmp_path: Path) -> None:
    lock = tmp_path / "constraints.txt"
    lock.write_text(
        "six==1.0 ; python_version < '3' \\\n    --hash=sha256:aa\n"
        "six==1.17.0 ; python_version >= '3' \\\n    --hash=sha256:bb \\\n    --hash=sha256:cc\n"
        "# a comment\n-e .\nPyMySQL[rsa]==1.2.4\n"
    )
    versions = pack.read_lock(lock)
    assert set(versions) == {"six", "pymysql"}
    assert versions["six"].startswith("six==1.17.0")
    assert versions["six"].endswith("--hash=sha256:cc")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where pip fetches from: an index that has mdurl 9.9; the sum of its file."""
    place = tmp_path / "index" / "simple" / "mdurl"
    place.mkdir(parents=True)
    wheel = place / "mdurl-9.9-py3-none-any.whl"
    about = "mdurl-9.9.dist-info"
    files = {
        "mdurl.py": "made = 'here'\n",
        f"{about}/METADATA": "Metadata-Version: 2.1\nName: mdurl\nVersion: 9.9\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in {**files, f"{about}/RECORD": "".join(f"{name},,\n" for name in files)}.items():
            archive.writestr(name, text)
    (place / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
    served = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "index"))
    with ThreadingHTTPServer(("127.0.0.1", 0), served) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name in [name for name in os.environ if name.upper().startswith("PIP_") or name.lower().endswith("_proxy")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple")
        yield hashlib.sha256(wheel.read_bytes()).hexdigest()
        server.shutdown()


def test_packages_of_a_lock_file_are_fetched_if_they_are_its_files(
    index: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack, "COMMON", ())
    monkeypatch.setattr(pack, "_own_requirements", lambda names: iter(()))
    lock, out = tmp_path / "constraints.txt", tmp_path / "workers.tar"
    lock.write_text(f"mdurl==9.9 \\\n    --hash=sha256:{'0' * 64} \\\n    --hash=sha256:{index}\n")
    assert pack.pack(out, ["mdurl"], lock=lock).packages == {"mdurl": "9.9"}
    with tarfile.open(out) as archive:
        top = {name.partition("/")[0] for name in archive.getnames()}
        assert top == {"mdurl.py", "mdurl-9.9.dist-info"}, "without what Python has compiled"
        assert archive.getmember("mdurl.py").size == len("made = 'here'\n")
    out.unlink()
    for wrong in ("0" * 64, f"{'0' * 64} --hash=sha256:{'1' * 64}"):
        lock.write_text(f"mdurl==9.9 --hash=sha256:{wrong}\n")
        with pytest.raises(PlatformError) as raised:
            pack.pack(out, ["mdurl"], lock=lock)
        (finding,) = raised.value.findings
        assert finding.what == (
            f"mdurl==9.9 is another file than the lock file names: its sha256 begins with {index[:12]}, "
            "and that of the lock file with 000000000000"
        )
        assert not out.exists()
    lock.write_text(f"mdurl==9.8 --hash=sha256:{index}\n")
    with pytest.raises(PlatformError, match=r"pip cannot install .* that satisfies the requirement mdurl==9\.8"):
        pack.pack(out, ["mdurl"], lock=lock)


@pytest.mark.parametrize(
    ("out", "names", "lock", "words"),
    [
        ("workers.zip", [], None, "is not a valid name of an archive"),
        ("workers.tar", ["no-such-package"], None, "no-such-package is not installed here"),
        ("workers.tar", [], "none.txt", "cannot be read: No such file"),
        ("workers.tar", [], "empty.txt", "names no version of .*pyarrow"),
    ],
)
def test_what_cannot_be_packed_is_reported(
    tmp_path: Path, out: str, names: list[str], lock: str | None, words: str
) -> None:
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(PlatformError, match=words) as raised:
        pack.pack(tmp_path / out, names, lock=None if lock is None else tmp_path / lock)
    assert raised.value.findings[0].code == "HR857"
    assert not (tmp_path / out).exists()


def test_executors_get_the_archive_that_the_target_names(tmp_path: Path) -> None:
    assert pack.settings("/w.tar", {"spark.archives": "own.zip#own", "spark.executorEnv.PYTHONPATH": "/lib"}) == {
        "spark.archives": "/w.tar#headrace-packages,own.zip#own",
        "spark.executorEnv.PYTHONPATH": "./headrace-packages:/lib",
    }
    root = write_project(tmp_path / "p", "q = hr.query(sink=hr.sink.files('out'), name='q')(lambda events: events)")
    (root / "headrace.yml").write_text("targets: {dev: {master: 'spark://127.0.0.1:9', worker_packages: w.tar}}\n")
    with pytest.raises(PlatformError, match=r"there is no archive .*/p/w\.tar, which target 'dev' has") as raised:
        session(load(root))
    assert raised.value.findings[0].code == "HR857"
