"""S3 and stores that speak like it, by s3fs: objects that are put whole, and created by one writer alone.

pyarrow's file system has no conditional put, without which two drivers could both believe to be the first.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import s3fs
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, NoCredentialsError
from botocore.exceptions import ConnectionError as EndpointError
from fsspec.asyn import sync

from headrace.errors import PlatformError, first_line
from headrace.storage.store import Store, StoreEntry, reason_of, refusal, silent

# Hadoop's own names, so that Spark and Headrace reach a bucket in one way.
_SETTING = "spark.hadoop.fs.s3a."
# A restarted store answers within these attempts; a longer silence is an error.
ATTEMPTS = 5
_CONNECT_SECONDS, _READ_SECONDS = 3, 60
_MARK = "headrace-writer"
_AT_ONCE = 1000
# What comes from another store is sent in parts of this size from here on.
_LARGE_BYTES = 64 << 20
# S3 refuses to copy a larger object in one request, and takes parts of at most this size.
_COPY_BYTES, _COPY_PART_BYTES = 5 << 30, 1 << 30
_ELSEWHERE = ("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException")
_MISSING = ("NoSuchKey", "NoSuchVersion", "NotFound", "404")
_TAKEN = ("PreconditionFailed", "ConditionalRequestConflict", "OperationAborted")


class S3(Store):
    """One bucket. A directory is what keys have before a `/`, and an empty object whose key ends with one."""

    def __init__(self, bucket: str, **options: Any) -> None:
        self.bucket = bucket
        self.url = f"s3a://{bucket}"
        self._keeps_first = False
        self._fs: Any = s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False, **options)
        # botocore repeats what can be repeated.
        self._fs.retries = 1

    @classmethod
    def of(cls, bucket: str, settings: Mapping[str, str]) -> S3:
        """The bucket, with endpoint and credentials of Spark's settings, or else those that AWS's own tools take."""

        def setting(name: str) -> str | None:
            return settings.get(f"{_SETTING}bucket.{bucket}.{name}") or settings.get(_SETTING + name)

        config: dict[str, Any] = {
            "connect_timeout": _CONNECT_SECONDS,
            "read_timeout": _READ_SECONDS,
            "retries": {"mode": "standard", "total_max_attempts": ATTEMPTS},
        }
        if setting("path.style.access") == "true":
            config["s3"] = {"addressing_style": "path"}
        region = setting("endpoint.region") or os.environ.get("AWS_REGION")
        return cls(
            bucket,
            endpoint_url=_url(setting("endpoint"), secure=setting("connection.ssl.enabled") != "false"),
            key=setting("access.key"),
            secret=setting("secret.key"),
            token=setting("session.token"),
            client_kwargs={"region_name": region} if region else {},
            config_kwargs=config,
        )

    def entry(self, path: str) -> StoreEntry:
        key, name = _key(path), path.rstrip("/").rpartition("/")[2]
        if key:
            with suppress(FileNotFoundError):
                return _entry(name, self._ask("head_object", Key=key))
        inside = self._ask("list_objects_v2", Prefix=_prefix(key), MaxKeys=1)
        if key and not inside.get("KeyCount"):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.url + path)
        return StoreEntry(name=name, size_bytes=0, modified_ms=0, is_directory=True)

    def listing(self, path: str) -> Sequence[StoreEntry]:
        prefix = _prefix(_key(path))
        entries, is_there = [], not prefix
        for page in self._pages(Prefix=prefix, Delimiter="/"):
            for item in page.get("Contents", ()):
                is_there = True
                if item["Key"] != prefix:
                    entries.append(_entry(item["Key"].removeprefix(prefix), item))
            for item in page.get("CommonPrefixes", ()):
                name = item["Prefix"].removeprefix(prefix).rstrip("/")
                entries.append(StoreEntry(name=name, size_bytes=0, modified_ms=0, is_directory=True))
        if not is_there and not entries:
            if self._has_object(_key(path)):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), self.url + path)
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.url + path)
        return sorted(entries, key=lambda entry: entry.name)

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        if length == 0:
            return b""
        end = "" if length is None else start + length - 1
        part = {} if (start, length) == (0, None) else {"Range": f"bytes={start}-{end}"}
        return bytes(self._ask("get_object", Key=_key(path), **part))

    def put(self, path: str, data: bytes) -> None:
        self._ask("put_object", Key=_key(path), Body=data)

    def create(self, path: str, data: bytes) -> bool:
        """Create an object by a conditional put; where the answer is lost, the mark in the object names its writer."""
        key, mark = _key(path), uuid.uuid4().hex
        while True:
            with suppress(FileExistsError):
                self._ask("put_object", Key=key, Body=data, IfNoneMatch="*", Metadata={_MARK: mark})
                return True
            with suppress(FileNotFoundError):  # It was removed meanwhile.
                return bool(self._ask("head_object", Key=key).get("Metadata", {}).get(_MARK) == mark)

    def copy(self, path: str, new: str) -> None:
        self._copy(_key(path), _key(new))

    def copy_from(self, other: Store, path: str, new: str) -> None:
        pieces = other.pieces(path, _LARGE_BYTES)
        first = next(pieces, b"")
        if len(first) < _LARGE_BYTES:
            self.put(new, first)
            return
        self._put_parts(_key(new), "upload_part", ({"Body": piece} for piece in chain([first], pieces)))

    def delete(self, path: str) -> None:
        keys = self._keys(_key(path))
        for at in range(0, len(keys), _AT_ONCE):
            objects = [{"Key": key} for key in keys[at : at + _AT_ONCE]]
            failed = self._ask("delete_objects", Delete={"Objects": objects, "Quiet": True}).get("Errors", ())
            for failure in failed:
                if failure.get("Code") != "NoSuchKey":
                    raise refusal(self.url, f"{failure.get('Key')} cannot be deleted: {failure.get('Message')}")
        self._ask("delete_object", Key=_key(path))

    def make_directory(self, path: str) -> None:
        if _key(path):
            self._ask("put_object", Key=_prefix(_key(path)), Body=b"")

    def move(self, path: str, new: str, last: Sequence[str] = ()) -> None:
        """Copy all objects, then delete the former ones. Who is cut off leaves what lacks the files named `last`."""
        old_key, new_key = _key(path), _key(new)
        is_object = self._has_object(old_key)
        if not is_object:
            self.entry(path)
        if self._is_there(new):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.url + new)

        def order(key: str) -> tuple[bool, int]:
            inside = key.removeprefix(_prefix(old_key))
            return "/" not in inside, last.index(inside) + 1 if inside in last else 0

        keys = [old_key] if is_object else sorted(self._keys(old_key), key=order)
        for key in keys:
            self._copy(key, new_key + key.removeprefix(old_key))
        for key in keys:
            self._ask("delete_object", Key=key)

    def require_conditional(self, folder: str) -> None:
        """Raise PlatformError if two creators of one file here both get the answer that they were the first."""
        if self._keeps_first:
            return
        probe = f"{folder.rstrip('/')}/.probe.{uuid.uuid4().hex[:12]}"
        try:
            if not self.create(probe, b"") or self.create(probe, b"."):
                fault = f"the storage {self.url} cannot keep one driver from writing over another: of two that write a "
                fault += "file, both get the answer that they were the first"
                fix = "name a store with conditional puts (If-None-Match), a path on hdfs://, or a mounted directory"
                raise PlatformError(code="HR837", what=fault, fix=fix)
        finally:
            self._ask("delete_object", Key=_key(probe))
        self._keeps_first = True

    # ------------------------------------------------------------------------------------------------- questions

    def _is_there(self, path: str) -> bool:
        with suppress(FileNotFoundError):
            self.entry(path)
            return True
        return False

    def _has_object(self, key: str) -> bool:
        with suppress(FileNotFoundError):
            self._ask("head_object", Key=key)
            return True
        return False

    def _copy(self, key: str, new: str) -> None:
        if key.endswith("/"):
            self._ask("put_object", Key=new, Body=b"")  # A directory, which some stores do not copy.
            return
        source = {"Bucket": self.bucket, "Key": key}
        try:
            self._ask("copy_object", Key=new, CopySource=source)
        except OSError:
            size = int(self._ask("head_object", Key=key)["ContentLength"])
            if size <= _COPY_BYTES:
                raise
            ranges = ((start, min(start + _COPY_PART_BYTES, size) - 1) for start in range(0, size, _COPY_PART_BYTES))
            parts = ({"CopySource": source, "CopySourceRange": f"bytes={start}-{end}"} for start, end in ranges)
            self._put_parts(new, "upload_part_copy", parts)

    def _put_parts(self, key: str, verb: str, parts: Iterable[Mapping[str, Any]]) -> None:
        """Put an object by several requests; it exists, whole, after the last one."""
        upload = {"Key": key, "UploadId": self._ask("create_multipart_upload", Key=key)["UploadId"]}
        try:
            tags = []
            for number, part in enumerate(parts, start=1):
                answer = self._ask(verb, PartNumber=number, **upload, **part)
                tag = answer.get("CopyPartResult", answer)["ETag"]
                tags.append({"PartNumber": number, "ETag": tag})
            self._ask("complete_multipart_upload", MultipartUpload={"Parts": tags}, **upload)
        except BaseException:
            with suppress(OSError, PlatformError):
                self._ask("abort_multipart_upload", **upload)
            raise

    def _keys(self, key: str) -> list[str]:
        """The keys below a directory, those inside a directory before its own."""
        pages = self._pages(Prefix=_prefix(key))
        return sorted((item["Key"] for page in pages for item in page.get("Contents", ())), reverse=True)

    def _pages(self, **options: Any) -> Iterator[Mapping[str, Any]]:
        more: dict[str, str] = {}
        while True:
            page = self._ask("list_objects_v2", **options, **more)
            yield page
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def _ask(self, verb: str, **options: Any) -> Any:
        try:
            return sync(self._fs.loop, self._answer, verb, options)
        except BotoCoreError as error:
            raise error_without_answer(self._at, error) from error
        except OSError as error:
            answer = error.__cause__
            if not isinstance(answer, ClientError):
                raise error_without_answer(self._at, error) from error
            if verb == "head_object" and answer.response["ResponseMetadata"]["HTTPStatusCode"] in (400, 403):
                # Such an answer has no body that says why; that of another question has.
                self._ask("list_objects_v2", Prefix=options["Key"], MaxKeys=1)
            if answer.response["Error"].get("Code") == "InvalidRange":
                return b""
            raise error_of_answer(self.url, self._at, str(options.get("Key", "")), answer) from error

    async def _answer(self, verb: str, options: Mapping[str, Any]) -> Any:
        answer = await self._fs._call_s3(verb, Bucket=self.bucket, **options)
        if verb != "get_object":
            return answer
        async with answer["Body"] as body:
            return await body.read()

    @property
    def _at(self) -> str:
        named = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        return f"{self.url} (at {self._fs.endpoint_url or named})" if self._fs.endpoint_url or named else self.url


def _entry(name: str, facts: Mapping[str, Any]) -> StoreEntry:
    return StoreEntry(
        name=name,
        size_bytes=int(facts["ContentLength"] if "ContentLength" in facts else facts["Size"]),
        modified_ms=int(facts["LastModified"].timestamp() * 1000),
        is_directory=False,
        etag=str(facts.get("ETag", "")).strip('"') or None,
    )


def _key(path: str) -> str:
    return path.strip("/")


def _prefix(key: str) -> str:
    return f"{key}/" if key else ""


def _url(endpoint: str | None, *, secure: bool) -> str | None:
    """Add the scheme, which Hadoop does not require."""
    if endpoint and "://" not in endpoint:
        return f"{'https' if secure else 'http'}://{endpoint}"
    return endpoint


def error_without_answer(where: str, error: BaseException) -> Exception:
    """The error where no request was sent, or no answer came. where: the bucket and its endpoint."""
    if isinstance(error, NoCredentialsError):
        return refusal(where, "no credentials are found where AWS's tools look for them")
    if isinstance(error, BotoCoreError) and not isinstance(error, HTTPClientError | EndpointError):
        return refusal(where, first_line(error) or type(error).__name__)
    return silent(where, reason_of(error))


def error_of_answer(url: str, where: str, key: str, error: ClientError) -> Exception:
    """The error for an answer that refuses a request."""
    details = error.response["Error"]
    code = str(details.get("Code", ""))
    message = str(details.get("Message") or first_line(error)).strip().splitlines()[0].rstrip(".")
    status = int(error.response["ResponseMetadata"]["HTTPStatusCode"])
    if code == "NoSuchBucket":
        fault = f"the bucket of the storage {where} is not there"
        fix = f"make the bucket '{url.partition('://')[2]}', or name another one in `storage`"
        return PlatformError(code="HR836", what=fault, fix=fix)
    if code in _MISSING:
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{url}/{key}")
    if code in _TAKEN or status == 412:
        return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), f"{url}/{key}")
    if code in _ELSEWHERE:
        return refusal(where, f"{message}: set fs.s3a.endpoint.region, or AWS_REGION, to the bucket's region")
    if status in (401, 403, 404) or code in ("ExpiredToken", "InvalidToken", "TokenRefreshRequired"):
        return refusal(where, f"{message} ({code})")
    if status >= 500 or code in ("SlowDown", "RequestTimeout"):
        return silent(where, f"{message} ({code})")
    return OSError(errno.EIO, f"{message} ({code})", f"{url}/{key}")
