"""Whether Spark can be started where a target says, and the sentence when it cannot."""

from __future__ import annotations

import os
import re
import socket

from headrace.errors import Finding, PlatformError
from headrace.spark.master_url import MASTER_FIX, master_fault, master_hosts
from headrace.spark.messages import tidy

ANSWER_SECONDS = 3.0

# What Spark says at its start of settings that no look at their text shows, with what to do.
_REASONS = (
    (r"System memory \d+ must be at least|[Nn]ot enough memory", "set spark.driver.memory to 1g or more"),
    (r"UnknownHostException|Name or service not known|nodename nor servname", "correct the host in master, or in DNS"),
    (r"BindException|[Aa]ddress already in use|Can't assign requested address", "set spark.driver.host or the port"),
    (
        r"ClassNotFoundException|NoClassDefFoundError",
        "correct the class in the project's `spark` settings, or add its jar",
    ),
    (r"HADOOP_CONF_DIR|YARN_CONF_DIR", "export HADOOP_CONF_DIR, the directory of the cluster's settings"),
)


def require_master(master: str) -> None:
    """Raise PlatformError for a master that is none, or a standalone one of which no host answers."""
    if (wrong := master_fault(master)) is not None:
        by = ", which SPARK_MASTER says," if os.environ.get("SPARK_MASTER") == master else ""
        raise PlatformError(Finding(code="HR125", what=f"'{master}'{by} {wrong[0]}", fix=wrong[1]))
    hosts = master_hosts(master)
    reasons = []
    for host, port in hosts:
        try:
            socket.create_connection((host, port), timeout=ANSWER_SECONDS).close()
            return
        except (OSError, OverflowError, UnicodeError) as error:
            reasons.append(f"{host}:{port}: {getattr(error, 'strerror', None) or str(error) or 'no answer'}")
    if hosts:
        what = f"the master {master} does not answer ({'; '.join(reasons)})"
        raise PlatformError(Finding(code="HR126", what=what, fix="start the cluster, or correct the target's master"))


def not_started(error: Exception, master: str) -> PlatformError:
    """Why no session could be made, from an exception of PySpark's or of the JVM's."""
    text = str(error)
    found = re.findall(r"(?:\w+\.)+(\w*(?:Exception|Error)): ?(.+)", text)
    named = f"{found[-1][1]} ({found[-1][0]})" if found else tidy(text)
    if "JAVA_GATEWAY_EXITED" in text or "Java gateway process exited" in text:
        named = "its JVM ended before it answered; what it printed stands above"
    fix = next(
        (fix for pattern, fix in _REASONS if re.search(pattern, text)),
        f"correct the `spark` settings of the target, or its master ({MASTER_FIX})",
    )
    return PlatformError(
        Finding(code="HR127", what=f"Spark cannot be started on {master}: {named or type(error).__name__}", fix=fix)
    )
