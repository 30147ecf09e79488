"""Whether the storage can hold what exactness needs: a known kind that answers and keeps the first of two writers."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.errors import Finding, PlatformError
from headrace.model import Project
from headrace.spark.object_store import CONDITIONAL, PREFIX
from headrace.storage.location import is_known, scheme_of
from headrace.storage.remote import RemotePath
from headrace.storage.store import SCHEMES

_AUTHORITIES = {"hdfs": "host", "s3a": "bucket"}


def storage(project: Project) -> Iterator[Finding]:
    """Storage beyond this machine that is of no known kind, that cannot be reached, or that two drivers could share."""
    where = project.target.where
    scheme = scheme_of(project.target.storage)
    if scheme is not None and scheme not in SCHEMES:
        yield Finding(
            code="HR834",
            what=f"the storage {project.target.storage} is on {scheme}://, of which Headrace does not know that a file "
            "there is whole and written once",
            fix=f"name a path on {' or '.join(f'{each}://' for each in SCHEMES)}, or a local or mounted directory",
            where=where,
        )
        return
    named = next((each for each in SCHEMES if project.target.storage.lower().startswith(f"{each}:")), None)
    if named is not None and (scheme is None or not is_known(project.target.storage)):
        yield Finding(
            code="HR834",
            what=f"the storage {project.target.storage} names no {_AUTHORITIES[named]}, so that only Spark would know "
            "where it lies",
            fix=f"name it: {named}://{_AUTHORITIES[named].upper()}/path",
            where=where,
        )
        return
    if scheme == "s3a" and project.target.spark.get(PREFIX + CONDITIONAL, "true").lower() != "true":
        yield Finding(
            code="HR837",
            what=f"the storage {project.target.storage} cannot keep one driver from writing over another: "
            f"{PREFIX}{CONDITIONAL} is switched off",
            fix="leave that setting out; a store without conditional puts cannot hold the storage",
            where=where,
        )
    try:
        place = project.storage
        if isinstance(place, RemotePath):
            place.exists()
            place.require_conditional()
    except PlatformError as error:
        yield from (finding.but(where=where) for finding in error.findings)
