"""What S3 says when it does not do what it was asked: as the faults that every store has."""

from __future__ import annotations

import errno
import os

from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, NoCredentialsError
from botocore.exceptions import ConnectionError as EndpointError

from headrace.errors import Finding, HeadraceError, PlatformError
from headrace.storage.store import refused, silent

_ELSEWHERE = ("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException")
_MISSING = ("NoSuchKey", "NoSuchVersion", "NotFound", "404")
_TAKEN = ("PreconditionFailed", "ConditionalRequestConflict", "OperationAborted")


def unanswered(where: str, error: BaseException) -> Exception:
    """What is raised when nothing was asked, or nothing was answered. where: the bucket and its endpoint."""
    if isinstance(error, NoCredentialsError):
        return refused(where, "no credentials are found where AWS's tools look for them")
    if isinstance(error, BotoCoreError) and not isinstance(error, HTTPClientError | EndpointError):
        return refused(where, _first_line(error))
    return silent(where, _reason(error))


def answered(url: str, where: str, key: str, error: ClientError) -> Exception:
    """What is raised for an answer that says no."""
    told = error.response["Error"]
    code, said = str(told.get("Code", "")), str(told.get("Message") or _first_line(error)).strip().splitlines()[0]
    status = int(error.response["ResponseMetadata"]["HTTPStatusCode"])
    if code == "NoSuchBucket":
        return no_such_bucket(url, where)
    if code in _MISSING:
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{url}/{key}")
    if code in _TAKEN or status == 412:
        return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), f"{url}/{key}")
    if code in _ELSEWHERE:
        return refused(where, f"{said.rstrip('.')}: set fs.s3a.endpoint.region, or AWS_REGION, to the bucket's region")
    if status in (401, 403, 404) or code in ("ExpiredToken", "InvalidToken", "TokenRefreshRequired"):
        return refused(where, f"{said.rstrip('.')} ({code})")
    if status >= 500 or code in ("SlowDown", "RequestTimeout"):
        return silent(where, f"{said.rstrip('.')} ({code})")
    return OSError(errno.EIO, f"{said.rstrip('.')} ({code})", f"{url}/{key}")


def no_such_bucket(url: str, where: str) -> HeadraceError:
    """The fault of a bucket that nobody has made."""
    return PlatformError(
        Finding(
            code="HR836",
            what=f"the bucket of the storage {where} is not there",
            fix=f"make the bucket '{url.partition('://')[2]}', or name another one in `storage`",
        )
    )


def not_conditional(url: str, why: str) -> HeadraceError:
    """The fault of a store that lets two writers both be the first."""
    return PlatformError(
        Finding(
            code="HR837",
            what=f"the storage {url} cannot keep one driver from writing over another: {why}",
            fix="name a store with conditional puts (If-None-Match), a path on hdfs://, or a mounted directory",
        )
    )


def _reason(error: BaseException) -> str:
    kind = type(error).__name__
    if "Timeout" in kind:
        return "it does not answer in time"
    text = _first_line(error)
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, OSError) and inner.errno and inner.errno > 0:
            return os.strerror(inner.errno)
        told = getattr(inner, "kwargs", {}).get("error")
        inner = told if isinstance(told, BaseException) else inner.__cause__ or inner.__context__
    return text


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
