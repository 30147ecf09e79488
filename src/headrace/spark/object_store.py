"""How Spark reaches a bucket: by Hadoop's client, with the credentials and the endpoint that AWS's tools would take.

Nothing of them is written into a file of Headrace's: what stands in the environment is given to the session alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

JARS = "s3"
# What writes a checkpoint's files there.
SOURCE = "ConditionalCheckpointFileManager.java"
FILE_MANAGER = "headrace.ConditionalCheckpointFileManager"
PREFIX = "spark.hadoop.fs.s3a."
CONDITIONAL = "create.conditional.enabled"
SETTINGS = {
    # Hadoop's own first, which take what the settings say; then that of the SDK, which looks where AWS's tools do.
    f"{PREFIX}aws.credentials.provider": (
        "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider,"
        "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider,"
        "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
    ),
    # A file that is to be the first is put under the condition that none is there.
    f"{PREFIX}{CONDITIONAL}": "true",
    # The other one reads ahead, which gains nothing for small files and needs a further library.
    f"{PREFIX}input.stream.type": "classic",
}


def settings(own: Mapping[str, str], environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """What of the environment a session needs beside its `own` settings: Hadoop's client asks for less of it."""
    environ = os.environ if environ is None else environ
    endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL")
    # As AWS's tools for Python do; Hadoop's client takes another one where an endpoint has no region in its name.
    usual = "us-east-1" if endpoint or f"{PREFIX}endpoint" in own else None
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or usual
    wanted = {f"{PREFIX}endpoint": endpoint, f"{PREFIX}endpoint.region": region}
    return {key: value for key, value in wanted.items() if value is not None and key not in own}
