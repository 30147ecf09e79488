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
from headrace.storage.store import Store, StoreEntry, reason_of, refused, silent

WEB_PORT = 9870
# Hadoop's own name of the setting that says where WebHDFS answers.
WEB_ADDRESS = "dfs.namenode.http-address"
_SPARK = "spark.hadoop."
# A NameNode that is restarted is back within seconds; whoever waits longer is told.
_PAUSES = (0.2, 1.0, 3.0)
_TIMEOUT_SECONDS = (3.0, 60.0)
_PIECE_BYTES = 8 << 20


class Hdfs(Store):
    """One NameNode. Files are written beside their place and renamed, which HDFS does in one step."""

    def __init__(self, authority: str, web_address: str, user: str) -> None:
        self.url = f"hdfs://{authority}"
        self.web_address = web_address
        host, _, port = web_address.rpartition(":")
        self._web: Any = WebHDFS(host, int(port), user=user, skip_instance_cache=True)
        self._web.session.request = _with_timeout(self._web.session.request)

    @classmethod
    def of(cls, authority: str, settings: Mapping[str, str]) -> Hdfs:
        """The NameNode of `hdfs://authority`, found and logged in to as Hadoop's client does."""
        host = authority.rpartition(":")[0] or authority
        known = settings.get(f"{_SPARK}{WEB_ADDRESS}") or _site_setting(WEB_ADDRESS)
        web = known or f"{host}:{WEB_PORT}"
        name, _, port = web.rpartition(":")
        # Hadoop's default is an address to listen on.
        web = f"{host}:{port}" if name in ("", "0.0.0.0") else web
        return cls(authority, web, os.environ.get("HADOOP_USER_NAME") or getpass.getuser())

    def entry(self, path: str) -> StoreEntry:
        return _entry(self._ask("GETFILESTATUS", path).json()["FileStatus"])

    def listing(self, path: str) -> Sequence[StoreEntry]:
        found = self._ask("LISTSTATUS", path).json()["FileStatuses"]["FileStatus"]
        if len(found) == 1 and found[0]["pathSuffix"] == "":
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), self.url + path)
        return sorted((_entry(each) for each in found), key=lambda each: each.name)

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
                raise refused(self.url, _remote_reason(sent))
            sent.raise_for_status()

        self._again(write)
        return draft

    def _rename(self, path: str, new: str, *, overwrite: bool = False) -> None:
        """Rename in one step; an answer that was lost is found again in what became of the old name."""
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
        """What may be asked again without harm."""
        return self._again(lambda: self._call(verb, path, method=method, redirect=True, **options))

    def _again(self, attempt: Callable[[], Any]) -> Any:
        """What `attempt` gives, which is made again after a pause while nothing answers."""
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
            raise refused(self.url, first_line(error) or type(error).__name__) from error
        except (RuntimeError, ValueError) as error:
            said = first_line(error)
            if "already exists" in said or "FileAlreadyExists" in said:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.url + path) from None
            if any(words in said for words in OF_HDFS):
                raise requests.ConnectionError(said) from error
            raise OSError(errno.EIO, said, self.url + path) from error


def _with_timeout(request: Any) -> Any:
    def asked(*arguments: Any, **options: Any) -> Any:
        return request(*arguments, **{**options, "timeout": options.get("timeout") or _TIMEOUT_SECONDS})

    return asked


def _entry(facts: Mapping[str, Any]) -> StoreEntry:
    return StoreEntry(
        name=str(facts["pathSuffix"]),
        size_bytes=int(facts["length"]),
        modified_ms=int(facts["modificationTime"]),
        is_directory=facts["type"] == "DIRECTORY",
    )


def _site_setting(name: str) -> str | None:
    """What the cluster's own hdfs-site.xml says, where HADOOP_CONF_DIR leads to one."""
    home = os.environ.get("HADOOP_CONF_DIR")
    if not home:
        return None
    try:
        root = ElementTree.parse(Path(home) / "hdfs-site.xml").getroot()
    except (OSError, ElementTree.ParseError):
        return None
    found = {each.findtext("name"): each.findtext("value") for each in root.iter("property")}
    return found.get(name)


def _remote_reason(answer: Any) -> str:
    try:
        return str(answer.json()["RemoteException"]["message"]).splitlines()[0]
    except (ValueError, KeyError, TypeError, IndexError):
        return f"HTTP status {answer.status_code}"
