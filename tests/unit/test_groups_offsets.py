"""Offsets: which commits are accepted, what is read, and when offsets expire."""

from __future__ import annotations

import pytest

from headwater.coordination import Record
from headwater.errors import ErrorCode
from headwater.groups.settings import GroupSettings
from headwater.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from headwater.protocol.records.group_offsets import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tests.support.group_shards import (
    GROUP,
    SETTINGS,
    FakeTopics,
    ShardDesk,
    protocols,
    subscription,
)

ORDERS = ("orders", 0)
DAY = 24 * 3600.0
WEEK = 7 * DAY
PRODUCER = 7


@pytest.fixture
def desk() -> ShardDesk:
    return ShardDesk()


# Permission to commit


def test_a_commit_without_membership_creates_a_group_that_has_only_offsets(desk: ShardDesk) -> None:
    assert desk.commit({ORDERS: 5, ("orders", 1): 7}) == [ErrorCode.NONE] * 2
    assert desk.committed() == {ORDERS: 5, ("orders", 1): 7}
    described = desk.describe()
    assert (described.group_state, described.protocol_type) == ("Empty", "")


def test_the_group_of_no_name_may_have_offsets(desk: ShardDesk) -> None:
    assert desk.commit({ORDERS: 5}, group="") == [ErrorCode.NONE]
    assert desk.committed("") == {ORDERS: 5}


def test_a_member_commits_with_its_generation(desk: ShardDesk) -> None:
    member = desk.member()
    assert desk.commit({ORDERS: 5}, member, 1) == [ErrorCode.NONE]
    assert desk.commit({ORDERS: 6}, member, 0) == [ErrorCode.ILLEGAL_GENERATION]
    assert desk.commit({ORDERS: 6}, member, 2) == [ErrorCode.ILLEGAL_GENERATION]
    assert desk.commit({ORDERS: 6}, "nobody", 1) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert desk.commit({ORDERS: 6}, member, 1, instance="ghost") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert desk.committed() == {ORDERS: 5}


def test_only_members_commit_to_a_group_that_has_members(desk: ShardDesk) -> None:
    desk.member()
    assert desk.commit({ORDERS: 6}) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert desk.committed() == {}


def test_a_member_may_commit_while_others_rejoin_but_not_while_it_must_sync(
    desk: ShardDesk,
) -> None:
    member = desk.member()
    newcomer = desk.new_id()
    desk.join(newcomer)
    assert desk.commit({ORDERS: 5}, member, 1) == [ErrorCode.NONE]
    desk.join(member)
    assert desk.commit({ORDERS: 6}, member, 2) == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert desk.commit({ORDERS: 6}, member, 1) == [ErrorCode.ILLEGAL_GENERATION]


def test_a_generation_of_a_group_that_is_not_there_is_refused(desk: ShardDesk) -> None:
    assert desk.commit({ORDERS: 5}, "x", 3, version=8) == [ErrorCode.ILLEGAL_GENERATION]
    assert desk.commit({ORDERS: 5}, "x", 3, version=9) == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert not desk.records


def test_after_everybody_has_left_anybody_may_commit_without_a_generation(
    desk: ShardDesk,
) -> None:
    member = desk.member()
    desk.leave((member, None))
    assert desk.commit({ORDERS: 5}) == [ErrorCode.NONE]
    assert desk.commit({ORDERS: 6}, "nobody") == [ErrorCode.NONE]
    assert desk.commit({ORDERS: 7}, member, 1) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert desk.committed() == {ORDERS: 6}


# What is kept


def test_metadata_has_a_bound_of_its_own_for_each_partition(desk: ShardDesk) -> None:
    assert desk.commit({ORDERS: 5}, metadata="x" * 4097) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert desk.commit({("orders", 1): 6}, metadata="x" * 4096) == [ErrorCode.NONE]
    assert desk.committed() == {("orders", 1): 6}


def test_metadata_is_measured_as_kafka_measures_it(desk: ShardDesk) -> None:
    two_units = "\N{WATER WAVE}"
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert desk.commit({ORDERS: 5}, metadata=two_units * 2048) == [ErrorCode.NONE]
    assert desk.commit({ORDERS: 5}, metadata=two_units * 2049) == [too_large]
    assert desk.commit({ORDERS: 5}, metadata="\N{LATIN SMALL LETTER U WITH DIAERESIS}" * 4096) == [
        ErrorCode.NONE
    ]


def test_no_metadata_is_empty_metadata(desk: ShardDesk) -> None:
    desk.commit({ORDERS: 5}, metadata=None)
    assert desk.fetch(ORDERS).topics[0].partitions[0].metadata == ""


def test_a_commit_is_written_with_its_time_and_topic(desk: ShardDesk) -> None:
    topic_id = bytes(range(16))
    desk.commit({ORDERS: 5}, metadata="note", ids={"orders": topic_id})
    assert desk.records == [
        Record(
            OffsetCommitKey(group=GROUP, topic="orders", partition=0),
            OffsetCommitValue(
                offset=5,
                leader_epoch=-1,
                metadata="note",
                commit_timestamp=desk.now_ms,
                topic_id=topic_id,
            ),
        )
    ]


# Fetching


def test_an_offset_that_was_not_committed_is_minus_one(desk: ShardDesk) -> None:
    desk.commit({ORDERS: 5}, metadata="m")
    found = [topic.partitions[0] for topic in desk.fetch(ORDERS, ("orders", 9), ("x", 0)).topics]
    assert [(p.committed_offset, p.metadata, p.error_code) for p in found] == [
        (5, "m", 0),
        (-1, "", 0),
        (-1, "", 0),
    ]
    assert desk.fetch(ORDERS, group="never").topics[0].partitions[0].committed_offset == -1
    assert desk.fetch(group="never").topics == []


def test_offsets_of_a_topic_that_was_deleted_and_made_again_are_not_shown(
    desk: ShardDesk,
) -> None:
    old, new = b"o" * 16, b"n" * 16
    desk.commit({ORDERS: 5}, ids={"orders": old})

    def offset(ids: dict[str, bytes] | None) -> int:
        return desk.fetch(ORDERS, ids=ids).topics[0].partitions[0].committed_offset

    assert offset({"orders": old}) == 5
    assert offset({"orders": new}) == -1
    assert offset(None) == 5


# Deleting


def test_offsets_are_deleted_one_by_one(desk: ShardDesk) -> None:
    desk.commit({ORDERS: 1, ("orders", 1): 2})
    assert desk.delete_offsets("orders", 0, 9) == [ErrorCode.NONE] * 2
    assert desk.committed() == {("orders", 1): 2}
    assert desk.delete_offsets("orders", 0, group="never") == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert desk.delete_offsets("orders", 0, group="") == [ErrorCode.INVALID_GROUP_ID]


def test_offsets_of_a_subscribed_topic_are_not_deleted(desk: ShardDesk) -> None:
    member = desk.member()
    desk.commit({ORDERS: 1, ("other", 0): 3}, member, 1)
    assert desk.delete_offsets("orders", 0) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
    assert desk.delete_offsets("other", 0) == [ErrorCode.NONE]
    assert desk.committed() == {ORDERS: 1}


def test_a_living_group_of_another_kind_keeps_all_its_offsets(desk: ShardDesk) -> None:
    desk.member(kind="connect", speaks=protocols("compatible"))
    assert desk.delete_offsets("orders", 0) == [ErrorCode.NON_EMPTY_GROUP]


def test_a_subscription_that_cannot_be_read_may_be_to_anything(desk: ShardDesk) -> None:
    desk.member(speaks=protocols("range", metadata=b"\x00\x00\xff"))
    assert desk.delete_offsets("anything", 0) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


def test_newer_subscriptions_are_read_by_their_common_part(desk: ShardDesk) -> None:
    newer = subscription("orders", version=3) + b"what version 3 added"
    desk.member(speaks=protocols("range", metadata=newer))
    assert desk.delete_offsets("orders", 0) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
    assert desk.delete_offsets("other", 0) == [ErrorCode.NONE]


def test_offsets_of_deleted_topics_are_forgotten(desk: ShardDesk) -> None:
    old, new = b"o" * 16, b"n" * 16
    desk.commit({ORDERS: 1, ("other", 0): 2}, ids={"orders": old})
    desk.commit({("orders", 1): 3}, ids={"orders": new})
    desk.commit({("orders", 2): 4}, group="another")
    topics = FakeTopics({"orders": (new, 3), "other": (b"x" * 16, 1)})
    desk.carry_out(desk.shard.on_metadata(topics, {"orders"}, desk.now))
    assert desk.committed() == {("orders", 1): 3, ("other", 0): 2}
    assert desk.committed("another") == {}


# Expiring


def test_offsets_without_members_expire_a_week_after_their_commit(desk: ShardDesk) -> None:
    desk.commit({ORDERS: 1})
    desk.advance(6 * DAY)
    desk.commit({("orders", 1): 2})
    desk.advance(DAY + 600)
    assert desk.committed() == {("orders", 1): 2}
    desk.advance(WEEK)
    assert desk.committed() == {}
    assert desk.state() == "Dead", "with its last offset the group is gone"


def test_offsets_of_a_group_expire_a_week_after_it_became_empty(desk: ShardDesk) -> None:
    member = desk.member(session_ms=1_800_000)
    desk.commit({ORDERS: 1}, member, 1)
    for _ in range(8 * 48):
        desk.advance(1790.0)
        assert desk.heartbeat(member, 1) == ErrorCode.NONE
    assert desk.committed() == {ORDERS: 1}, "it lives"
    desk.leave((member, None))
    desk.advance(WEEK - 600)
    assert desk.committed() == {ORDERS: 1}
    desk.advance(1200)
    assert desk.committed() == {}
    assert desk.delete_groups(GROUP) == {GROUP: ErrorCode.GROUP_ID_NOT_FOUND}


def test_when_a_group_became_empty_is_known_after_loading(desk: ShardDesk) -> None:
    member = desk.member()
    desk.commit({ORDERS: 1}, member, 1)
    desk.leave((member, None))
    desk.advance(WEEK - 1200)
    desk.restart()
    desk.advance(1800)
    assert desk.committed() == {}


def test_a_topic_that_a_living_group_no_longer_reads_expires(desk: ShardDesk) -> None:
    member = desk.member(session_ms=1_800_000)
    desk.commit({ORDERS: 1, ("former", 0): 2}, member, 1)
    for _ in range(8 * 48):
        desk.advance(1790.0)
        desk.heartbeat(member, 1)
    assert desk.committed() == {ORDERS: 1}


def test_old_clients_say_themselves_how_long_an_offset_is_kept(desk: ShardDesk) -> None:
    desk.commit({ORDERS: 1}, retention_ms=3_600_000, version=4)
    desk.commit({("orders", 1): 2})
    desk.restart()
    desk.advance(3000.0)
    assert len(desk.committed()) == 2
    desk.advance(1200.0)
    assert desk.committed() == {("orders", 1): 2}


def test_an_empty_group_without_offsets_is_forgotten() -> None:
    desk = ShardDesk(SETTINGS)
    member = desk.member()
    desk.leave((member, None))
    desk.advance(601.0)
    assert desk.shard.list_groups([], []) == []


def test_how_long_offsets_are_kept_is_a_setting() -> None:
    desk = ShardDesk(GroupSettings(offsets_retention_ms=60_000))
    desk.commit({ORDERS: 1})
    desk.advance(601.0)
    assert desk.committed() == {}


# Transactions


def commit_in_transaction(
    desk: ShardDesk, offset: int, member_id: str = "", generation: int = -1, metadata: str = ""
) -> ErrorCode:
    partition = TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=metadata
    )
    request = TxnOffsetCommitRequest(
        transactional_id="payments",
        group_id=GROUP,
        producer_id=PRODUCER,
        producer_epoch=0,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[TxnOffsetCommitRequestTopic(name="orders", partitions=[partition])],
    )
    token = desk.ask(
        lambda token: desk.shard.decide_commit_in_transaction(
            token, request, version=5, now=desk.now, now_ms=desk.now_ms
        ),
        producer_id=PRODUCER,
    )
    answer = desk.answer(token, TxnOffsetCommitResponse)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def test_an_offset_of_a_transaction_counts_when_it_commits(desk: ShardDesk) -> None:
    desk.commit({ORDERS: 1})
    assert commit_in_transaction(desk, 5) == ErrorCode.NONE
    assert desk.committed() == {ORDERS: 1}
    unstable = desk.fetch(ORDERS, stable=True).topics[0].partitions[0]
    assert unstable.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert unstable.committed_offset == -1
    desk.end_transaction(PRODUCER, commits=True)
    assert desk.committed() == {ORDERS: 5}
    assert desk.fetch(ORDERS, stable=True).topics[0].partitions[0].committed_offset == 5


def test_an_offset_of_a_transaction_that_aborts_never_was(desk: ShardDesk) -> None:
    desk.commit({ORDERS: 1})
    commit_in_transaction(desk, 5)
    desk.end_transaction(PRODUCER, commits=False)
    assert desk.committed() == {ORDERS: 1}
    assert desk.fetch(ORDERS, stable=True).topics[0].partitions[0].error_code == ErrorCode.NONE


def test_the_later_commit_wins_however_late_the_marker(desk: ShardDesk) -> None:
    commit_in_transaction(desk, 5)
    desk.commit({ORDERS: 9})
    desk.end_transaction(PRODUCER, commits=True)
    assert desk.committed() == {ORDERS: 9}


def test_a_deleted_offset_does_not_come_back_with_a_marker(desk: ShardDesk) -> None:
    commit_in_transaction(desk, 5)
    assert desk.delete_offsets("orders", 0) == [ErrorCode.NONE]
    desk.end_transaction(PRODUCER, commits=True)
    assert desk.committed() == {}


def test_a_group_with_an_open_transaction_is_not_forgotten(desk: ShardDesk) -> None:
    commit_in_transaction(desk, 5)
    desk.advance(2 * WEEK)
    assert desk.state() == "Empty"
    desk.end_transaction(PRODUCER, commits=False)
    desk.advance(601.0)
    assert desk.state() == "Dead"


def test_a_transaction_may_commit_while_its_group_syncs(desk: ShardDesk) -> None:
    member = desk.new_id()
    desk.join(member)
    desk.settle()
    assert commit_in_transaction(desk, 5, member, 1) == ErrorCode.NONE
    assert commit_in_transaction(desk, 5, member, 0) == ErrorCode.ILLEGAL_GENERATION
    assert commit_in_transaction(desk, 5, "nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_in_transaction(desk, 5) == ErrorCode.NONE, "old clients say nothing of themselves"


def test_open_transactions_are_the_same_after_loading(desk: ShardDesk) -> None:
    commit_in_transaction(desk, 5)
    desk.restart()
    assert desk.fetch(ORDERS, stable=True).topics[0].partitions[0].error_code == (
        ErrorCode.UNSTABLE_OFFSET_COMMIT
    )
    desk.end_transaction(PRODUCER, commits=True)
    assert desk.committed() == {ORDERS: 5}
    assert desk.replayed().durable_state() == desk.shard.durable_state()


def test_many_offsets_expire_a_batch_at_a_time(desk: ShardDesk) -> None:
    desk.commit({("orders", partition): 1 for partition in range(2500)})
    desk.advance(WEEK - 600)
    sizes = []
    while desk.committed():
        desk.move_to(max(desk.shard.next_deadline(), desk.now))
        decision = desk.shard.on_tick(desk.now, desk.now_ms)
        sizes.append(len(decision.records))
        desk.carry_out(decision)
    assert sizes[-3:] == [1000, 1000, 501], "the last tombstone is the group's"


def test_offsets_of_very_old_brokers_are_read(desk: ShardDesk) -> None:
    key = LegacyOffsetCommitKey(group=GROUP, topic="orders", partition=0)
    value = LegacyOffsetCommitValue(offset=5, metadata="m", commit_timestamp=desk.now_ms)
    desk.shard.apply(Record(key, value), offset=0)
    assert desk.committed() == {ORDERS: 5}
    desk.shard.apply(Record(key, None), offset=1)
    assert desk.committed() == {}
