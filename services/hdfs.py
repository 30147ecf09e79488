"""An HDFS of its own: one NameNode and one DataNode, which answer Spark by RPC and Python by WebHDFS."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen
from xml.sax.saxutils import escape

from services import process
from services.jar_server import JarServer
from services.server import Server

_HOST = "127.0.0.1"
_PORTS = ("rpc", "web", "data", "data-web", "data-rpc")
_LOG4J = """log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %c{2}: %m%n
"""


class HdfsServer(JarServer):
    """The directories of both, and the process of the NameNode; that of the DataNode is `node`."""

    title = "HDFS"
    # That of Hadoop's client among Spark's own jars.
    version = "3.5.0"
    coordinates = (
        f"org.apache.hadoop:hadoop-hdfs:{version}",
        f"org.apache.hadoop:hadoop-hdfs-client:{version}",
        f"org.apache.hadoop:hadoop-common:{version}",
    )

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.node = _DataNode(self)

    @classmethod
    def complete(cls) -> None:
        # Both look for their pages on the class path, and do not start without these directories.
        for pages in ("hdfs", "datanode"):
            (cls.jars() / "webapps" / pages).mkdir(parents=True, exist_ok=True)

    def url(self) -> str:
        """What Spark calls it."""
        return f"hdfs://{_HOST}:{self.port}"

    @property
    def web_address(self) -> str:
        """Where WebHDFS answers: Hadoop's `dfs.namenode.http-address`."""
        return f"{_HOST}:{self.ports()['web']}"

    def install(self) -> None:
        ports = {name: process.free_port() for name in _PORTS}
        (self.home / "ports").write_text(json.dumps(ports))
        (self.home / "port").write_text(str(ports["rpc"]))
        conf = self.home / "conf"
        conf.mkdir()
        self.node.home.mkdir()
        (conf / "log4j.properties").write_text(_LOG4J)
        (conf / "core-site.xml").write_text(
            _site({"fs.defaultFS": self.url(), "hadoop.tmp.dir": str(self.home / "tmp")})
        )
        settings = {
            "dfs.replication": "1",
            "dfs.namenode.name.dir": f"file://{self.home}/name",
            "dfs.namenode.http-address": f"{_HOST}:{ports['web']}",
            "dfs.datanode.data.dir": f"file://{self.home}/data",
            "dfs.datanode.hostname": _HOST,
            "dfs.datanode.address": f"{_HOST}:{ports['data']}",
            "dfs.datanode.http.address": f"{_HOST}:{ports['data-web']}",
            "dfs.datanode.ipc.address": f"{_HOST}:{ports['data-rpc']}",
            "dfs.namenode.handler.count": "4",
            "dfs.namenode.service.handler.count": "2",
            # So that both are ready within seconds, and a DataNode that has died is known as dead as soon.
            "dfs.heartbeat.interval": "1",
            "dfs.namenode.heartbeat.recheck-interval": "1000",
            "dfs.namenode.safemode.extension": "0",
            "dfs.blockreport.initialDelay": "0",
        }
        (conf / "hdfs-site.xml").write_text(_site(settings))
        process.finish(
            [*self.hadoop("namenode.NameNode"), "-format", "-force", "-nonInteractive"], self.user, self.home
        )
        (self.home / "installed").touch()

    def hadoop(self, name: str) -> list[str]:
        """The command of one of Hadoop's main classes."""
        java = self.java("-Xmx256m", f"-Dhadoop.log.dir={self.home}/")
        return [
            *java,
            "-cp",
            f"{self.home}/conf:{self.jars()}:{self.jars()}/*",
            f"org.apache.hadoop.hdfs.server.{name}",
        ]

    def command(self) -> list[str]:
        return self.hadoop("namenode.NameNode")

    def start_once(self) -> None:
        """Start both at once, and wait until a file can be written."""
        if pid := process.running(self.node.home):
            raise process.ServerFault(f"the DataNode of {self.home} runs already, as process {pid}")
        begin = process.size(self.node.log_file)
        node = process.launch(self.node.command(), self.user, self.node.home, self.node.log_file)
        try:
            super().start_once()
        except process.ServerFault as error:
            if process.is_alive(node) or isinstance(error, process.PortTaken):
                raise
            raise process.fault(self.node.log_file, begin) from error

    def answers(self) -> bool:
        """Whether the NameNode is out of safe mode, and knows its DataNode and where each whole file lies."""
        facts = self._bean("FSNamesystemState")
        if facts.get("FSState") != "Operational" or facts.get("NumLiveDataNodes") != 1:
            return False
        # A DataNode is live some moments before it has reported its blocks.
        return b" is HEALTHY" in self._ask(f"fsck?path=/&ugi={self.user.name}")

    def stop(self) -> None:
        self.node.stop()
        super().stop()

    def kill(self) -> None:
        self.node.kill()
        super().kill()

    def _bean(self, name: str) -> dict[str, object]:
        try:
            beans = json.loads(self._ask(f"jmx?qry=Hadoop:service=NameNode,name={name}"))["beans"]
        except ValueError:
            return {}
        return dict(beans[0]) if beans else {}

    def _ask(self, page: str) -> bytes:
        """What a page of the NameNode says; empty where it does not answer."""
        try:
            with urlopen(f"http://{self.web_address}/{page}", timeout=1) as answer:
                return bytes(answer.read())
        except (URLError, OSError):
            return b""

    def ports(self) -> dict[str, int]:
        """The port of each thing that listens."""
        return dict(json.loads((self.home / "ports").read_text()))


class _DataNode(Server):
    """The process that holds the blocks, to be stopped and killed by itself."""

    def __init__(self, whole: HdfsServer) -> None:
        super().__init__(whole.home / "node", whole.user)
        self._whole = whole

    @staticmethod
    def missing() -> str | None:
        return HdfsServer.missing()

    def url(self) -> str:
        return self._whole.url()

    def install(self) -> None:
        """With the whole."""

    def command(self) -> list[str]:
        # The directory in the command line shows `running` whose process it is.
        first, *rest = self._whole.hadoop("datanode.DataNode")
        return [first, f"-Dheadrace.home={self.home}/", *rest]

    def answers(self) -> bool:
        """Whether it serves blocks; the NameNode believes in one that has died for some seconds more."""
        try:
            with socket.create_connection((_HOST, self._whole.ports()["data-web"]), timeout=1):
                return self._whole.answers()
        except OSError:
            return False


def _site(settings: dict[str, str]) -> str:
    properties = (
        f"<property><name>{name}</name><value>{escape(value)}</value></property>\n" for name, value in settings.items()
    )
    return f"<configuration>\n{''.join(properties)}</configuration>\n"
