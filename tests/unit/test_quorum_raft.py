"""Raft by itself: one node's answers to what happens around it."""

from __future__ import annotations

from random import Random

import pytest

from headwater.errors import ErrorCode
from headwater.model import NO_NODE, OffsetAndEpoch
from headwater.quorum import ElectionState, Raft, Ready, ReplicaKey, Role, Voter, VoterSet
from headwater.quorum.model import (
    BeginEpoch,
    BeginEpochReply,
    EndEpoch,
    FetchReply,
    FetchRequest,
    VoteReply,
    VoteRequest,
)
from headwater.quorum.state_file import decode_state, encode_state

KEYS = {number: ReplicaKey(number, bytes([number]) * 16) for number in range(1, 6)}


def raft(
    me: int = 1,
    voters: int = 3,
    *,
    epoch: int = 0,
    leader_id: int = NO_NODE,
    voted: ReplicaKey | None = None,
    log_end: int = 0,
    epochs: list[OffsetAndEpoch] | None = None,
) -> Raft:
    return Raft(
        KEYS[me],
        VoterSet.of(*(Voter(KEYS[number]) for number in range(1, voters + 1))),
        Random(7),
        state=ElectionState(epoch, leader_id, voted),
        log_end=log_end,
        epochs=epochs or [],
    )


def leader(voters: int = 3) -> Raft:
    node = raft(voters=voters)
    node.start(0.0)
    node.tick(10.0)
    for other in range(2, voters + 1):
        node.on_vote_reply(other, VoteReply(0, NO_NODE, True, True), 10.0)
        node.on_vote_reply(other, VoteReply(1, NO_NODE, True, False), 10.0)
    assert role(node) is Role.LEADER
    node.on_appended(log_end=node.log_end + 1, epoch=node.epoch)
    node.on_flushed(node.log_end, epoch=node.epoch)
    return node


def role(node: Raft) -> Role:
    return node.role


def fetched(node: Raft, reply: FetchReply, now: float) -> Ready:
    request = node.fetch_request()
    assert request is not None
    return node.on_fetch_reply(request, reply, now)


def sent(ready: Ready) -> list[object]:
    return [envelope.message for envelope in ready.messages]


def test_a_sole_voter_leads_at_once_and_commits_what_it_flushes() -> None:
    node = raft(voters=1, epoch=4)
    ready = node.start(0.0)
    assert role(node) is Role.LEADER
    assert ready.vote == ElectionState(5, 1, KEYS[1])
    assert ready.leader_change is not None
    assert [voter.voter_id for voter in ready.leader_change.granting_voters] == [1]
    assert not ready.messages
    node.on_appended(log_end=3, epoch=5)
    assert node.on_flushed(3, epoch=5).committed == 3
    assert node.next_deadline() == float("inf")


def test_a_voter_asks_before_it_disturbs() -> None:
    node = raft(epoch=3)
    node.start(0.0)
    assert node.tick(0.5).messages == []
    ready = node.tick(5.0)
    assert role(node) is Role.PROSPECTIVE
    assert ready.vote is None  # a pre-vote binds nobody
    assert sent(ready) == [VoteRequest(3, KEYS[1], OffsetAndEpoch(0, 0), True)] * 2


def test_with_a_majority_of_pre_votes_it_stands_and_votes_for_itself_first() -> None:
    node = raft(epoch=3)
    node.start(0.0)
    node.tick(5.0)
    ready = node.on_vote_reply(2, VoteReply(3, NO_NODE, True, True), 5.1)
    assert role(node) is Role.CANDIDATE
    assert ready.vote == ElectionState(4, NO_NODE, KEYS[1])
    ready = node.on_vote_reply(3, VoteReply(4, NO_NODE, True, False), 5.2)
    assert role(node) is Role.LEADER
    assert ready.leader_change is not None
    assert sent(ready) == [BeginEpoch(4, 1)] * 2


def test_a_late_pre_vote_does_not_elect_a_candidate() -> None:
    node = raft()
    node.start(0.0)
    node.tick(5.0)
    node.on_vote_reply(2, VoteReply(0, NO_NODE, True, True), 5.0)
    assert role(node) is Role.CANDIDATE
    node.on_vote_reply(3, VoteReply(0, NO_NODE, True, True), 5.0)
    assert role(node) is Role.CANDIDATE


def test_a_voter_votes_once_in_an_epoch() -> None:
    node = raft()
    node.start(0.0)
    ready = node.on_vote(VoteRequest(1, KEYS[2], OffsetAndEpoch(0, 0), False), 1.0)
    assert sent(ready) == [VoteReply(1, NO_NODE, True, False)]
    assert ready.vote == ElectionState(1, NO_NODE, KEYS[2])
    ready = node.on_vote(VoteRequest(1, KEYS[3], OffsetAndEpoch(0, 0), False), 1.0)
    assert sent(ready) == [VoteReply(1, NO_NODE, False, False)]
    ready = node.on_vote(VoteRequest(1, KEYS[2], OffsetAndEpoch(0, 0), False), 1.0)
    assert sent(ready) == [VoteReply(1, NO_NODE, True, False)]


def test_a_vote_is_remembered_over_a_restart() -> None:
    node = raft(epoch=1, voted=KEYS[2])
    node.start(0.0)
    ready = node.on_vote(VoteRequest(1, KEYS[3], OffsetAndEpoch(9, 9), False), 1.0)
    assert sent(ready) == [VoteReply(1, NO_NODE, False, False)]


@pytest.mark.parametrize(
    ("last", "granted"),
    [
        (OffsetAndEpoch(10, 2), True),
        (OffsetAndEpoch(9, 2), False),
        (OffsetAndEpoch(1, 3), True),
        (OffsetAndEpoch(99, 1), False),
    ],
)
def test_a_vote_goes_only_to_a_log_that_lacks_nothing(last: OffsetAndEpoch, granted: bool) -> None:
    node = raft(epoch=2, log_end=10, epochs=[OffsetAndEpoch(0, 1), OffsetAndEpoch(5, 2)])
    node.start(0.0)
    for pre_vote in (True, False):
        ready = node.on_vote(VoteRequest(3, KEYS[2], last, pre_vote), 1.0)
        (reply,) = sent(ready)
        assert isinstance(reply, VoteReply)
        assert reply.granted is granted


def test_a_follower_that_hears_its_leader_grants_no_pre_vote() -> None:
    node = raft(epoch=1, leader_id=2)
    node.start(0.0)
    asked = VoteRequest(1, KEYS[3], OffsetAndEpoch(0, 0), True)
    (reply,) = sent(node.on_vote(asked, 0.1))
    assert isinstance(reply, VoteReply)
    assert reply.granted  # it has not heard of it yet
    fetched(node, FetchReply(1, 2, 0, records_from=0), 0.2)
    (reply,) = sent(node.on_vote(asked, 0.3))
    assert isinstance(reply, VoteReply)
    assert not reply.granted


@pytest.mark.parametrize("refused", [True, False])
def test_a_follower_whose_pre_vote_fails_follows_its_leader_again(refused: bool) -> None:
    """Its leader is alive for the others. Without this it would never fetch again: the leader has
    no reason to remind a voter that has acknowledged it."""
    node = raft(epoch=1, leader_id=2)
    node.start(0.0)
    node.tick(2.1)
    assert role(node) is Role.PROSPECTIVE
    assert node.fetch_request() is None
    if refused:
        for other in (2, 3):
            node.on_vote_reply(other, VoteReply(1, 2, False, True), 2.2)
    else:
        node.tick(node.next_deadline())
    assert (role(node), node.leader_id) == (Role.FOLLOWER, 2)
    assert node.fetch_request() is not None


def test_a_leader_after_a_restart_does_not_lead_on() -> None:
    node = raft(epoch=4, leader_id=1)
    node.start(0.0)
    assert role(node) is Role.RESIGNED


def test_a_follower_whose_leader_is_silent_asks_for_an_election() -> None:
    node = raft(epoch=1, leader_id=2)
    node.start(0.0)
    fetched(node, FetchReply(1, 2, 0, records_from=0), 1.5)
    assert node.tick(2.1).messages == []
    node.tick(3.6)
    assert role(node) is Role.PROSPECTIVE


def test_a_leader_that_hears_no_majority_gives_up() -> None:
    node = leader()
    node.on_fetch(FetchRequest(KEYS[2], 1, 1, 1), 11.0)
    node.tick(13.5)
    assert role(node) is Role.LEADER
    ready = node.tick(14.1)
    assert role(node) is Role.RESIGNED
    assert sent(ready) == [EndEpoch(1, 1, (2, 3))] * 2


def test_a_leader_reminds_those_who_have_not_acknowledged_it() -> None:
    node = leader()
    node.on_begin_epoch_reply(2, BeginEpochReply(1, 1), 10.1)
    ready = node.tick(11.1)
    assert [envelope.to for envelope in ready.messages] == [3]


def test_a_leader_of_static_voters_counts_itself_as_acknowledged() -> None:
    """Static voters have no directory ids, and a node always knows its own."""
    node = Raft(
        KEYS[1],
        VoterSet.of(*(Voter(ReplicaKey(number)) for number in (1, 2, 3))),
        Random(7),
        state=ElectionState(),
        log_end=0,
        epochs=[],
    )
    node.start(0.0)
    node.tick(10.0)
    node.on_vote_reply(2, VoteReply(0, NO_NODE, True, True), 10.0)
    node.on_vote_reply(2, VoteReply(1, NO_NODE, True, False), 10.0)
    assert role(node) is Role.LEADER
    assert [envelope.to for envelope in node.tick(11.1).messages] == [2, 3]


def test_a_static_voter_remembers_its_vote_without_the_directory() -> None:
    node = raft(epoch=1, voted=ReplicaKey(2))
    node.start(0.0)
    ready = node.on_vote(VoteRequest(1, KEYS[2], OffsetAndEpoch(0, 0), False), 1.0)
    assert sent(ready) == [VoteReply(1, NO_NODE, True, False)]


def test_the_first_successor_starts_at_once_and_others_wait() -> None:
    first, second = raft(2, epoch=1, leader_id=1), raft(3, epoch=1, leader_id=1)
    for node in (first, second):
        node.start(0.0)
        node.on_end_epoch(EndEpoch(1, 1, (2, 3)), 1.0)
    assert role(first) is Role.PROSPECTIVE
    assert role(second) is Role.FOLLOWER
    assert 1.0 < second.next_deadline() < 2.0


def test_a_higher_epoch_ends_a_leadership() -> None:
    node = leader()
    ready = node.on_vote(VoteRequest(9, KEYS[2], OffsetAndEpoch(99, 8), False), 11.0)
    assert role(node) is Role.UNATTACHED
    assert ready.vote == ElectionState(9, NO_NODE, KEYS[2])
    node = leader()
    ready = node.on_begin_epoch(BeginEpoch(9, 2), 11.0)
    assert (node.role, node.leader_id) == (Role.FOLLOWER, 2)
    assert ready.vote is not None


def test_an_old_leader_is_told_of_the_new_epoch() -> None:
    node = raft(epoch=5, leader_id=2)
    node.start(0.0)
    ready = node.on_begin_epoch(BeginEpoch(3, 3), 1.0)
    assert sent(ready) == [BeginEpochReply(5, 2)]
    assert node.leader_id == 2


# Commitment


def test_what_a_majority_has_is_committed() -> None:
    node = leader()
    node.on_appended(log_end=10, epoch=1)
    assert node.on_flushed(10, epoch=1).committed is None
    assert node.on_fetch(FetchRequest(KEYS[2], 1, 4, 1), 11.0).committed == 4
    assert node.on_fetch(FetchRequest(KEYS[3], 1, 7, 1), 11.0).committed == 7
    assert node.on_fetch(FetchRequest(KEYS[2], 1, 5, 1), 11.0).committed is None
    assert node.high_watermark == 7


def test_a_leaders_own_records_count_only_once_flushed() -> None:
    node = leader()
    node.on_appended(log_end=10, epoch=1)
    assert node.on_fetch(FetchRequest(KEYS[2], 1, 10, 1), 11.0).committed == 1
    assert node.on_flushed(10, epoch=1).committed == 10


def test_a_sync_that_began_in_an_earlier_epoch_counts_for_nothing() -> None:
    """The log may have been truncated and written again while the sync was under way."""
    node = leader()
    node.on_appended(log_end=10, epoch=1)
    node.on_begin_epoch(BeginEpoch(2, 2), 11.0)
    node.on_truncated(1)
    node.on_end_epoch(EndEpoch(2, 2, (1, 3)), 12.0)
    node.on_vote_reply(3, VoteReply(2, NO_NODE, True, True), 12.0)
    node.on_vote_reply(3, VoteReply(3, NO_NODE, True, False), 12.0)
    assert role(node) is Role.LEADER
    node.on_appended(log_end=12, epoch=3)
    node.on_flushed(10, epoch=1)
    assert node.on_fetch(FetchRequest(KEYS[3], 3, 12, 3), 12.1).committed is None
    assert node.on_flushed(12, epoch=3).committed == 12


def test_records_of_older_epochs_wait_for_one_of_the_new_epoch() -> None:
    node = raft(log_end=5, epochs=[OffsetAndEpoch(0, 1)], epoch=1)
    node.start(0.0)
    node.tick(10.0)
    node.on_vote_reply(2, VoteReply(1, NO_NODE, True, True), 10.0)
    node.on_vote_reply(2, VoteReply(2, NO_NODE, True, False), 10.0)
    assert role(node) is Role.LEADER
    node.on_appended(log_end=6, epoch=2)
    node.on_flushed(6, epoch=2)
    assert node.on_fetch(FetchRequest(KEYS[2], 2, 5, 1), 11.0).committed is None
    assert node.on_fetch(FetchRequest(KEYS[2], 2, 6, 2), 11.0).committed == 6


def test_an_observer_is_served_and_counts_for_nothing() -> None:
    node = leader()
    observer = ReplicaKey(9, b"9" * 16)
    ready = node.on_fetch(FetchRequest(observer, 1, 1, 1), 11.0)
    assert ready.committed is None
    (reply,) = sent(ready)
    assert isinstance(reply, FetchReply)
    assert reply.records_from == 1
    described = node.describe(12.0)
    assert [status.key.id for status in described.voters] == [1, 2, 3]
    assert [status.key for status in described.observers] == [observer]
    assert node.describe(400.0).observers == []


@pytest.mark.parametrize("directory", [b"x" * 16, bytes(16)], ids=["another", "none"])
def test_a_voter_that_does_not_name_its_disk_is_an_observer(directory: bytes) -> None:
    node = leader()
    node.on_fetch(FetchRequest(ReplicaKey(2, directory), 1, 1, 1), 11.0)
    assert len(node.describe(11.0).observers) == 1
    assert node.high_watermark < 1


def test_a_static_voter_counts_only_with_its_disk_once_voters_have_directories() -> None:
    nowhere = bytes(16)
    node = Raft(
        KEYS[1],
        VoterSet.of(*(Voter(ReplicaKey(number, nowhere)) for number in (1, 2, 3))),
        Random(7),
        state=ElectionState(0, NO_NODE, None),
        log_end=0,
        epochs=[],
    )
    node.start(0.0)
    node.tick(10.0)
    node.on_vote_reply(2, VoteReply(0, NO_NODE, True, True), 10.0)
    node.on_vote_reply(2, VoteReply(1, NO_NODE, True, False), 10.0)
    node.on_appended(log_end=1, epoch=1)
    node.on_flushed(1, epoch=1)
    assert node.on_fetch(FetchRequest(KEYS[2], 1, 1, 1), 11.0).committed == 1
    node.on_voters(VoterSet.of(*(Voter(KEYS[number]) for number in (1, 2, 3))), 12.0)
    node.on_appended(log_end=2, epoch=1)
    node.on_flushed(2, epoch=1)
    stranger = ReplicaKey(2, b"x" * 16)
    assert node.on_fetch(FetchRequest(stranger, 1, 2, 1), 13.0).committed is None
    described = node.describe(13.0)
    assert [status.key for status in described.voters] == [KEYS[1], KEYS[2], KEYS[3]]
    assert [status.key for status in described.observers] == [stranger]
    assert node.on_fetch(FetchRequest(KEYS[2], 1, 2, 1), 14.0).committed == 2


def test_a_removed_voter_is_an_observer_only_if_it_has_fetched() -> None:
    node = leader()
    node.on_fetch(FetchRequest(KEYS[2], 1, 1, 1), 11.0)
    node.on_voters(VoterSet.of(Voter(KEYS[1])), 12.0)
    assert [status.key for status in node.describe(12.0).observers] == [KEYS[2]]


# Following


def test_a_follower_whose_log_left_the_leaders_is_told_where() -> None:
    node = leader()
    node.on_appended(log_end=10, epoch=1)
    ready = node.on_fetch(FetchRequest(KEYS[2], 1, 8, 0), 11.0)
    (reply,) = sent(ready)
    assert isinstance(reply, FetchReply)
    assert reply.records_from is None
    assert reply.diverging == OffsetAndEpoch(0, 0)
    ready = node.on_fetch(FetchRequest(KEYS[2], 1, 12, 1), 11.0)
    (reply,) = sent(ready)
    assert isinstance(reply, FetchReply)
    assert reply.diverging == OffsetAndEpoch(10, 1)


def test_a_follower_cuts_what_its_leader_does_not_have() -> None:
    epochs = [OffsetAndEpoch(0, 1), OffsetAndEpoch(6, 2)]
    node = raft(epoch=3, leader_id=2, log_end=9, epochs=epochs)
    node.start(0.0)
    ready = fetched(node, FetchReply(3, 2, diverging=OffsetAndEpoch(8, 1)), 1.0)
    assert ready.truncate_to == 6
    node.on_truncated(6)
    assert node.fetch_request() == FetchRequest(KEYS[1], 3, 6, 1)


def test_a_late_reply_cuts_nothing() -> None:
    node = raft(epoch=3, leader_id=2, log_end=9, epochs=[OffsetAndEpoch(0, 1)])
    node.start(0.0)
    late = FetchRequest(KEYS[1], 3, 8, 1)
    ready = node.on_fetch_reply(late, FetchReply(3, 2, diverging=OffsetAndEpoch(2, 1)), 1.0)
    assert ready == Ready()


def test_a_follower_commits_no_more_than_it_has() -> None:
    node = raft(epoch=1, leader_id=2, log_end=5, epochs=[OffsetAndEpoch(0, 1)])
    node.start(0.0)
    assert node.on_high_watermark(9).committed == 5
    assert node.on_high_watermark(3).committed is None


def test_a_fetch_of_another_epoch_is_refused_with_ours() -> None:
    node = leader()
    (reply,) = sent(node.on_fetch(FetchRequest(KEYS[2], 0, 0, 0), 11.0))
    assert reply == FetchReply(1, 1, error=ErrorCode.FENCED_LEADER_EPOCH)
    follower = raft(epoch=5, leader_id=2)
    follower.start(0.0)
    (reply,) = sent(follower.on_fetch(FetchRequest(KEYS[3], 5, 0, 0), 1.0))
    assert reply == FetchReply(5, 2, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)


@pytest.mark.parametrize("replica", [KEYS[2], ReplicaKey(9, b"9" * 16)])
def test_a_fetch_with_a_larger_epoch_does_not_depose_the_leader(replica: ReplicaKey) -> None:
    node = leader()
    ready = node.on_fetch(FetchRequest(replica, 7, 0, 0), 11.0)
    assert sent(ready) == [FetchReply(1, 1, error=ErrorCode.UNKNOWN_LEADER_EPOCH)]
    assert ready.vote is None
    assert (role(node), node.epoch) == (Role.LEADER, 1)


def test_an_answer_from_one_who_leads_no_more_is_no_sign_of_a_leader() -> None:
    node = raft(epoch=1, leader_id=2)
    node.start(0.0)
    fetched(node, FetchReply(1, 2), 1.9)
    node.tick(2.1)
    assert role(node) is Role.PROSPECTIVE


# The state file


def test_a_state_file_is_kafkas() -> None:
    state = ElectionState(2, NO_NODE, ReplicaKey(1, bytes(16)))
    assert encode_state(state, kraft_version=1) == (
        b'{"leaderId":-1,"leaderEpoch":2,"votedId":1,'
        b'"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    )
    assert encode_state(ElectionState(1, 1), kraft_version=0, voters=[1]) == (
        b'{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1}],"data_version":0}'
    )


@pytest.mark.parametrize("kraft_version", [0, 1])
@pytest.mark.parametrize("state", [ElectionState(3, 2), ElectionState(4, NO_NODE, ReplicaKey(5))])
def test_a_state_file_reads_back(state: ElectionState, kraft_version: int) -> None:
    assert decode_state(encode_state(state, kraft_version=kraft_version)) == state


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"data_version":7}'])
def test_a_broken_state_file_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any of its kinds
        decode_state(data)
