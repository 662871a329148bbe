"""Liveness: the members that a group waits for, and how long each has been silent."""

from __future__ import annotations

from headwater.protocol.liveness import MemberLiveness, read_liveness, write_liveness
from tests.support.group_shards import GROUP, ShardDesk


def test_liveness_is_read_as_it_was_written() -> None:
    for liveness in (MemberLiveness(True, 12_345, 45_000), MemberLiveness(False, None, 6_000)):
        assert read_liveness(write_liveness(liveness)) == liveness


def test_a_node_without_liveness_gives_none() -> None:
    assert read_liveness(None) is None
    assert read_liveness({3: b"other"}) is None


def test_a_classic_group_waits_for_members_to_join_and_then_for_its_leader() -> None:
    desk = ShardDesk()
    first = desk.new_id()
    token = desk.join(first)
    desk.settle()
    joined = desk.joined(token)
    assert desk.shard.liveness(GROUP, desk.now)[first].is_awaited, "the leader has not assigned yet"
    desk.sync(first, joined.generation_id, {first: b"\x00\x00"})
    assert not desk.shard.liveness(GROUP, desk.now)[first].is_awaited
    desk.advance(4.0)
    desk.heartbeat(first, joined.generation_id)
    desk.advance(1.5)
    second = desk.new_id()
    desk.join(second)
    liveness = desk.shard.liveness(GROUP, desk.now)
    assert liveness[first] == MemberLiveness(
        is_awaited=True, silent_ms=1500, session_timeout_ms=10_000
    )
    assert not liveness[second].is_awaited


def test_a_group_that_does_not_exist_has_no_liveness() -> None:
    assert ShardDesk().shard.liveness("nobody", 0.0) == {}
