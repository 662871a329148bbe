"""Compacted topics on a node: what stays, what goes, and that the offsets topic does not grow."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from harness.wire import Plain, Wire, batch, records_of, until
from headwater.protocol.messages.find_coordinator import FindCoordinatorRequest
from headwater.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headwater.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headwater.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headwater.testing import EmbeddedBroker
from tests.conftest import MakeBroker

# An index entry for each batch and room for few of them: a segment is full after some batches.
SMALL: dict[str, Any] = {"segment_index_bytes": "96", "index_interval_bytes": "0"}
DIRTY: dict[str, Any] = {"min_cleanable_dirty_ratio": "0.01", "delete_retention_ms": "0"}
OFTEN = {"log.cleaner.backoff.ms": "50", "log.retention.check.interval.ms": "100"}
TOPIC_CONFIG, SET = 2, 0
BROKER_CONFIG = 4


def contents(wire: Wire, topic: str) -> dict[int, tuple[bytes | None, bytes | None]]:
    """Key and value by offset, read as a consumer reads: on from behind the last batch."""
    from headwater import _core

    found: dict[int, tuple[bytes | None, bytes | None]] = {}
    offset = 0
    while True:
        data = wire.fetch(topic, offset)
        assert data.error_code == 0
        found |= {r.offset: (r.key, r.value) for r in records_of(data, offset)}
        batches = _core.scan(data.records or b"")[0]
        if not batches:
            return found
        offset = batches[-1].last_offset + 1


def put(wire: Wire, topic: str, *rows: tuple[bytes, bytes | None]) -> None:
    for key, value in rows:
        answer = wire.produce(topic, batch([Plain(value, key)]))
        assert answer.error_code == 0, answer.error_message


def alter(wire: Wire, kind: int, name: str, **configs: str) -> None:
    changes = [
        AlterableConfig(name=key.replace("_", "."), config_operation=SET, value=value)
        for key, value in configs.items()
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
    (answer,) = wire.ask(
        IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    ).responses
    assert answer.error_code == 0, answer.error_message


@pytest.mark.parametrize("in_memory", [True, False], ids=["memory", "disk"])
def test_the_last_value_of_each_key_stays_at_its_offset(
    make_broker: MakeBroker, tmp_path: Path, topic: str, in_memory: bool
) -> None:
    broker = make_broker(OFTEN, data=None if in_memory else tmp_path / "data")
    with Wire(broker.bootstrap) as wire:
        wire.create_topic(topic, cleanup_policy="compact", **SMALL, **DIRTY)
        rows = [(b"key %d" % (n % 5), b"value %d" % n) for n in range(100)]
        put(wire, topic, *rows)
        until(lambda: len(contents(wire, topic)) < 40, "compaction")
        written = dict(enumerate(rows))
        found = contents(wire, topic)
        assert found.items() <= written.items()
        assert {95 + n: written[95 + n] for n in range(5)}.items() <= found.items()
        assert wire.offset_at(topic, -2).offset == 0
        assert wire.offset_at(topic, -1).offset == 100
        until(lambda: any("compacted up to" in line for line in broker.log_lines), "a line")
    broker.restart()
    with Wire(broker.bootstrap) as wire:
        assert contents(wire, topic).keys() <= found.keys()
        put(wire, topic, (b"key 0", b"again"))
        assert wire.offset_at(topic, -1).offset == 101
    assert not [line for line in broker.log_lines if " ERROR " in line]


def test_deletion_marks_go_and_take_their_key_along(make_broker: MakeBroker, topic: str) -> None:
    broker = make_broker(OFTEN)
    with Wire(broker.bootstrap) as wire:
        wire.create_topic(topic, cleanup_policy="compact", **SMALL, **DIRTY)
        put(wire, topic, *((b"gone", b"%d" % n) for n in range(10)), (b"gone", None))
        filler = iter(range(10_000))

        def is_gone() -> bool:
            put(wire, topic, (b"filler", b"%d" % next(filler)))
            return all(key != b"gone" for key, _ in contents(wire, topic).values())

        until(is_gone, "the end of a deleted key")
    assert not [line for line in broker.log_lines if " ERROR " in line]


def test_a_deletion_mark_stays_as_long_as_readers_may_need_it(
    make_broker: MakeBroker, topic: str
) -> None:
    broker = make_broker(OFTEN)
    with Wire(broker.bootstrap) as wire:
        lasting = DIRTY | {"delete_retention_ms": "86400000"}
        wire.create_topic(topic, cleanup_policy="compact", **SMALL, **lasting)
        put(wire, topic, (b"gone", b"1"), (b"gone", None))
        put(wire, topic, *((b"filler", b"%d" % n) for n in range(100)))
        until(lambda: len(contents(wire, topic)) < 40, "compaction")
        assert (b"gone", None) in contents(wire, topic).values()
        assert (b"gone", b"1") not in contents(wire, topic).values()


def test_compaction_follows_settings_that_change_while_the_node_runs(
    make_broker: MakeBroker, topic: str
) -> None:
    broker = make_broker(OFTEN)
    with Wire(broker.bootstrap) as wire:
        wire.create_topic(topic, **SMALL, **DIRTY)
        put(wire, topic, *((b"k", b"%d" % n) for n in range(60)))
        alter(wire, BROKER_CONFIG, "", log_cleaner_threads="2", log_cleaner_backoff_ms="60")
        alter(wire, TOPIC_CONFIG, topic, cleanup_policy="compact,delete")
        until(lambda: len(contents(wire, topic)) < 20, "compaction")
        alter(wire, TOPIC_CONFIG, topic, cleanup_policy="delete")
        put(wire, topic, *((b"k", b"%d" % n) for n in range(60)))
        assert len(contents(wire, topic)) >= 60
    assert not [line for line in broker.log_lines if " ERROR " in line]


def test_a_node_without_a_cleaner_compacts_nothing(make_broker: MakeBroker, topic: str) -> None:
    broker = make_broker(OFTEN | {"log.cleaner.enable": "false"})
    with Wire(broker.bootstrap) as wire:
        wire.create_topic(topic, cleanup_policy="compact", **SMALL, **DIRTY)
        put(wire, topic, *((b"k", b"%d" % n) for n in range(60)))
        # Something else that runs by the clock has had several turns meanwhile.
        wire.create_topic(topic + "-other", retention_bytes="100", **SMALL)
        put(wire, topic + "-other", *((b"k", b"%d" % n) for n in range(60)))
        until(lambda: wire.offset_at(topic + "-other", -2).offset > 0, "retention")
        assert len(contents(wire, topic)) == 60


# The topic that offsets are committed to.

GROUPS = [f"group {n}" for n in range(4)]
OFFSETS = {
    **OFTEN,
    "offsets.topic.num.partitions": "1",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.index.interval.bytes": "0",
    "log.index.size.max.bytes": "240",
}


def commit(wire: Wire, group: str, topic: str, offset: int) -> None:
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=None
        )
    ]
    request = OffsetCommitRequest(
        group_id=group,
        member_id="",
        generation_id_or_member_epoch=-1,
        topics=[
            OffsetCommitRequestTopic(
                name=topic, topic_id=wire.topic_id(topic), partitions=partitions
            )
        ],
    )

    def is_taken() -> bool:
        ((answer,),) = (topic.partitions for topic in wire.ask(request).topics)
        return bool(answer.error_code == 0)

    until(is_taken, "a coordinator that takes a commit")


def committed(wire: Wire, group: str, topic: str) -> int:
    wanted = OffsetFetchRequestTopics(
        name=topic, topic_id=wire.topic_id(topic), partition_indexes=[0]
    )
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[wanted])])

    def found() -> int | None:
        (answer,) = wire.ask(request).groups
        if answer.error_code:
            return None
        ((partition,),) = (topic.partitions for topic in answer.topics)
        return int(partition.committed_offset)

    return until(found, "a coordinator that knows its offsets")


def log_bytes(data: Path) -> int:
    total = 0
    for file in (data / "__consumer_offsets-0").glob("*.log"):
        with contextlib.suppress(FileNotFoundError):  # compaction was quicker
            total += file.stat().st_size
    return total


def coordinate(broker: EmbeddedBroker, topic: str) -> Any:
    with Wire(broker.bootstrap) as wire:
        wire.topic_id(topic)
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=GROUPS)
        until(lambda: all(c.error_code == 0 for c in wire.ask(find).coordinators), "coordinators")


def test_the_offsets_topic_stays_small_and_a_restart_finds_the_last_offsets(
    make_broker: MakeBroker, tmp_path: Path, topic: str
) -> None:
    data = tmp_path / "data"
    broker = make_broker(OFFSETS, data=data)
    coordinate(broker, topic)
    with Wire(broker.bootstrap) as wire:
        commit(wire, GROUPS[0], topic, 7)
        one = log_bytes(data)
        for offset in range(150):
            for group in GROUPS:
                commit(wire, group, topic, offset)
        # What is live, and some segments that are active or not yet looked at.
        until(lambda: log_bytes(data) < 60 * one, "compaction of the offsets")
        assert wire.offset_at("__consumer_offsets", -1).offset >= 601
    broker.restart()
    with Wire(broker.bootstrap) as wire:
        assert [committed(wire, group, topic) for group in GROUPS] == [149] * len(GROUPS)
        for group in GROUPS:
            commit(wire, group, topic, 1000)
        assert [committed(wire, group, topic) for group in GROUPS] == [1000] * len(GROUPS)
    assert not [line for line in broker.log_lines if " ERROR " in line]
