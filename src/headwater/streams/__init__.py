"""Streams: Kafka Streams' operators in Python, planned onto Spark.

    from headwater.streams import App, f

    app = App("words")
    lines = app.stream("lines", str)
    words = lines.flat_map(f.explode(f.split(f.lower("value"), " ")))
    words.group_by("value").count(name="counts").to("word-counts")

Building a topology needs no running Spark. Names are loaded when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.streams.app import App
    from headwater.streams.errors import TopologyError
    from headwater.streams.expressions import f
    from headwater.streams.grouped import cogroup
    from headwater.streams.processor import (
        Context,
        ListState,
        MapState,
        Processor,
        Record,
        State,
        VersionedState,
        migration,
    )
    from headwater.streams.processor_test import ProcessorTest
    from headwater.streams.serde import Serde
    from headwater.streams.stream import Stream
    from headwater.streams.table import GlobalTable, Table
    from headwater.streams.topology_test import TopologyTest
    from headwater.streams.view import BlockingTableView, TableView
    from headwater.streams.windows import (
        Window,
        Windowed,
        hopping,
        session,
        sliding,
        tumbling,
    )

_MODULES = {
    "App": "app",
    "BlockingTableView": "view",
    "Context": "processor",
    "GlobalTable": "table",
    "ListState": "processor",
    "MapState": "processor",
    "Processor": "processor",
    "ProcessorTest": "processor_test",
    "Record": "processor",
    "Serde": "serde",
    "State": "processor",
    "Stream": "stream",
    "Table": "table",
    "TableView": "view",
    "TopologyError": "errors",
    "TopologyTest": "topology_test",
    "VersionedState": "processor",
    "Window": "windows",
    "Windowed": "windows",
    "cogroup": "grouped",
    "f": "expressions",
    "hopping": "windows",
    "migration": "processor",
    "session": "windows",
    "sliding": "windows",
    "tumbling": "windows",
}

__all__ = [
    "App",
    "BlockingTableView",
    "Context",
    "GlobalTable",
    "ListState",
    "MapState",
    "Processor",
    "ProcessorTest",
    "Record",
    "Serde",
    "State",
    "Stream",
    "Table",
    "TableView",
    "TopologyError",
    "TopologyTest",
    "VersionedState",
    "Window",
    "Windowed",
    "cogroup",
    "f",
    "hopping",
    "migration",
    "session",
    "sliding",
    "tumbling",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"headwater.streams.{_MODULES[name]}"), name)
