"""A shard: describing and deleting groups, and loading from the log."""

from __future__ import annotations

import pytest

from headwater.broker.coordinators.records import value_version
from headwater.config import node_config
from headwater.coordination import DecisionBuilder, Record
from headwater.errors import ErrorCode
from headwater.groups.settings import GroupSettings
from headwater.groups.timers import Timer, Timers
from headwater.protocol.messages.list_groups import ListedGroup
from headwater.protocol.records.group_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitValue,
)
from tests.support.group_shards import GROUP, SETTINGS, ShardDesk, subscription

ORDERS = ("orders", 0)


@pytest.fixture
def desk() -> ShardDesk:
    return ShardDesk()


def names(listed: list[ListedGroup]) -> list[str]:
    return [group.group_id for group in listed]


def test_groups_are_listed_by_state_and_type(desk: ShardDesk) -> None:
    desk.member()
    desk.commit({ORDERS: 1}, group="simple")
    assert desk.shard.list_groups([], []) == [
        ListedGroup(
            group_id=GROUP, protocol_type="consumer", group_state="Stable", group_type="classic"
        ),
        ListedGroup(group_id="simple", protocol_type="", group_state="Empty", group_type="classic"),
    ]
    assert names(desk.shard.list_groups(["Stable"], [])) == [GROUP]
    assert names(desk.shard.list_groups([" stable ", "EMPTY"], [])) == [GROUP, "simple"]
    assert names(desk.shard.list_groups(["Nonsense"], [])) == []
    assert names(desk.shard.list_groups([""], [])) == []
    assert names(desk.shard.list_groups([], ["Classic"])) == [GROUP, "simple"]
    assert names(desk.shard.list_groups([], ["consumer"])) == []
    assert names(desk.shard.list_groups([], ["nonsense"])) == []


def test_a_stable_group_is_described_with_the_metadata_of_its_members(desk: ShardDesk) -> None:
    member = desk.member(client="the-client")
    described = desk.describe()
    assert (described.group_state, described.protocol_type) == ("Stable", "consumer")
    assert described.protocol_data == "range"
    [shown] = described.members
    assert (shown.member_id, shown.client_id, shown.client_host) == (
        member,
        "the-client",
        "/127.0.0.1",
    )
    assert (shown.member_metadata, shown.member_assignment) == (subscription("orders"), b"all")


def test_a_group_in_motion_is_described_without_a_protocol(desk: ShardDesk) -> None:
    desk.member()
    desk.join(desk.new_id())
    described = desk.describe()
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert [one.member_metadata for one in described.members] == [b"", b""]


def test_a_group_that_is_not_there_is_dead_and_newer_clients_are_told(desk: ShardDesk) -> None:
    old = desk.describe("never", version=5)
    assert (old.group_state, old.error_code) == ("Dead", ErrorCode.NONE)
    new = desk.describe("never", version=6)
    assert (new.group_state, new.error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)
    assert new.error_message == "Group never not found."


def test_only_empty_groups_are_deleted(desk: ShardDesk) -> None:
    member = desk.member()
    desk.commit({ORDERS: 1}, group="simple")
    assert desk.delete_groups(GROUP, "simple", "never", "simple") == {
        GROUP: ErrorCode.NON_EMPTY_GROUP,
        "simple": ErrorCode.NONE,
        "never": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert desk.committed("simple") == {}
    assert desk.describe("simple").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    desk.leave((member, None))
    assert desk.delete_groups(GROUP) == {GROUP: ErrorCode.NONE}
    assert desk.records[-1] == Record(GroupMetadataKey(group=GROUP), None)


def test_a_deleted_group_forgets_its_pending_members(desk: ShardDesk) -> None:
    pending = desk.new_id()
    assert desk.delete_groups(GROUP) == {GROUP: ErrorCode.NONE}
    assert desk.join_code(desk.join(pending)) == ErrorCode.UNKNOWN_MEMBER_ID
    desk.advance(60.0)
    assert desk.state() == "Dead"


def test_a_group_can_be_made_again_after_it_was_deleted(desk: ShardDesk) -> None:
    member = desk.member()
    desk.leave((member, None))
    desk.delete_groups(GROUP)
    desk.member()
    assert desk.describe().members[0].member_id != member
    assert desk.replayed().durable_state() == desk.shard.durable_state()


def test_the_log_of_a_group_with_an_unknown_protocol_type_loads(desk: ShardDesk) -> None:
    desk.member(kind="connect")
    desk.restart()
    assert desk.describe().protocol_type == "connect"


def test_values_are_written_in_kafkas_versions(desk: ShardDesk) -> None:
    desk.member()
    desk.commit({ORDERS: 1}, group="simple")
    desk.commit({ORDERS: 1}, group="old", retention_ms=1000)
    values = {
        value_version(record.value): type(record.value) for record in desk.records if record.value
    }
    assert values == {3: GroupMetadataValue, 4: OffsetCommitValue, 1: OffsetCommitValue}


def test_settings_come_from_the_node() -> None:
    settings = GroupSettings.of(
        node_config({"group.max.size": "7", "offsets.retention.minutes": "2"})
    )
    assert (settings.group_size_max, settings.offsets_retention_ms) == (7, 120_000)
    assert settings.consumer_assignors == ("uniform", "range")
    assert settings.session_timeout_ms_min == 6000


# Time


def test_a_timer_fires_once_at_its_latest_deadline() -> None:
    fired = []
    timers = Timers()
    timer = Timer(lambda turn: fired.append(turn.now))

    def tick(now: float) -> None:
        for due in timers.due(now):
            due.fire(DecisionBuilder(now, 0))

    timers.set(timer, 10.0)
    timers.set(timer, 20.0)
    assert timers.next_deadline() == 10.0, "it may look too early, never too late"
    tick(10.0)
    assert timers.next_deadline() == 20.0
    timers.set(timer, 15.0)
    tick(15.0)
    tick(20.0)
    assert fired == [15.0]
    timers.set(timer, 30.0)
    timer.cancel()
    tick(30.0)
    assert fired == [15.0]
    assert timers.next_deadline() == float("inf")


def test_an_idle_group_sets_no_timer() -> None:
    desk = ShardDesk(SETTINGS)
    member = desk.member(session_ms=30_000)
    wake = desk.shard.next_deadline()
    for _ in range(100):
        desk.heartbeat(member, 1)
    assert desk.shard.next_deadline() == wake
