"""The way between a driver and its executors, through proxies that do to it what networks do."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType

from headrace.spark.jvm.gateway import descendants
from services.process import free_port
from services.proxy import Proxy

# None that a worker of `headrace cluster start` has.
ADDRESS = "127.0.0.9"


class DriverLink:
    """All that executors ask of a driver, and what it answers: Spark's RPC, its files, and the blocks of broadcasts.

    The driver listens on 127.0.0.1 and gives executors another address of loopback, where proxies listen on the same
    ports. It hands out tasks over the connections that executors have opened, so those pass here too; what it fetches
    from an executor by a connection of its own, such as a result beyond 1 MB, does not.
    """

    def __init__(self) -> None:
        ports: set[int] = set()
        while len(ports) < 2:
            ports.add(free_port())
        self.rpc, self.blocks = (Proxy(port, listen=(ADDRESS, port)) for port in sorted(ports))

    def __enter__(self) -> DriverLink:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for proxy in self.proxies:
            proxy.close()

    @property
    def proxies(self) -> tuple[Proxy, Proxy]:
        return self.rpc, self.blocks

    @property
    def settings(self) -> dict[str, str]:
        """What the driver's target has to set. On another port than these no executor would reach the driver."""
        return {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": ADDRESS,
            "spark.driver.port": str(self.rpc.port),
            "spark.driver.blockManager.port": str(self.blocks.port),
            "spark.port.maxRetries": "0",
        }

    @property
    def held_bytes(self) -> int:
        return sum(proxy.held_bytes for proxy in self.proxies)

    def hold(self, executor: int | None = None) -> int:
        """Keep back what one executor and the driver say, or all; returns how many connections there are."""
        return sum(proxy.hold(executor) for proxy in self.proxies)

    def let_go(self) -> None:
        """Let the network work again."""
        for proxy in self.proxies:
            proxy.let_go()

    def cut(self, executor: int | None = None) -> int:
        """Reset the connections of one executor, or all; returns how many there were."""
        return sum(proxy.cut(executor, reset=True) for proxy in self.proxies)


def worker_of(executor: int, workers: Iterable[int]) -> int | None:
    """Which of the workers has started an executor; None if it is dead by now."""
    return next((pid for pid in workers if executor in descendants(pid)), None)
