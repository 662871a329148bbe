"""Stories of the metadata quorum: several Raft machines, a slow network, and a log of each.

Messages wait until a story delivers them, so each story decides what is late and what is lost.
Commands:

    voters N... [static]            define the voters; `static` ones have no directory ids
    node N epoch= leader= log=      what a node has on disk: `log=1,1,2` is an epoch per record
    start N...                      start nodes
    elect                           one undisturbed election, without its messages
    advance SECONDS                 let time pass; timers fire in order
    deliver [A->B]                  deliver what is under way, and what that causes
    lose [A->B]                     lose what is under way
    fetch N [epoch=]                one fetch of N from its leader, there and back
    append N COUNT, flush N         a leader appends records; its disk syncs
    resign N, crash N               give up leadership; lose everything that is not synced
    show                            one line for each node
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from headwater.model import NO_NODE, ZERO_ID, OffsetAndEpoch
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
from tests.support.transcripts import Command, check_story, stories

_FOLDER = Path(__file__).parent / "quorum"
_DELIVERIES_MAX = 100


@dataclass(slots=True)
class Disk:
    state: ElectionState = field(default_factory=ElectionState)
    log: list[int] = field(default_factory=list)  # the epoch of each record
    synced: int = 0

    def epochs(self) -> list[OffsetAndEpoch]:
        found: list[OffsetAndEpoch] = []
        for offset, epoch in enumerate(self.log):
            if not found or epoch > found[-1].epoch:
                found.append(OffsetAndEpoch(offset, epoch))
        return found


class QuorumStory:
    def __init__(self) -> None:
        self.now = 0.0
        self.voters = VoterSet({})
        self.disks: dict[int, Disk] = {}
        self.nodes: dict[int, Raft] = {}
        self.under_way: list[tuple[int, int, Message]] = []
        self.output: list[str] = []

    def run(self, command: Command) -> str:
        self.output = []
        getattr(self, f"do_{command.name}")(command)
        return "\n".join(self.output)

    def say(self, text: str) -> None:
        self.output.append(text)

    # Commands

    def do_voters(self, command: Command) -> None:
        static = "static" in command.words
        ids = [int(word) for word in command.words if word != "static"]
        self.voters = VoterSet.of(*(Voter(ReplicaKey(n) if static else self.key(n)) for n in ids))
        self.disks = {n: Disk() for n in ids}

    def do_node(self, command: Command) -> None:
        options = command.options
        log = [int(epoch) for epoch in options.get("log", "").split(",") if epoch]
        state = ElectionState(int(options.get("epoch", "0")), int(options.get("leader", NO_NODE)))
        self.disks[int(command.words[0])] = Disk(state, log, len(log))

    def do_start(self, command: Command) -> None:
        for n in map(int, command.words):
            disk = self.disks[n]
            self.nodes[n] = Raft(
                self.key(n),
                self.voters,
                Random(n),
                state=disk.state,
                log_end=len(disk.log),
                epochs=disk.epochs(),
            )
            self.act(n, lambda node: node.start(self.now))

    def do_advance(self, command: Command) -> None:
        until = self.now + float(command.words[0])
        while True:
            due = min(self.nodes, key=lambda n: self.nodes[n].next_deadline())
            deadline = self.nodes[due].next_deadline()
            if deadline > until:
                break
            self.now = max(self.now, deadline)
            self.act(due, lambda node: node.tick(self.now))
        self.now = until

    def do_elect(self, command: Command) -> None:
        n = min(self.nodes, key=lambda n: self.nodes[n].next_deadline())
        self.do_advance(Command("advance", [str(self.nodes[n].next_deadline() - self.now)], {}))
        self.do_deliver(Command("deliver", [], {}))
        self.do_flush(Command("flush", [str(n)], {}))
        assert self.nodes[n].role is Role.LEADER
        self.output = [f"{n} leads epoch {self.nodes[n].epoch}"]

    def do_deliver(self, command: Command) -> None:
        for _ in range(_DELIVERIES_MAX):
            chosen = self.chosen(command)
            if not chosen:
                return
            self.under_way.remove(chosen[0])
            self.deliver(*chosen[0])
        raise AssertionError("the nodes do not stop talking")

    def do_lose(self, command: Command) -> None:
        for each in self.chosen(command):
            self.under_way.remove(each)
            sender, to, message = each
            self.say(f"lost {sender}->{to} {describe(message)}")

    def do_fetch(self, command: Command) -> None:
        n = int(command.words[0])
        node = self.nodes[n]
        request = node.fetch_request()
        if request is None:
            self.say(f"{n} has no leader to fetch from")
            return
        if "epoch" in command.options:
            request = request._replace(epoch=int(command.options["epoch"]))
        leader = node.leader_id
        self.say(f"{n}->{leader} {describe(request)}")
        replies: list[FetchReply] = []
        self.act(leader, lambda raft: raft.on_fetch(request, self.now), replies)
        for reply in replies:
            self.say(f"{leader}->{n} {describe(reply)}")
            self.take(n, leader, request, reply)

    def do_append(self, command: Command) -> None:
        n = int(command.words[0])
        for _ in range(int(command.words[1])):
            self.append(n)

    def do_flush(self, command: Command) -> None:
        n = int(command.words[0])
        disk = self.disks[n]
        disk.synced = len(disk.log)
        self.act(n, lambda node: node.on_flushed(disk.synced, epoch=node.epoch))

    def do_resign(self, command: Command) -> None:
        self.act(int(command.words[0]), lambda node: node.resign(self.now))

    def do_crash(self, command: Command) -> None:
        n = int(command.words[0])
        disk = self.disks[n]
        del disk.log[disk.synced :]
        del self.nodes[n]
        self.under_way = [each for each in self.under_way if n not in each[:2]]

    def do_show(self, command: Command) -> None:
        for n, node in sorted(self.nodes.items()):
            leader = node.leader_id if node.leader_id != NO_NODE else "none"
            log = ",".join(map(str, self.disks[n].log))
            self.say(
                f"{n} {node.role.value} epoch={node.epoch} leader={leader} "
                f"committed={node.high_watermark} log=[{log}]"
            )

    # What the commands share

    def key(self, n: int) -> ReplicaKey:
        return ReplicaKey(n, bytes([n]) * len(ZERO_ID))

    def chosen(self, command: Command) -> list[tuple[int, int, Message]]:
        links = [tuple(map(int, word.split("->"))) for word in command.words]
        return [each for each in self.under_way if not links or each[:2] in links]

    def take(self, n: int, leader: int, request: FetchRequest, reply: FetchReply) -> None:
        node, disk = self.nodes[n], self.disks[n]
        is_current = request == node.fetch_request()
        self.act(n, lambda node: node.on_fetch_reply(request, reply, self.now))
        if not is_current or reply.records_from is None:
            return
        for epoch in self.disks[leader].log[reply.records_from :]:
            disk.log.append(epoch)
            node.on_appended(log_end=len(disk.log), epoch=epoch)
        disk.synced = len(disk.log)
        self.act(n, lambda node: node.on_high_watermark(reply.high_watermark))

    def append(self, n: int) -> None:
        node, disk = self.nodes[n], self.disks[n]
        disk.log.append(node.epoch)
        node.on_appended(log_end=len(disk.log), epoch=node.epoch)

    def act(
        self, n: int, event: Callable[[Raft], Ready], replies: list[FetchReply] | None = None
    ) -> None:
        node, disk = self.nodes[n], self.disks[n]
        before = (node.role, node.epoch)
        ready = event(node)
        if (node.role, node.epoch) != before:
            self.say(f"{n} is {node.role.value} in epoch {node.epoch} at {self.now:.2f}")
        if ready.vote is not None:
            disk.state = ready.vote
            voted = "" if ready.vote.voted is None else f" voted={ready.vote.voted.id}"
            leader = "" if ready.vote.leader_id == NO_NODE else f" leader={ready.vote.leader_id}"
            self.say(f"  saves epoch={ready.vote.epoch}{voted}{leader}")
        if ready.truncate_to is not None:
            self.say(f"  {n} truncates its log to {ready.truncate_to}")
            del disk.log[ready.truncate_to :]
            disk.synced = min(disk.synced, len(disk.log))
            node.on_truncated(len(disk.log))
        if ready.leader_change is not None:
            self.append(n)
        for to, message in ready.messages:
            if isinstance(message, FetchReply) and replies is not None:
                replies.append(message)
                continue
            self.say(f"  sends {n}->{to} {describe(message)}")
            self.under_way.append((n, to, message))
        if ready.committed is not None:
            self.say(f"  {n} commits up to {ready.committed}")

    def deliver(self, sender: int, to: int, message: Message) -> None:
        if to not in self.nodes:
            self.say(f"lost {sender}->{to} {describe(message)}: {to} is down")
            return
        self.say(f"{sender}->{to} {describe(message)}")
        match message:
            case VoteRequest():
                self.act(to, lambda node: node.on_vote(message, self.now))
            case VoteReply():
                self.act(to, lambda node: node.on_vote_reply(sender, message, self.now))
            case BeginEpoch():
                self.act(to, lambda node: node.on_begin_epoch(message, self.now))
            case BeginEpochReply():
                self.act(to, lambda node: node.on_begin_epoch_reply(sender, message, self.now))
            case EndEpoch():
                self.act(to, lambda node: node.on_end_epoch(message, self.now))


def describe(message: Message) -> str:
    match message:
        case VoteRequest(epoch, _, last, pre_vote):
            name = "PreVote" if pre_vote else "Vote"
            return f"{name} epoch={epoch} last={last.offset}@{last.epoch}"
        case VoteReply(epoch, _, granted, pre_vote):
            name = "PreVote" if pre_vote else "Vote"
            return f"{name} {'granted' if granted else 'refused'} epoch={epoch}"
        case BeginEpoch(epoch):
            return f"BeginEpoch epoch={epoch}"
        case BeginEpochReply(epoch):
            return f"BeginEpoch acknowledged epoch={epoch}"
        case EndEpoch(epoch, _, successors):
            return f"EndEpoch epoch={epoch} successors={','.join(map(str, successors))}"
        case FetchRequest(_, epoch, offset, last_epoch):
            return f"Fetch epoch={epoch} from={offset}@{last_epoch}"
        case FetchReply():
            if message.diverging is not None:
                return f"Fetch diverging at {message.diverging.offset}@{message.diverging.epoch}"
            if message.records_from is not None:
                return f"Fetch records from {message.records_from}"
            error = message.error.name
            return f"Fetch {error} epoch={message.epoch} leader={message.leader_id}"


@pytest.mark.parametrize("path", stories(_FOLDER), ids=lambda path: path.stem)
def test_the_quorum_acts_as_its_story_says(path: Path) -> None:
    check_story(path, QuorumStory().run)
