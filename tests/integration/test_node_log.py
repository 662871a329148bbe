"""The log of a node, as an operator reads it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.wire import Wire
from headwater import __version__
from headwater.metadata import ResourceType
from headwater.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headwater.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headwater.testing import EmbeddedBroker
from tests.conftest import MakeBroker
from tests.support.processes import NodeProcess

SET, DELETE = 0, 1


def alter(
    wire: Wire, kind: int, name: str, key: str, value: str | None, operation: int = SET
) -> int:
    resource = AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[AlterableConfig(name=key, config_operation=operation, value=value)],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    code: int = wire.ask(request).responses[0].error_code
    return code


def messages(broker: EmbeddedBroker) -> list[str]:
    """The lines without their times and levels."""
    return [line.rstrip().split(maxsplit=2)[2] for line in broker.log_lines]


def test_a_start_says_who_the_node_is_and_hides_secrets(make_broker: MakeBroker) -> None:
    broker = make_broker(
        {
            "log.retention.hours": "24",
            "num.partitions": "1",  # the default
            "ssl.key.password": "hunter2",
            "sasl.some.plugin.token": "hunter2",
        }
    )
    (line,) = [line for line in messages(broker) if line.startswith("starting ")]
    assert line.startswith(f"starting headwater {__version__}: pid=")
    assert " node=1 roles=broker,controller listeners=PLAINTEXT://127.0.0.1:0 " in line
    assert " directories=/memory " in line
    assert " log.retention.hours=24 " in line
    assert "num.partitions" not in line
    assert "offsets.topic.replication.factor" not in line  # the default of a node by itself
    assert "ssl.key.password=[hidden]" in line
    assert not [line for line in broker.log_lines if "hunter2" in line]


def test_topics_and_settings_that_change_are_one_line_each(make_broker: MakeBroker) -> None:
    broker = make_broker()
    with Wire(broker.bootstrap) as wire:
        wire.create_topic("orders", partitions=3, **{"retention.ms": "1000"})
        assert alter(wire, ResourceType.TOPIC, "orders", "segment.bytes", "1048576") == 0
        assert alter(wire, ResourceType.TOPIC, "orders", "segment.bytes", None, DELETE) == 0
        assert alter(wire, ResourceType.BROKER, "", "message.max.bytes", "2000000") == 0
        key = "listener.name.plaintext.ssl.key.password"
        assert alter(wire, ResourceType.BROKER, "1", key, "hunter2") == 0
        gone = DeleteTopicsRequest(
            topics=[DeleteTopicState(name="orders", topic_id=bytes(16))], timeout_ms=5000
        )
        assert wire.ask(gone).responses[0].error_code == 0
    broker.stop()
    said = [line for line in messages(broker) if not line.startswith("starting ")]
    assert said == [
        "topic orders created: partitions=3, retention.ms=1000",
        "topic orders: segment.bytes was set to 1048576",
        "topic orders: segment.bytes was reset to its default",
        "all brokers: message.max.bytes was set to 2000000",
        f"broker 1: {key} was set to [hidden]",
        "topic orders deleted",
        "stopped",
    ]


def test_a_restart_does_not_repeat_what_changed_before(make_broker: MakeBroker) -> None:
    broker = make_broker(topics={"orders": 1})
    broker.restart()
    assert [line for line in messages(broker) if "orders" in line] == [
        "topic orders created: partitions=1"
    ]


def test_an_unclean_stop_is_noted_at_the_next_start(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path)
    with node:
        with Wire(node.address) as wire:
            wire.create_topic("orders")
        node.kill()
        assert "not clean" not in node.errors
        node.start()
        assert f"the last stop was not clean: checking the logs in {node.data}" in node.errors


@pytest.mark.parametrize(
    ("logger", "expected"),
    [
        ("headwater.requests", "headwater.requests: DESCRIBE_CLUSTER v"),
        ("headwater.connections", "headwater.connections: 127.0.0.1:"),
        ("headwater.controller", "headwater.controller: 2 records up to offset "),
        ("headwater.storage", "headwater.storage: other-0: leads epoch 0"),
    ],
)
def test_a_logger_at_debug_shows_what_its_part_does(
    make_broker: MakeBroker, logger: str, expected: str
) -> None:
    broker = make_broker()
    with Wire(broker.bootstrap) as wire:
        assert alter(wire, ResourceType.BROKER_LOGGER, "1", logger, "DEBUG") == 0
        wire.describe_cluster()
        wire.create_topic("other")
    with Wire(broker.bootstrap) as wire:
        assert alter(wire, ResourceType.BROKER_LOGGER, "1", logger, None, DELETE) == 0
    debug = [line for line in messages(broker) if line.startswith("headwater.")]
    assert any(line.startswith(expected) for line in debug), debug
    assert all(line.startswith(f"{logger}: ") for line in debug)
    with Wire(broker.bootstrap) as wire:
        wire.describe_cluster()
    assert [line for line in messages(broker) if line.startswith("headwater.")] == debug


def test_a_slow_request_is_one_line_with_its_client_escaped(make_broker: MakeBroker) -> None:
    broker = make_broker({"headwater.log.slow.ms": "1"})

    def slow() -> list[str]:
        return [line for line in messages(broker) if line.startswith("slow request: ")]

    with Wire(broker.bootstrap, client_id="a slow\n\x1b[31mone") as wire:
        wire.create_topic("wide", partitions=300)
        line = next(line for line in slow() if " api=CREATE_TOPICS " in line)
        assert alter(wire, ResourceType.BROKER, "1", "headwater.log.slow.ms", "600000") == 0
        before = len(slow())
        wire.create_topic("wider", partitions=300)
        assert len(slow()) == before
    assert ' client="a slow\\\\n\\\\x1b[31mone" ' in line
    assert " principal=User:ANONYMOUS listener=PLAINTEXT total_ms=" in line
    assert " local_ms=" in line
    assert " request_bytes=" in line


def test_a_fetch_that_waits_for_records_is_not_slow(make_broker: MakeBroker) -> None:
    broker = make_broker({"headwater.log.slow.ms": "300"})
    with Wire(broker.bootstrap) as wire:
        wire.create_topic("orders")
        assert wire.fetch("orders", max_wait_ms=400) is not None
    assert not [line for line in messages(broker) if "slow request" in line and "FETCH" in line]


def test_the_log_can_be_json(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path, "--log-format", "json")
    with node, Wire(node.address, client_id="a\nb") as wire:
        wire.create_topic("orders")
        assert alter(wire, ResourceType.BROKER_LOGGER, "1", "headwater.requests", "DEBUG") == 0
        wire.describe_cluster()
    lines = [json.loads(line) for line in node.errors.splitlines()]
    assert {line["node"] for line in lines} == {1}
    assert lines[0]["message"].startswith("starting headwater")
    created = next(
        line for line in lines if line["message"] == "topic orders created: partitions=1"
    )
    assert (created["level"], created["logger"]) == ("info", "headwater.controller")
    assert [line for line in lines if line["level"] == "debug"]
