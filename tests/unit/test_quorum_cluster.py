"""Several voters in one thread on one seed: messages late, lost and twice, nodes that crash.

What must hold: an epoch has one leader, what is committed is committed everywhere and for good,
and once the faults end the quorum gets on with it.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from random import Random

import pytest

from headwater.model import OffsetAndEpoch
from headwater.quorum import ElectionState, Raft, Ready, ReplicaKey, Role, Voter, VoterSet
from headwater.quorum.model import (
    BeginEpoch,
    BeginEpochReply,
    EndEpoch,
    FetchReply,
    FetchRequest,
    Message,
    VoteReply,
    VoteRequest,
)

KEYS = {number: ReplicaKey(number, bytes([number]) * 16) for number in range(1, 6)}


@dataclass(slots=True)
class Disk:
    state: ElectionState = field(default_factory=ElectionState)
    records: list[tuple[int, int]] = field(default_factory=list)  # (epoch, what)
    synced: int = 0

    def epochs(self) -> list[OffsetAndEpoch]:
        found: list[OffsetAndEpoch] = []
        for offset, (epoch, _) in enumerate(self.records):
            if not found or epoch > found[-1].epoch:
                found.append(OffsetAndEpoch(offset, epoch))
        return found


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply on its connection: it belongs to a request."""

    request: FetchRequest
    reply: FetchReply


class Cluster:
    def __init__(self, size: int, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.loss = 0.0
        self.voters = VoterSet.of(*(Voter(KEYS[n]) for n in range(1, size + 1)))
        self.disks = {n: Disk() for n in self.voters.voters}
        self.nodes: dict[int, Raft] = {}
        self.queue: list[tuple[float, int, int, int, Message | Answer]] = []
        self.sequence = 0
        self.leaders: dict[int, int] = {}
        self.committed: list[tuple[int, int]] = []
        self.high_watermarks = dict.fromkeys(self.voters.voters, -1)
        self.fetched_at = dict.fromkeys(self.voters.voters, 0.0)
        for n in self.voters.voters:
            self.boot(n)

    def boot(self, n: int) -> None:
        disk = self.disks[n]
        node = Raft(
            KEYS[n],
            self.voters,
            self.random,
            state=disk.state,
            log_end=len(disk.records),
            epochs=disk.epochs(),
        )
        self.nodes[n] = node
        self.high_watermarks[n] = -1
        self.do(n, node.start(self.now))

    def crash(self, n: int) -> None:
        """Loses everything that was not synced."""
        disk = self.disks[n]
        del disk.records[disk.synced :]
        self.nodes.pop(n, None)

    def send(self, sender: int, to: int, message: Message | Answer) -> None:
        for _ in range(1 + (self.random.random() < self.loss / 4)):
            if self.random.random() >= self.loss:
                self.sequence += 1
                at = self.now + self.random.uniform(0.001, 0.02 if not self.loss else 0.5)
                heapq.heappush(self.queue, (at, self.sequence, sender, to, message))

    def do(self, n: int, ready: Ready) -> None:
        node, disk = self.nodes[n], self.disks[n]
        if ready.vote is not None:
            assert ready.vote.epoch >= disk.state.epoch
            disk.state = ready.vote
        if ready.truncate_to is not None:
            del disk.records[ready.truncate_to :]
            disk.synced = min(disk.synced, len(disk.records))
            node.on_truncated(len(disk.records))
        if ready.leader_change is not None:
            assert self.leaders.setdefault(node.epoch, n) == n, "two leaders of one epoch"
            self.append(n, 0)
        for to, message in ready.messages:
            self.send(n, to, message)
        if ready.committed is not None:
            self.check_committed(n, ready.committed)

    def check_committed(self, n: int, high_watermark: int) -> None:
        assert high_watermark > self.high_watermarks[n]
        self.high_watermarks[n] = high_watermark
        mine = self.disks[n].records[:high_watermark]
        assert len(mine) == high_watermark
        known = self.committed[:high_watermark]
        assert mine[: len(known)] == known, "what was committed has changed"
        if len(mine) > len(self.committed):
            self.committed = list(mine)

    def append(self, n: int, what: int) -> None:
        node, disk = self.nodes[n], self.disks[n]
        disk.records.append((node.epoch, what))
        node.on_appended(log_end=len(disk.records), epoch=node.epoch)

    def sync(self, n: int) -> None:
        disk = self.disks[n]
        disk.synced = len(disk.records)
        node = self.nodes[n]
        self.do(n, node.on_flushed(disk.synced, epoch=node.epoch))

    def deliver(self, sender: int, to: int, message: Message | Answer) -> None:
        node = self.nodes.get(to)
        if node is None:
            return
        match message:
            case VoteRequest():
                self.do(to, node.on_vote(message, self.now))
            case VoteReply():
                self.do(to, node.on_vote_reply(sender, message, self.now))
            case BeginEpoch():
                self.do(to, node.on_begin_epoch(message, self.now))
            case BeginEpochReply():
                self.do(to, node.on_begin_epoch_reply(sender, message, self.now))
            case EndEpoch():
                self.do(to, node.on_end_epoch(message, self.now))
            case FetchRequest():
                ready = node.on_fetch(message, self.now)
                replies = [sent for _, sent in ready.messages if isinstance(sent, FetchReply)]
                ready.messages = []
                self.do(to, ready)
                for reply in replies:
                    self.send(to, sender, Answer(message, reply))
            case Answer():
                self.take_records(sender, to, message.request, message.reply)

    def take_records(self, sender: int, to: int, request: FetchRequest, reply: FetchReply) -> None:
        node, disk = self.nodes[to], self.disks[to]
        is_current = request == node.fetch_request()
        self.do(to, node.on_fetch_reply(request, reply, self.now))
        if not is_current or reply.records_from is None or reply.epoch != node.epoch:
            return
        source = self.nodes.get(sender)
        if source is None or source.epoch != reply.epoch or source.role is not Role.LEADER:
            return  # the records would have come in the message itself
        for record in self.disks[sender].records[len(disk.records) :][:3]:
            disk.records.append(record)
            node.on_appended(log_end=len(disk.records), epoch=record[0])
        disk.synced = len(disk.records)
        self.do(to, node.on_high_watermark(reply.high_watermark))

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now += 0.01
            while self.queue and self.queue[0][0] <= self.now:
                _, _, sender, to, message = heapq.heappop(self.queue)
                self.deliver(sender, to, message)
            for n, node in list(self.nodes.items()):
                if self.now >= node.next_deadline():
                    self.do(n, node.tick(self.now))
                request = node.fetch_request()
                if request is not None and self.now - self.fetched_at[n] > 0.1:
                    self.fetched_at[n] = self.now
                    self.send(n, node.leader_id, request)
                if node.role is Role.LEADER:
                    if self.random.random() < 0.1:
                        self.append(n, self.random.randrange(1 << 30))
                    if self.random.random() < 0.3:
                        self.sync(n)


@pytest.mark.parametrize("seed", range(12))
def test_an_epoch_has_one_leader_and_commits_stay(seed: int) -> None:
    cluster = Cluster(3 if seed % 2 else 5, seed)
    for _ in range(12):
        cluster.loss = cluster.random.choice([0.0, 0.1, 0.4])
        cluster.run(3.0)
        victim = cluster.random.choice(list(cluster.disks))
        if victim in cluster.nodes:
            cluster.crash(victim)
        for n in cluster.disks:
            if n not in cluster.nodes and cluster.random.random() < 0.6:
                cluster.boot(n)
    cluster.loss = 0.0
    for n in cluster.disks:
        if n not in cluster.nodes:
            cluster.boot(n)
    cluster.run(8.0)
    before = len(cluster.committed)
    cluster.run(4.0)
    assert len(cluster.committed) > before, f"no progress after the faults ended (seed {seed})"
    assert sum(node.role is Role.LEADER for node in cluster.nodes.values()) == 1
    assert len({node.epoch for node in cluster.nodes.values()}) == 1


def test_a_quiet_quorum_keeps_its_leader() -> None:
    cluster = Cluster(3, 1)
    cluster.run(10.0)
    assert len(cluster.leaders) >= 1
    elected = dict(cluster.leaders)
    cluster.run(20.0)
    assert cluster.leaders == elected


def test_a_node_that_was_cut_off_does_not_depose_the_leader() -> None:
    """KIP-996: without pre-vote it would come back with a higher epoch."""
    cluster = Cluster(3, 2)
    cluster.run(6.0)
    (leader,) = (n for n, node in cluster.nodes.items() if node.role is Role.LEADER)
    follower = next(n for n in cluster.nodes if n != leader)
    alone = cluster.nodes.pop(follower)
    epoch = cluster.nodes[leader].epoch
    for step in range(100):
        alone.tick(cluster.now + step)
    cluster.nodes[follower] = alone
    cluster.run(5.0)
    assert cluster.nodes[leader].role is Role.LEADER
    assert cluster.nodes[leader].epoch == epoch


def test_a_voter_that_stood_in_an_epoch_nobody_has_heard_of_follows_again() -> None:
    """It wrote its own vote and crashed, or was cut off, before it could ask for others. It cannot
    follow the leader of an earlier epoch, and nobody elects it while there is one: the others have
    to enter its epoch."""
    cluster = Cluster(3, 3)
    cluster.run(6.0)
    (leader,) = (n for n, node in cluster.nodes.items() if node.role is Role.LEADER)
    ahead = next(n for n in cluster.nodes if n != leader)
    cluster.crash(ahead)
    state = cluster.disks[ahead].state
    cluster.disks[ahead].state = ElectionState(epoch=state.epoch + 1, voted=KEYS[ahead])
    cluster.run(1.0)
    assert cluster.nodes[leader].role is Role.LEADER
    cluster.boot(ahead)
    cluster.run(10.0)
    (leader,) = (n for n, node in cluster.nodes.items() if node.role is Role.LEADER)
    assert {node.epoch for node in cluster.nodes.values()} == {cluster.nodes[leader].epoch}
    others = {node.role for n, node in cluster.nodes.items() if n != leader}
    assert others == {Role.FOLLOWER}
