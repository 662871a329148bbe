"""Who a group waits for, and how long each member has been silent."""

from __future__ import annotations

from headwater.protocol.signs import Signs, read_signs, write_signs
from tests.support.group_shards import GROUP, ShardDesk


def test_signs_are_read_as_they_were_written() -> None:
    for signs in (Signs(True, 12_345, 45_000), Signs(False, None, 6_000)):
        assert read_signs(write_signs(signs)) == signs


def test_a_node_that_knows_no_signs_gives_none() -> None:
    assert read_signs(None) is None
    assert read_signs({3: b"other"}) is None


def test_a_classic_group_waits_for_whoever_has_not_joined_and_then_for_its_leader() -> None:
    desk = ShardDesk()
    first = desk.new_id()
    token = desk.join(first)
    desk.settle()
    joined = desk.joined(token)
    assert desk.shard.signs(GROUP, desk.now)[first].is_awaited, "the leader has not assigned yet"
    desk.sync(first, joined.generation_id, {first: b"\x00\x00"})
    assert not desk.shard.signs(GROUP, desk.now)[first].is_awaited
    desk.advance(4.0)
    desk.heartbeat(first, joined.generation_id)
    desk.advance(1.5)
    second = desk.new_id()
    desk.join(second)
    signs = desk.shard.signs(GROUP, desk.now)
    assert signs[first] == Signs(is_awaited=True, silent_ms=1500, session_timeout_ms=10_000)
    assert not signs[second].is_awaited


def test_a_group_that_is_not_there_has_no_signs() -> None:
    assert ShardDesk().shard.signs("nobody", 0.0) == {}
