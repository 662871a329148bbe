"""Deleted topics give their space back, also if clients hung up while they read them."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.wire import Wire, batch, until
from headwater.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headwater.testing import EmbeddedBroker
from tests.conftest import MakeBroker

TOPICS = 40
SEGMENT = bytes(256 * 1024)
QUICK = {"log.segment.delete.delay.ms": "0"}


@pytest.fixture
def no_gc() -> Iterator[None]:
    """A collection would close what was left open, some day."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def hang_up_late(broker: EmbeddedBroker, wire: Wire, topic: str) -> None:
    """Fetches at the end of a topic, hangs up, and lets the answer come after that."""
    end = wire.offset_at(topic, -1).offset
    with Wire(broker.bootstrap) as gone:
        gone.topic_id(topic)
        gone.send(*gone.fetch_request(topic, end, max_wait_ms=60_000))
    for _ in range(3):
        wire.produce(topic, batch([SEGMENT]))


def delete_all(wire: Wire, topics: list[str]) -> None:
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=topic, topic_id=bytes(16)) for topic in topics],
        timeout_ms=10_000,
    )
    assert [result.error_code for result in wire.ask(request).responses] == [0] * len(topics)


def open_files() -> list[str]:
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:
            continue
    return found


@pytest.mark.usefixtures("no_gc")
@pytest.mark.parametrize("where", ["disk", "memory"])
def test_the_files_of_deleted_topics_are_closed(
    make_broker: MakeBroker, tmp_path: Path, where: str
) -> None:
    broker = make_broker(QUICK, data=tmp_path / "data" if where == "disk" else None)

    def left_open() -> list[str]:
        if where == "disk":
            root = str(tmp_path)
            return [path for path in open_files() if path.startswith(root) and "deleted" in path]
        # Files in memory have a name, and their folder is not in it.
        return sorted(path for path in open_files() if path.startswith("/memfd:"))

    with Wire(broker.bootstrap) as wire:
        wire.topic_id("stays")
        before = left_open()
        topics = [f"goes-{number}" for number in range(TOPICS)]
        for topic in topics:
            wire.create_topic(topic)
            for _ in range(8):
                wire.produce(topic, batch([SEGMENT]))
            hang_up_late(broker, wire, topic)
        delete_all(wire, topics)

        def all_closed() -> bool:
            still = left_open()
            return len(still) <= len(before)

        until(all_closed, "the files of deleted topics to be closed")
