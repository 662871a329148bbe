"""Quix Streams with the topologies of `benchmarks.streams_topologies`, exactly once.

    python quix_load.py BOOTSTRAP FOLDER map|count

Runs until it is killed, in an environment of its own that has nothing of ours.
"""

from __future__ import annotations

import importlib
import sys
from datetime import timedelta
from typing import Any


def main() -> None:
    bootstrap, folder, action = sys.argv[1:]
    quix: Any = importlib.import_module("quixstreams")
    app = quix.Application(
        broker_address=bootstrap,
        consumer_group="load",
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        state_dir=folder,
    )
    source = app.topic("input", key_deserializer="str", value_deserializer="str")
    target = app.topic("output", key_serializer="str", value_serializer="str")
    frame = app.dataframe(source)
    if action == "map":
        frame = frame.apply(str.upper)
    else:
        frame = frame.tumbling_window(timedelta(hours=1)).count().current()
        frame = frame.apply(lambda result: str(result["value"]))
    frame.to_topic(target)
    app.run()


if __name__ == "__main__":
    main()
