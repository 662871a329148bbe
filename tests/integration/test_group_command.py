"""`headwater group` against a broker: what it shows, what it moves, what it refuses.

With HEADWATER_TEST_BOOTSTRAP these claims are aimed at that broker; Apache Kafka meets them too.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from harness.wire import Plain, Wire, batch, until
from headwater.blocking import Admin
from headwater.cli.main import main
from headwater.protocol.messages.heartbeat import HeartbeatRequest
from headwater.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headwater.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headwater.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headwater.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headwater.testing import EmbeddedBroker
from tests.support.group_shards import subscription

Group = Callable[..., Any]
HOUR_MS = 3_600_000


@pytest.fixture
def group(
    shared_broker: EmbeddedBroker,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Group:
    """Runs `headwater group` and gives what it prints, read as JSON if it is."""
    monkeypatch.setenv("HEADWATER_BOOTSTRAP", shared_broker.bootstrap)

    def run(*arguments: str, code: int = 0) -> Any:
        assert main(("group", *arguments)) == code, capsys.readouterr()
        printed = capsys.readouterr()
        if "json" in arguments:
            return json.loads(printed.out)
        return printed.out + printed.err

    # Asking for a coordinator creates the topic that coordinators need.
    with Admin(shared_broker.bootstrap) as admin:
        admin.describe_groups(["any"])
    return run


def commit(wire: Wire, group_id: str, topic: str, offsets: dict[int, int]) -> None:
    request = OffsetCommitRequest(
        group_id=group_id,
        member_id="",
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset, committed_metadata=""
                    )
                    for partition, offset in offsets.items()
                ],
            )
        ],
    )

    def committed() -> bool:
        (about,) = wire.ask(request, 8).topics
        return all(each.error_code == 0 for each in about.partitions)

    until(committed, f"a coordinator for {group_id}")


class Joined:
    """A classic member, by hand: it joins alone and is assigned what it wants."""

    def __init__(self, wire: Wire, group_id: str, topic: str, partitions: list[int]) -> None:
        self.wire, self.group_id = wire, group_id
        self.member_id = ""
        answer = until(self._join, "a place in the group")
        self.generation = answer.generation_id
        numbers = b"".join(number.to_bytes(4) for number in partitions)
        name = len(topic).to_bytes(2) + topic.encode()
        assignment = b"\x00\x00\x00\x00\x00\x01" + name + len(partitions).to_bytes(4) + numbers
        wire.ask(
            SyncGroupRequest(
                group_id=group_id,
                generation_id=self.generation,
                member_id=self.member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[
                    SyncGroupRequestAssignment(
                        member_id=self.member_id, assignment=assignment + b"\xff\xff\xff\xff"
                    )
                ],
            )
        )

    def request(self) -> JoinGroupRequest:
        protocol = JoinGroupRequestProtocol(name="range", metadata=subscription("any"))
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )

    def _join(self) -> Any:
        answer = self.wire.ask(self.request())
        self.member_id = answer.member_id or self.member_id
        return answer if answer.error_code == 0 else None

    def heartbeat(self) -> int:
        request = HeartbeatRequest(
            group_id=self.group_id, generation_id=self.generation, member_id=self.member_id
        )
        code: int = self.wire.ask(request).error_code
        return code

    def leave(self) -> None:
        member = MemberIdentity(member_id=self.member_id)
        self.wire.ask(LeaveGroupRequest(group_id=self.group_id, members=[member]))


def fill(wire: Wire, topic: str, partition: int, timestamps: list[int]) -> None:
    """A record a timestamp; in batches of two, so that positions lie within batches too."""
    for start in range(0, len(timestamps), 2):
        records = [Plain(b"v", timestamp=at) for at in timestamps[start : start + 2]]
        assert wire.produce(topic, batch(records), partition=partition).error_code == 0


def test_lag_is_told_in_records_and_in_seconds(group: Group, wire: Wire, topic: str) -> None:
    wire.create_topic(topic, 3)
    now_ms = int(time.time() * 1000)
    fill(wire, topic, 0, [now_ms - HOUR_MS + 1000 * number for number in range(10)])
    fill(wire, topic, 1, [now_ms])
    commit(wire, topic, topic, {0: 3, 1: 1, 2: 0})
    told = group("describe", topic, "--output", "json")
    assert told["state"] == "Empty"
    assert told["why"].startswith("it has no members")
    assert (told["lag_records"], told["lag_seconds"]) == (7, 6.0)
    lags = {
        each["partition"]: (each["lag_records"], each["lag_seconds"]) for each in told["offsets"]
    }
    assert lags == {0: (7, 6.0), 1: (0, 0.0), 2: (0, 0.0)}
    shown = group("describe", topic)
    assert "7 records, 6.0 s" in shown
    assert "no members" in shown


def test_lag_is_unknown_where_nothing_is_committed(group: Group, wire: Wire, topic: str) -> None:
    wire.create_topic(topic, 2)
    fill(wire, topic, 0, [1, 2, 3])
    member = Joined(wire, topic, topic, [0, 1])
    assert group("describe", topic, "--output", "json")["lag_records"] is None
    assert " unknown\n" in group("describe", topic)
    member.leave()
    commit(wire, topic, topic, {0: 1})
    member = Joined(wire, topic, topic, [0, 1])
    told = group("describe", topic, "--output", "json")
    assert (told["lag_records"], told["lag_seconds"]) == (None, None)
    assert "2 records, 0.0 s; unknown for 1 partition\n" in group("describe", topic)
    member.leave()


def test_members_are_shown_with_what_they_read(group: Group, wire: Wire, topic: str) -> None:
    wire.create_topic(topic, 2)
    member = Joined(wire, topic, topic, [0, 1])
    told = group("describe", topic, "--output", "json")
    assert (told["state"], told["type"], told["why"]) == ("Stable", "classic", None)
    (about,) = told["members"]
    assert (about["client"], about["host"], about["member"]) == (
        "test",
        "127.0.0.1",
        member.member_id,
    )
    assert [each["partition"] for each in about["partitions"]] == [0, 1]
    # A partition that is read and was never committed is shown too.
    assert [each["committed"] for each in told["offsets"]] == [None, None]
    assert f"{topic}:0,1" in group("describe", topic, "--members")
    assert "Stable" not in group("describe", topic, "--members")
    member.leave()


def test_the_members_that_a_group_waits_for_are_named(
    group: Group, wire: Wire, shared_broker: EmbeddedBroker, topic: str
) -> None:
    wire.create_topic(topic)
    first = Joined(wire, topic, topic, [0])
    with Wire(shared_broker.bootstrap, client_id="second") as other:
        second = object.__new__(Joined)
        second.wire, second.group_id, second.member_id = other, topic, ""
        second.member_id = other.ask(second.request()).member_id
        other.send(second.request())
        until(lambda: first.heartbeat() != 0, "the rebalance that the second one causes")
        told = group("describe", topic, "--state", "--output", "json")
        assert told["state"] == "PreparingRebalance"
        if "does not report" not in told["why"]:  # as Apache Kafka's does
            assert told["why"].startswith("it waits for test (127.0.0.1) to rejoin")
        first.leave()


def test_groups_are_listed_by_state_and_type(group: Group, wire: Wire, topic: str) -> None:
    wire.create_topic(topic)
    commit(wire, topic, topic, {0: 0})

    def listed(*options: str) -> bool:
        return any(each["group"] == topic for each in group("list", *options, "--output", "json"))

    assert listed()
    assert listed("--state", "empty", "--state", "stable", "--type", "Classic")
    assert not listed("--state", "Stable")
    assert not listed("--type", "consumer")
    assert topic in group("list")


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (("--to-earliest",), 0),
        (("--to-latest",), 10),
        (("--to-offset", "4"), 4),
        (("--to-offset", "400"), 10),
        (("--to-current",), 6),
        (("--shift", "-2"), 4),
        (("--shift-by", "-3"), 3),
        (("--shift", "100"), 10),
        (("--to-time", "2020-01-01T00:00:03Z"), 3),
        (("--to-datetime", "2020-01-02T00:00:00Z"), 10),
        (("--by-duration", "P1D"), 10),
        (("--by-duration", "P3650D"), 0),
    ],
)
def test_offsets_are_moved_where_they_are_told_to(
    group: Group, wire: Wire, topic: str, where: tuple[str, ...], expected: int
) -> None:
    wire.create_topic(topic, 2)
    fill(wire, topic, 1, [1_577_836_800_000 + 1000 * number for number in range(10)])
    commit(wire, topic, topic, {1: 6})
    asked = ("reset", topic, "--topic", f"{topic}:1", *where)
    preview = group(*asked, "--output", "json")
    assert not preview["executed"]
    (move,) = preview["partitions"]
    assert (move["current"], move["new"], move["difference"]) == (6, expected, expected - 6)
    assert "nothing has changed yet" in group(*asked)
    assert committed(group, topic) == {1: 6}
    assert "done: 1 offset" in group(*asked, "--execute")
    assert committed(group, topic) == {1: expected}


def committed(group: Group, group_id: str) -> dict[int, int]:
    told = group("describe", group_id, "--offsets", "--output", "json")
    return {each["partition"]: each["committed"] for each in told["offsets"]}


def test_an_offset_outside_of_the_log_is_said_to_be_moved_to_its_end(
    group: Group, wire: Wire, topic: str
) -> None:
    wire.create_topic(topic)
    fill(wire, topic, 0, [1, 2, 3])
    asked = ("reset", topic, "--topic", topic, "--to-offset")
    assert f"{topic}-0 has no offset 9; 3 is used instead\n" in group(*asked, "9")
    assert "has no offset" not in group(*asked, "3")


def test_offsets_come_from_a_file(group: Group, wire: Wire, topic: str, tmp_path: Any) -> None:
    wire.create_topic(topic, 2)
    fill(wire, topic, 0, [1, 2, 3])
    path = tmp_path / "offsets.csv"
    path.write_text(f'"{topic}",0,2\n{topic},1,0\n')
    group("reset", topic, "--from-file", str(path), "--yes")
    assert committed(group, topic) == {0: 2, 1: 0}


def test_a_group_with_members_is_neither_moved_nor_deleted(
    group: Group, wire: Wire, topic: str
) -> None:
    wire.create_topic(topic)
    member = Joined(wire, topic, topic, [0])
    asked = ("reset", topic, "--topic", topic, "--to-latest")
    assert "stop its members first: it has 1 member: test (127.0.0.1)" in group(*asked)
    refused = group(*asked, "--execute", code=1)
    assert "nothing was changed" in refused
    assert "it has 1 member: test (127.0.0.1)" in refused
    assert f"stop the members of {topic} first: it has 1 member" in group("delete", topic)
    assert "it has 1 member" in group("delete", topic, "--yes", code=1)
    member.leave()
    until(
        lambda: group("describe", topic, "--output", "json")["state"] == "Empty", "an empty group"
    )
    assert "done" in group(*asked, "--execute")
    assert group("delete", topic, "--yes") == f"{topic}: deleted\n"
    assert "not found" in group("delete", topic, "--yes", code=1)
    assert f"there is no group {topic}" in group("delete", topic, code=1)
    assert "there is no group" in group("describe", topic, code=1)


def test_missing_topics_and_partitions_are_named(group: Group, wire: Wire, topic: str) -> None:
    wire.create_topic(topic)
    name = f"{topic}-none"
    assert f"there is no topic {name}" in group(
        "reset", topic, "--topic", name, "--to-latest", code=1
    )
    assert f"there is no partition {topic}:7" in group(
        "reset", topic, "--topic", f"{topic}:7", "--to-latest", code=1
    )
    assert "has committed no offsets" in group("reset", name, "--all-topics", "--to-latest", code=1)
    assert "has no committed offset to shift" in group(
        "reset", topic, "--topic", topic, "--shift", "1", code=1
    )


def test_deleting_a_group_is_shown_before_it_is_done(group: Group, wire: Wire, topic: str) -> None:
    wire.create_topic(topic, 2)
    commit(wire, topic, topic, {0: 0, 1: 0})
    (told,) = group("delete", topic, "--output", "json")
    assert told == {
        "group": topic,
        "deleted": False,
        "state": "Empty",
        "members": 0,
        "offsets": 2,
    }
    assert "nothing has changed yet: --yes" in group("delete", topic)
    assert committed(group, topic) == {0: 0, 1: 0}


def test_offsets_of_chosen_partitions_are_deleted(group: Group, wire: Wire, topic: str) -> None:
    wire.create_topic(topic, 3)
    commit(wire, topic, topic, {0: 0, 1: 0, 2: 0})
    asked = ("offsets", "delete", topic, "--topic", f"{topic}:0,2")
    told = group(*asked, "--output", "json")
    assert (told["executed"], [each["partition"] for each in told["partitions"]]) == (False, [0, 2])
    assert "nothing has changed yet" in group(*asked)
    assert set(committed(group, topic)) == {0, 1, 2}
    assert group(*asked, "--yes") == f"done: 2 offsets of {topic} deleted\n"
    assert set(committed(group, topic)) == {1}
    said = group(*asked, "--yes", code=1)
    assert f"group {topic} has no committed offset in partition {topic}:0" in said
    said = group("offsets", "delete", topic, "--topic", "elsewhere", code=1)
    assert "has no committed offset in topic elsewhere" in said


def test_offsets_that_a_member_reads_are_not_deleted(group: Group, wire: Wire, topic: str) -> None:
    wire.create_topic("any")  # what `Joined` subscribes to
    commit(wire, topic, "any", {0: 0})
    member = Joined(wire, topic, "any", [0])
    asked = ("offsets", "delete", topic, "--topic", "any", "--yes")
    assert "not deleted: a member of the group reads this topic" in group(*asked, code=1)
    member.leave()
