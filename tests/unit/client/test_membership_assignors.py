"""The assignors of classic groups, and the bytes by which members tell each other about them."""

from __future__ import annotations

import pytest

from headwater.client.consumer.membership.assignors import (
    CooperativeStickyAssignor,
    GroupMember,
    LastAssignment,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    Topics,
    assignors_of,
)
from headwater.client.consumer.membership.group_requests import divide, member_of
from headwater.client.errors import ConfigError, FatalError
from headwater.model import TopicPartition
from headwater.protocol import DecodeError
from headwater.protocol.consumer_protocol import (
    assigned_partitions,
    read_assignment,
    write_assignment,
    write_subscription,
)


def assigned(part: bytes) -> frozenset[TopicPartition]:
    return frozenset(assigned_partitions(read_assignment(part)))


def topics(**counts: int) -> Topics:
    return {name: (frozenset[str](),) * count for name, count in counts.items()}


def wants(*names: str, **rest: object) -> GroupMember:
    return GroupMember(frozenset(names), **rest)  # type: ignore[arg-type]


def tps(text: str) -> list[TopicPartition]:
    """ "t0 t1" as partitions."""
    return [TopicPartition(each[0], int(each[1:])) for each in text.split()]


def test_range_cuts_each_topic_into_runs() -> None:
    answer = RangeAssignor().assign(topics(t=3, u=3), {"a": wants("t", "u"), "b": wants("t", "u")})
    assert answer == {"a": tps("t0 t1 u0 u1"), "b": tps("t2 u2")}


def test_range_leaves_out_topics_that_do_not_exist() -> None:
    answer = RangeAssignor().assign(topics(t=1), {"a": wants("t", "gone"), "b": wants("gone")})
    assert answer == {"a": tps("t0"), "b": []}


def test_static_members_come_first_and_by_their_instance_ids() -> None:
    members = {
        "z": wants("t", instance_id="1"),
        "a": wants("t", instance_id="2"),
        "m": wants("t"),
    }
    assert RangeAssignor().assign(topics(t=3), members) == {
        "z": tps("t0"),
        "a": tps("t1"),
        "m": tps("t2"),
    }


def test_range_gives_partitions_to_members_in_their_rack() -> None:
    racks: Topics = {"t": (frozenset({"x"}), frozenset({"y"}), frozenset({"x"}), frozenset({"y"}))}
    members = {"a": wants("t", rack="y"), "b": wants("t", rack="x")}
    assert RangeAssignor().assign(racks, members) == {"a": tps("t1 t3"), "b": tps("t0 t2")}


def test_range_stays_even_whatever_the_racks() -> None:
    racks: Topics = {"t": (*(frozenset({"x"}),) * 3, frozenset({"z"}))}
    members = {"a": wants("t", rack="y"), "b": wants("t", rack="x")}
    assert RangeAssignor().assign(racks, members) == {"a": tps("t2 t3"), "b": tps("t0 t1")}


def test_range_keeps_topics_that_are_cut_alike_together_before_it_looks_at_racks() -> None:
    x, y = frozenset({"x"}), frozenset({"y"})
    racks: Topics = {"t": (x, y), "u": (y, x)}
    members = {"a": wants("t", "u", rack="x"), "b": wants("t", "u", rack="y")}
    assert RangeAssignor().assign(racks, members) == {"a": tps("t0 u0"), "b": tps("t1 u1")}
    racks = {"t": (y, x), "u": (y, x)}
    assert RangeAssignor().assign(racks, members) == {"a": tps("t1 u1"), "b": tps("t0 u0")}


def test_round_robin_deals_partitions_to_their_readers() -> None:
    members = {"a": wants("t"), "b": wants("t", "u"), "c": wants("u")}
    answer = RoundRobinAssignor().assign(topics(t=3, u=2), members)
    assert answer == {"a": tps("t0 t2"), "b": tps("t1 u0"), "c": tps("u1")}


def test_sticky_members_keep_what_their_user_data_says() -> None:
    sticky = StickyAssignor()
    last = LastAssignment(frozenset(tps("t1 t3")), 4)
    members = {"a": wants("t", user_data=sticky.user_data(last)), "b": wants("t")}
    assert sticky.assign(topics(t=4), members) == {"a": tps("t1 t3"), "b": tps("t0 t2")}


def test_the_bytes_of_sticky_are_those_of_the_java_client() -> None:
    last = LastAssignment(frozenset(tps("t0 t2")), 7)
    assert StickyAssignor().user_data(last) == (
        b"\0\0\0\x01\0\x01t\0\0\0\x02\0\0\0\0\0\0\0\x02\0\0\0\x07"
    )
    assert StickyAssignor().user_data(None) is None
    assert CooperativeStickyAssignor().user_data(last) == b"\0\0\0\x07"
    assert CooperativeStickyAssignor().user_data(None) == b"\xff\xff\xff\xff"


def test_sticky_reads_user_data_without_a_generation_and_ignores_what_is_none() -> None:
    old = b"\0\0\0\x01\0\x01t\0\0\0\x01\0\0\0\x01"
    members = {"a": wants("t", user_data=b"junk"), "b": wants("t", user_data=old)}
    assert StickyAssignor().assign(topics(t=2), members) == {"a": tps("t0"), "b": tps("t1")}


def test_of_two_claims_to_a_partition_the_later_generation_wins() -> None:
    members = {
        "a": wants("t", owned=tuple(tps("t0 t1")), generation=3),
        "b": wants("t", owned=tuple(tps("t0 t2")), generation=4),
    }
    answer = CooperativeStickyAssignor().assign(topics(t=4), members)
    assert tps("t0")[0] in answer["b"]
    assert tps("t0")[0] not in answer["a"]


def test_two_claims_to_a_partition_in_one_generation_are_both_ignored() -> None:
    members = {
        "a": wants("t", owned=tuple(tps("t0")), generation=3),
        "b": wants("t", owned=tuple(tps("t0")), generation=3),
        "c": wants("t", generation=3),
    }
    answer = CooperativeStickyAssignor().assign(topics(t=3), members)
    assert sum(tps("t0")[0] in mine for mine in answer.values()) <= 1


def test_the_generation_of_old_members_is_in_their_user_data() -> None:
    members = {
        "a": wants("t", owned=tuple(tps("t0")), user_data=b"\0\0\0\x05"),
        "b": wants("t", owned=tuple(tps("t0 t1")), generation=4),
    }
    answer = CooperativeStickyAssignor().assign(topics(t=2), members)
    assert answer == {"a": tps("t0"), "b": tps("t1")}


def test_what_moves_between_cooperative_members_is_left_out_first() -> None:
    cooperative = CooperativeStickyAssignor()
    members = {"a": wants("t", owned=tuple(tps("t0 t1 t2 t3")), generation=1), "b": wants("t")}
    assert cooperative.assign(topics(t=4), members) == {"a": tps("t0 t1"), "b": []}
    members = {
        "a": wants("t", owned=tuple(tps("t0 t1")), generation=2),
        "b": wants("t", generation=2),
    }
    assert cooperative.assign(topics(t=4), members) == {"a": tps("t0 t1"), "b": tps("t2 t3")}


class Greedy:
    """Gives everything to the last member, regardless of owners."""

    name = "greedy"
    cooperative = True

    def user_data(self, last: LastAssignment | None) -> bytes | None:
        return None

    def assign(self, topics: Topics, members: dict[str, GroupMember]) -> object:
        last = max(members)
        return {last: [TopicPartition(t, n) for t, r in topics.items() for n in range(len(r))]}


def test_an_assignor_of_the_users_may_not_give_a_partition_two_owners() -> None:
    members = {"a": wants("t", owned=tuple(tps("t0"))), "b": wants("t")}
    (greedy,) = assignors_of([Greedy()])  # type: ignore[list-item]
    with pytest.raises(FatalError, match="gave t-0 to b while a still owns it"):
        divide(greedy, topics(t=1), members, cooperative=True)
    parts = divide(greedy, topics(t=1), members, cooperative=False)
    assert {member: assigned(part) for member, part in parts.items()} == {
        "a": frozenset(),
        "b": frozenset(tps("t0")),
    }


def test_assignors_are_found_by_their_names_and_by_those_of_the_java_client() -> None:
    found = assignors_of(["sticky", "org.apache.kafka.clients.consumer.RangeAssignor"])
    assert [each.name for each in found] == ["sticky", "range"]


@pytest.mark.parametrize(
    ("strategies", "says"),
    [(["rnage"], "'rnage'.*range, roundrobin"), ([], "empty"), (["range", "range"], "twice")],
)
def test_an_unknown_strategy_is_named(strategies: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        assignors_of(strategies)


def test_a_subscription_comes_back_as_it_was_written() -> None:
    data = write_subscription(
        topics=["u", "t"], user_data=b"mine", owned=tps("t1 t0 u2"), generation=9, rack="r"
    )
    assert data[:2] == b"\0\x03"
    assert member_of(data, instance_id="i") == GroupMember(
        frozenset({"t", "u"}), tuple(tps("t0 t1 u2")), 9, "i", "r", b"mine"
    )


def test_an_old_subscription_has_neither_partitions_nor_a_generation() -> None:
    assert member_of(b"\0\0" + b"\0\0\0\x01\0\x01t" + b"\xff\xff\xff\xff") == wants("t")


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    data = write_subscription(topics=["t"], user_data=None, owned=[], generation=1, rack=None)
    later = b"\0\x09" + data[2:] + b"whatever comes"
    assert member_of(later).generation == 1


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff", b"\0\x01\0\0\0\x05"])
def test_an_invalid_subscription_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        member_of(data)
    with pytest.raises(DecodeError):
        read_assignment(data)


def test_an_assignment_comes_back_as_it_was_written() -> None:
    assert assigned(write_assignment(tps("u0 t1 t0"))) == frozenset(tps("t0 t1 u0"))
