"""Consumer groups: Kafka's own tools and other people's clients, alone and mixed in one group."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conformance.conftest import Subject
from conformance.records import create_topic, produce
from harness.group_storm import (
    CLASSIC,
    MODERN,
    STORM_SETTINGS,
    Member,
    Storm,
    read_by,
    start_member,
)
from harness.kafka_jars import java_command
from harness.nodes import Node, run_java
from headwater.blocking import Admin
from headwater.cli.group_describe import find_group
from headwater.client.admin import Group

_HERE = Path(__file__).parent
_PATIENCE = 60.0
PROTOCOLS = ("classic", "consumer")
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


def _values(count: int, name: str = "value") -> list[bytes]:
    return [f"{name}-{number}".encode() for number in range(count)]


def _until(look: Callable[[], Any], what: str, seconds: float = _PATIENCE) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain for {what}"
        time.sleep(0.1)
    return found


def _group(subject: Subject, group_id: str) -> Group | None:
    with Admin(subject.bootstrap) as admin:
        return find_group(admin, group_id)


def _settled(subject: Subject, group_id: str, members: int, partitions: int) -> Group | None:
    """The group, if it is stable with so many members that share so many partitions."""
    group = _group(subject, group_id)
    if group is None or group.state != "Stable" or len(group.members) != members:
        return None
    owned = [each for member in group.members for each in member.assigned]
    assert len(owned) == len(set(owned)), "a partition has two owners"
    return group if len(owned) == partitions else None


@contextmanager
def _running(members: list[Member]) -> Iterator[None]:
    try:
        yield
    finally:
        for member in members:
            member.process.kill()
            member.process.wait()


def _read(members: list[Member]) -> list[str]:
    return [value for member in members for value in read_by(member)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_verifiable_consumers_read_every_acknowledged_record_once(
    subject: Subject, topic: str, protocol: str, tmp_path: Path
) -> None:
    create_topic(subject.bootstrap, topic, 6)
    consumer = "org.apache.kafka.tools.VerifiableConsumer"
    arguments = ["--bootstrap-server", subject.bootstrap, "--topic", topic]
    arguments += ["--group-id", f"{topic}-group", "--group-protocol", protocol, "--verbose"]
    members = []
    for number in range(2):
        story = tmp_path / f"consumer-{number}.json"
        with story.open("wb") as output:
            command = java_command(subject.jars, consumer, *arguments, options=("-Xmx256M",))
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL)
        members.append(Member(str(number), process, story))
    with _running(members):
        _until(lambda: _settled(subject, f"{topic}-group", 2, 6), "both consumers")
        sent = ["--topic", topic, "--max-messages", "3000", "--throughput", "-1", "--acks", "-1"]
        printed = subject.tool("org.apache.kafka.tools.VerifiableProducer", *sent)
        assert json.loads(printed.strip().splitlines()[-1])["acked"] == 3000

        def consumed() -> list[tuple[object, object]]:
            return [
                (event["partition"], event["offset"])
                for member in members
                for event in member.events()
                if event["name"] == "record_data"
            ]

        _until(lambda: len(consumed()) >= 3000, "3000 records")
        for member in members:
            member.process.send_signal(signal.SIGTERM)
            member.process.wait(_PATIENCE)
        found = consumed()
        assert len(set(found)) == len(found) == 3000
        commits = [
            event
            for member in members
            for event in member.events()
            if event["name"] == "offsets_committed"
        ]
        assert commits
        assert all(event["success"] for event in commits)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_console_consumers_of_a_group_go_on_where_the_last_one_stopped(
    subject: Subject, topic: str, protocol: str
) -> None:
    create_topic(subject.bootstrap, topic)
    produce(subject.bootstrap, topic, "none", _values(60))
    arguments = ["--topic", topic, "--group", f"{topic}-group", "--timeout-ms", "30000"]
    arguments += ["--consumer-property", f"group.protocol={protocol}"]
    arguments += ["--consumer-property", "auto.offset.reset=earliest", "--max-messages", "30"]
    first = subject.tool(CONSOLE_CONSUMER, *arguments).splitlines()
    second = subject.tool(CONSOLE_CONSUMER, *arguments).splitlines()
    printed = [line for line in first + second if line.startswith("value-")]
    assert printed == [value.decode() for value in _values(60)]


def test_consumer_performance_runs_through(subject: Subject, topic: str) -> None:
    create_topic(subject.bootstrap, topic, 3)
    for partition in range(3):
        produce(subject.bootstrap, topic, "lz4", _values(2000), partition)
    arguments = ["--topic", topic, "--num-records", "6000", "--timeout", "30000"]
    arguments += ["--bootstrap-server", subject.bootstrap, "--hide-header"]
    done = run_java(subject.jars, "org.apache.kafka.tools.ConsumerPerformance", *arguments)
    assert done.stdout.strip().splitlines()[-1].split(",")[4].strip() == "6000", done.stdout


def _consume_with_group(subject: Subject, topic: str, group_id: str, count: int) -> None:
    arguments = ["--topic", topic, "--group", group_id, "--timeout-ms", "30000"]
    arguments += ["--consumer-property", "auto.offset.reset=earliest"]
    subject.tool(CONSOLE_CONSUMER, *arguments, "--max-messages", str(count))


def test_consumer_group_command_lists_describes_resets_and_deletes(
    subject: Subject, topic: str
) -> None:
    group_id = f"{topic}-group"
    create_topic(subject.bootstrap, topic)
    produce(subject.bootstrap, topic, "none", _values(40))
    _consume_with_group(subject, topic, group_id, 40)
    assert group_id in subject.tool(GROUPS, "--list").splitlines()
    stated = subject.tool(GROUPS, "--list", "--state", "Empty").splitlines()
    assert [group_id, "Empty"] in [line.split() for line in stated]
    typed = subject.tool(GROUPS, "--list", "--type", "Classic").splitlines()
    assert any(line.split()[:1] == [group_id] for line in typed)
    described = subject.tool(GROUPS, "--describe", "--group", group_id)
    (row,) = [line.split() for line in described.splitlines() if line.startswith(f"{group_id} ")]
    assert row[:6] == [group_id, topic, "0", "40", "40", "0"]
    state = subject.tool(GROUPS, "--describe", "--group", group_id, "--state")
    assert "Empty" in state
    asked = ["--reset-offsets", "--group", group_id, "--topic", topic]
    preview = subject.tool(GROUPS, *asked, "--shift-by", "-15", "--dry-run")
    assert [group_id, topic, "0", "25"] in [line.split()[:4] for line in preview.splitlines()]
    subject.tool(GROUPS, *asked, "--to-earliest", "--execute")
    described = subject.tool(GROUPS, "--describe", "--group", group_id)
    assert [topic, "0", "0", "40", "40"] in [line.split()[1:6] for line in described.splitlines()]
    forgotten = ["--delete-offsets", "--group", group_id, "--topic", topic]
    assert "Successful" in subject.tool(GROUPS, *forgotten)
    _consume_with_group(subject, topic, group_id, 5)
    assert "successful" in subject.tool(GROUPS, "--delete", "--group", group_id)
    assert group_id not in subject.tool(GROUPS, "--list").splitlines()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_consumer_group_command_shows_members_and_refuses_what_would_hurt_them(
    subject: Subject, topic: str, protocol: str, tmp_path: Path
) -> None:
    group_id = f"{topic}-group"
    create_topic(subject.bootstrap, topic, 4)
    client = "librdkafka" if protocol == "classic" else "librdkafka-consumer"
    members = [
        start_member(client, subject.bootstrap, group_id, topic, f"member-{number}", tmp_path)
        for number in range(2)
    ]
    with _running(members):
        _until(lambda: _settled(subject, group_id, 2, 4), "both members")
        shown = subject.tool(GROUPS, "--describe", "--group", group_id, "--members", "--verbose")
        rows = [line.split() for line in shown.splitlines() if line.startswith(f"{group_id} ")]
        assert sorted(row[3] for row in rows) == ["member-0", "member-1"]
        assert [row[4] for row in rows] == ["2", "2"]
        asked = ["--reset-offsets", "--group", group_id, "--topic", topic, "--to-earliest"]
        printed = subject.tool(GROUPS, *asked, "--execute")
        assert "can only be reset if the group" in printed
        assert "not empty" in subject.tool(GROUPS, "--delete", "--group", group_id).lower()
        assert _settled(subject, group_id, 2, 4)


@pytest.mark.parametrize("client", ["librdkafka", "librdkafka-consumer", "kafka-python"])
def test_members_share_the_partitions_and_read_every_record(
    subject: Subject, topic: str, client: str, tmp_path: Path
) -> None:
    create_topic(subject.bootstrap, topic, 4)
    members = [
        start_member(client, subject.bootstrap, topic, topic, f"member-{number}", tmp_path)
        for number in range(3)
    ]
    with _running(members):
        _until(lambda: _settled(subject, topic, 3, 4), "three members")
        values = _values(400)
        for partition in range(4):
            produce(subject.bootstrap, topic, "none", values[partition::4], partition)
        _until(lambda: len(_read(members)) >= 400, "every record")
        assert sorted(_read(members)) == sorted(value.decode() for value in values)


def test_aiokafka_members_share_the_partitions_and_read_every_record(
    subject: Subject, topic: str
) -> None:
    create_topic(subject.bootstrap, topic, 4)
    values = _values(400)
    for partition in range(4):
        produce(subject.bootstrap, topic, "none", values[partition::4], partition)
    assert asyncio.run(_with_aiokafka(subject.bootstrap, topic, 400)) == sorted(values)


async def _with_aiokafka(bootstrap: str, topic: str, count: int) -> list[bytes]:
    from aiokafka import AIOKafkaConsumer

    consumers = [
        AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=topic,
            client_id=f"member-{number}",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        for number in range(2)
    ]
    await asyncio.gather(*(consumer.start() for consumer in consumers))
    try:
        async with asyncio.timeout(_PATIENCE):
            while any(len(consumer.assignment()) != 2 for consumer in consumers):
                await asyncio.gather(*(each.getmany(timeout_ms=100) for each in consumers))
            for consumer in consumers:
                await consumer.seek_to_beginning()
            read: list[bytes] = []
            while len(read) < count:
                for consumer in consumers:
                    batches = await consumer.getmany(timeout_ms=100)
                    read += [each.value for batch in batches.values() for each in batch]
            for consumer in consumers:
                await consumer.commit()
    finally:
        for consumer in consumers:
            await consumer.stop()
    return sorted(read)


def test_kafkajs_members_share_the_partitions_and_read_every_record(
    subject: Subject, topic: str, node_modules: Path, tmp_path: Path
) -> None:
    create_topic(subject.bootstrap, topic, 4)
    values = _values(400)
    for partition in range(4):
        produce(subject.bootstrap, topic, "none", values[partition::4], partition)
    members = [
        _kafkajs(subject, topic, f"member-{number}", node_modules, tmp_path) for number in range(2)
    ]
    with _running(members):
        _until(lambda: _settled(subject, topic, 2, 4), "both members")
        _until(lambda: len(set(_read(members))) >= 400, "every record")
        assert set(_read(members)) == {value.decode() for value in values}


def _kafkajs(subject: Subject, topic: str, name: str, node_modules: Path, folder: Path) -> Member:
    story = folder / f"{name}.json"
    script = str(_HERE / "kafkajs_group_member.js")
    with story.open("wb") as output:
        process = subprocess.Popen(
            ["node", script, subject.bootstrap, topic, topic, name],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "NODE_PATH": str(node_modules)},
        )
    return Member(name, process, story)


def test_clients_of_different_makers_are_members_of_one_group(
    subject: Subject, topic: str, tmp_path: Path
) -> None:
    """They share `range`: librdkafka, kafka-python, aiokafka and Kafka's Java consumer. kafkajs
    speaks a protocol of its own."""
    create_topic(subject.bootstrap, topic, 8)
    members = [
        start_member(client, subject.bootstrap, topic, topic, client, tmp_path)
        for client in ("librdkafka", "kafka-python", "aiokafka")
    ]
    arguments = ["--bootstrap-server", subject.bootstrap, "--topic", topic, "--group-id", topic]
    java = "org.apache.kafka.tools.VerifiableConsumer"
    story = tmp_path / "java.json"
    with story.open("wb") as output:
        command = java_command(subject.jars, java, *arguments, "--verbose", options=("-Xmx256M",))
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL)
    members.append(Member("java", process, story))
    with _running(members):
        group: Group = _until(lambda: _settled(subject, topic, 4, 8), "all four")
        assert group.assignor == "range"
        assert [len(member.assigned) for member in group.members] == [2, 2, 2, 2]
        values = _values(400)
        for partition in range(8):
            produce(subject.bootstrap, topic, "none", values[partition::8], partition)

        def read() -> list[str]:
            events = members[-1].events()
            by_java = [str(each["value"]) for each in events if each["name"] == "record_data"]
            return _read(members[:-1]) + by_java

        _until(lambda: len(read()) >= 400, "every record")
        assert sorted(read()) == sorted(value.decode() for value in values)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("clients", [CLASSIC, MODERN], ids=PROTOCOLS)
def test_a_group_comes_through_a_storm(
    new_node: Callable[..., Node], clients: tuple[str, ...], topic: str
) -> None:
    """For two minutes members join, leave, are killed and paused; no partition has two owners, no
    offset goes back, nobody commits for others, and after each wave the group rests within ten
    seconds and reads on."""
    node = new_node(**{key.replace(".", "_"): value for key, value in STORM_SETTINGS.items()})
    node.start()
    create_topic(node.bootstrap, topic, 12)
    outcome = Storm(node.bootstrap, topic, 12, clients, seed=11).run()
    print(outcome)
    assert outcome.wrong == []
    assert outcome.watch.lies
    assert outcome.watch.ghosts
