"""For tests: the embedded broker, clusters as processes, and the simulator.

Nothing is loaded before it is used.

from headwater.testing import EmbeddedBroker

with EmbeddedBroker(topics={"orders": 3}) as broker:
    service = Service(bootstrap=broker.bootstrap)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.testing.cluster import HeadwaterCluster
    from headwater.testing.embedded import EmbeddedBroker
    from headwater.testing.plugin import MakeHeadwaterBroker, MakeHeadwaterCluster

__all__ = ["EmbeddedBroker", "HeadwaterCluster", "MakeHeadwaterBroker", "MakeHeadwaterCluster"]

_WHERE = {
    "EmbeddedBroker": "headwater.testing.embedded",
    "HeadwaterCluster": "headwater.testing.cluster",
    "MakeHeadwaterBroker": "headwater.testing.plugin",
    "MakeHeadwaterCluster": "headwater.testing.plugin",
}


if not TYPE_CHECKING:  # a checker knows the names, and that there are no others

    def __getattr__(name: str) -> object:
        module = _WHERE.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted(__all__)
