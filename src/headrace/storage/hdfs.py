"""HDFS by WebHDFS, the REST interface of its NameNode: without a JVM and without native libraries."""

from __future__ import annotations

import errno
import getpass
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import requests
from fsspec.implementations.webhdfs import WebHDFS

from headrace.errors import first_line
from headrace.findings import OF_HDFS
from headrace.storage.store import Store, StoreEntry, reason_of, refusal, silent

WEB_PORT = 9870
# Hadoop's own name of the setting that says where WebHDFS answers.
WEB_ADDRESS = "dfs.namenode.http-address"
_SPARK = "spark.hadoop."
# A restarted NameNode is back within seconds; a longer silence is an error.
_PAUSES = (0.2, 1.0, 3.0)
_TIMEOUT_SECONDS = (3.0, 60.0)
_PIECE_BYTES = 8 << 20


class Hdfs(Store):
    """One NameNode. Files are written next to their place and renamed, which HDFS does in one step."""

    def __init__(self, authority: str, web_address: str, user: str) -> None:
        self.url = f"hdfs://{authority}"
        self.web_address = web_address
        host, _, port = web_address.rpartition(":")
        self._web: Any = WebHDFS(host, int(port), user=user, skip_instance_cache=True)
        self._web.session.request = _with_timeout(self._web.session.request)

    @classmethod
    def of(cls, authority: str, settings: Mapping[str, str]) -> Hdfs:
        """The NameNode of `hdfs://authority`, with the address and the user that Hadoop's client would take."""
        host = authority.rpartition(":")[0] or authority
        setting = settings.get(f"{_SPARK}{WEB_ADDRESS}") or _site_setting(WEB_ADDRESS)
        web = setting or f"{host}:{WEB_PORT}"
        name, _, port = web.rpartition(":")
        # Hadoop's default is an address to listen on.
        web = f"{host}:{port}" if name in ("", "0.0.0.0") else web
        return cls(authority, web, os.environ.get("HADOOP_USER_NAME") or getpass.getuser())

    def entry(self, path: str) -> StoreEntry:
        return _entry(self._ask("GETFILESTATUS", path).json()["FileStatus"])

    def listing(self, path: str) -> Sequence[StoreEntry]:
        statuses = self._ask("LISTSTATUS", path).json()["FileStatuses"]["FileStatus"]
        if len(statuses) == 1 and statuses[0]["pathSuffix"] == "":
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), self.url + path)
        return sorted(map(_entry, statuses), key=lambda entry: entry.name)

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        part = {"offset": str(start)} if length is None else {"offset": str(start), "length": str(length)}
        return bytes(self._ask("OPEN", path, **part).content)

    def put(self, path: str, data: bytes) -> None:
        self._put(path, lambda: data)

    def _put(self, path: str, data: Callable[[], bytes | Iterator[bytes]]) -> None:
        draft = self._draft(path, data)
        try:
            self._rename(draft, path, overwrite=True)
        except BaseException:
            self.delete(draft)
            raise

    def create(self, path: str, data: bytes) -> bool:
        draft = self._draft(path, lambda: data)
        try:
            self._rename(draft, path)
        except FileExistsError:
            self.delete(draft)
            return False
        return True

    def copy(self, path: str, new: str) -> None:
        """WebHDFS has no copy: the bytes go through this process, in pieces."""
        self.copy_from(self, path, new)

    def copy_from(self, other: Store, path: str, new: str) -> None:
        self._put(new, lambda: other.pieces(path, _PIECE_BYTES))

    def delete(self, path: str) -> None:
        self._ask("DELETE", path, method="delete", recursive="true")

    def make_directory(self, path: str) -> None:
        self._ask("MKDIRS", path, method="put", permission="700")

    def move(self, path: str, new: str, last: Sequence[str] = ()) -> None:
        self._rename(path, new)

    def _draft(self, path: str, data: Callable[[], bytes | Iterator[bytes]]) -> str:
        """Write a file next to `path`, whose name begins with a dot, so that Spark does not read it.

        data: called for each attempt.
        """
        folder, _, name = path.rpartition("/")
        draft = f"{folder}/.{name}.{uuid.uuid4().hex[:12]}.headrace"

        def write() -> None:
            # The NameNode names a DataNode, which takes the bytes.
            answer = self._call("CREATE", draft, method="put", redirect=False, overwrite="true", permission="600")
            sent = self._web.session.put(answer.headers["Location"], data=data())
            if sent.status_code in (401, 403):
                raise refusal(self.url, _remote_reason(sent))
            sent.raise_for_status()

        self._again(write)
        return draft

    def _rename(self, path: str, new: str, *, overwrite: bool = False) -> None:
        """Rename in one step. If the answer is lost, the next try sees whether the old name is gone."""
        option = "OVERWRITE" if overwrite else "NONE"
        tries = count()

        def rename() -> None:
            is_first = next(tries) == 0
            try:
                self._call("RENAME", path, method="put", destination=new, renameoptions=option)
            except FileNotFoundError:
                if is_first:
                    raise

        self._again(rename)

    def _ask(self, verb: str, path: str, *, method: str = "get", **options: str) -> Any:
        """Ask a question that can be repeated without harm."""
        return self._again(lambda: self._call(verb, path, method=method, redirect=True, **options))

    def _again(self, attempt: Callable[[], Any]) -> Any:
        """Call `attempt`, again after a pause while the server does not answer."""
        for pause in _PAUSES:
            try:
                return attempt()
            except requests.RequestException:
                time.sleep(pause)
        try:
            return attempt()
        except requests.RequestException as error:
            raise silent(f"{self.url} (by WebHDFS at {self.web_address})", reason_of(error)) from error

    def _call(self, verb: str, path: str, *, method: str, redirect: bool = True, **options: str) -> Any:
        try:
            return self._web._call(verb, method=method, path=path, redirect=redirect, **options)
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.url + path) from None
        except PermissionError as error:
            raise refusal(self.url, first_line(error) or type(error).__name__) from error
        except (RuntimeError, ValueError) as error:
            message = first_line(error)
            if "already exists" in message or "FileAlreadyExists" in message:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.url + path) from None
            if any(words in message for words in OF_HDFS):
                raise requests.ConnectionError(message) from error
            raise OSError(errno.EIO, message, self.url + path) from error


def _with_timeout(request: Any) -> Any:
    def ask(*arguments: Any, **options: Any) -> Any:
        return request(*arguments, **{**options, "timeout": options.get("timeout") or _TIMEOUT_SECONDS})

    return ask


def _entry(facts: Mapping[str, Any]) -> StoreEntry:
    return StoreEntry(
        name=str(facts["pathSuffix"]),
        size_bytes=int(facts["length"]),
        modified_ms=int(facts["modificationTime"]),
        is_directory=facts["type"] == "DIRECTORY",
    )


def _site_setting(name: str) -> str | None:
    """A setting of the hdfs-site.xml in HADOOP_CONF_DIR."""
    home = os.environ.get("HADOOP_CONF_DIR")
    if not home:
        return None
    try:
        root = ElementTree.parse(Path(home) / "hdfs-site.xml").getroot()
    except (OSError, ElementTree.ParseError):
        return None
    values = {setting.findtext("name"): setting.findtext("value") for setting in root.iter("property")}
    return values.get(name)


def _remote_reason(answer: Any) -> str:
    try:
        return str(answer.json()["RemoteException"]["message"]).splitlines()[0]
    except (ValueError, KeyError, TypeError, IndexError):
        return f"HTTP status {answer.status_code}"
