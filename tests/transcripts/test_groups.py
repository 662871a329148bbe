"""Stories of the group coordinator: one shard with its log, and members that do as they are told.

After each command the log is replayed into a fresh shard, which must be the shard that wrote it.
Commands (NAME is a member; a story has one group):

    settings KEY=VALUE...                 before anything else; names of `GroupSettings`
    topics NAME=PARTITIONS...             the topics of the cluster from now on
    join NAME [instance=] [topics=] [owns=] [protocols=] [version=] [rebalance_ms=]   JoinGroup
    sync NAME [MEMBER=PARTITIONS...]      SyncGroup; the leader's has an assignment: `a=t:0,1`
    heartbeat NAME [generation=]          Heartbeat
    leave NAME                            LeaveGroup
    beat NAME [epoch=] [topics=] [regex=] [owns=] [instance=] [assignor=]  ConsumerGroupHeartbeat
    commit NAME TOPIC:PARTITION=OFFSET... [epoch=]                        OffsetCommit
    txn-commit PRODUCER TOPIC:PARTITION=OFFSET...                         TxnOffsetCommit
    end PRODUCER commit|abort             the marker that ends a producer's transaction
    fetch [stable] TOPIC:PARTITION...     OffsetFetch
    advance SECONDS                       let time pass; timers fire in order
    restart                               load the shard again from its log
    show                                  the group and its members

The output has the responses that were sent, `log` for each record that was written, and `note` for
lines in the node's log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import pytest

from headwater.coordination import Decision, Record, Token
from headwater.errors import ErrorCode
from headwater.groups.clients import ClientInfo
from headwater.groups.settings import GroupSettings
from headwater.groups.shard import GroupShard
from headwater.model import TopicPartition
from headwater.protocol import DecodeError, Message
from headwater.protocol.consumer_protocol import (
    assigned_partitions,
    read_assignment,
    write_assignment,
    write_subscription,
)
from headwater.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from headwater.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headwater.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from headwater.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from headwater.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headwater.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headwater.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from headwater.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from headwater.protocol.records import group_consumer, group_offsets
from tests.support.group_shards import FakeTopics
from tests.support.transcripts import Command, check_story, stories

_FOLDER = Path(__file__).parent / "groups"
_GROUP = "billing"
_CLIENT = ClientInfo("app", "/127.0.0.1")
_START_MS = 1_700_000_000_000
_MEMBER_STATES = {0: "stable", 1: "unrevoked", 2: "unreleased"}


@dataclass(slots=True)
class StoryMember:
    name: str
    id: str = ""
    former_ids: list[str] = field(default_factory=list)
    epoch: int = 0  # or the generation
    instance: str | None = None
    protocol: str | None = None


@dataclass(slots=True)
class LogEntry:
    """A record with its producer, or a marker."""

    producer_id: int
    record: Record | None = None
    commits: bool = False


@dataclass(slots=True)
class GroupStory:
    """Runs the commands of one story."""

    settings: GroupSettings = field(
        default_factory=lambda: GroupSettings(
            initial_rebalance_delay_ms=0, consumer_assignment_interval_ms=0
        )
    )
    topics: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    members: dict[str, StoryMember] = field(default_factory=dict)
    log: list[LogEntry] = field(default_factory=list)
    now: float = 1000.0
    lines: list[str] = field(default_factory=list)
    asked: dict[Token, tuple[str, Callable[[Message], str]]] = field(default_factory=dict)
    tokens: int = 0
    shard: GroupShard = field(init=False)

    def __post_init__(self) -> None:
        self.load()

    # Running

    def run(self, command: Command) -> str:
        self.lines = []
        getattr(self, "do_" + command.name.replace("-", "_"))(command)
        self.tick()
        fresh = self.replayed()
        assert fresh.durable_state() == self.shard.durable_state(), "replay differs from live"
        return "\n".join(self.lines)

    def say(self, line: str) -> None:
        for member in self.members.values():
            if member.id:
                line = line.replace(member.id, member.name)
            for former in member.former_ids:
                line = line.replace(former, f"{member.name} before")
        self.lines.append(line)

    def member(self, name: str) -> StoryMember:
        return self.members.setdefault(name, StoryMember(name))

    # The driver's part

    def new_shard(self) -> GroupShard:
        shard = GroupShard(self.settings, Random(1))
        shard.on_metadata(FakeTopics(self.topics), (), self.now)
        return shard

    def replayed(self) -> GroupShard:
        shard = self.new_shard()
        for offset, entry in enumerate(self.log):
            if entry.record is None:
                shard.apply_marker(entry.producer_id, commits=entry.commits)
            else:
                shard.apply(entry.record, offset=offset, producer_id=entry.producer_id)
        return shard

    def load(self) -> None:
        self.shard = self.replayed()
        self.asked.clear()
        self.take(self.shard.on_loaded(self.now))

    def take(self, decision: Decision) -> None:
        for record in decision.records:
            self.log.append(LogEntry(decision.producer_id, record))
            offset = len(self.log) - 1
            self.shard.apply(record, offset=offset, producer_id=decision.producer_id)
        replies = []
        for token, message in decision.replies:
            name, show = self.asked.pop(token)
            replies.append(f"{name}: {show(message)}")  # may teach a member its id
        for note in decision.notes:
            if not note.is_routine:
                self.say(f"note {note.text}")
        for record in decision.records:
            self.say(f"  log {self.show_record(record)}")
        for line in replies:
            self.say(line)

    def ask(
        self, name: str, decide: Callable[[Token], Decision], show: Callable[[Message], str]
    ) -> None:
        self.tokens += 1
        self.asked[self.tokens] = (name, show)
        self.take(decide(self.tokens))
        if self.tokens in self.asked:
            self.tick()
        if self.tokens in self.asked:
            self.say(f"{name}: waits")

    @property
    def now_ms(self) -> int:
        return _START_MS + round(self.now * 1000)

    def tick(self) -> None:
        while self.shard.next_deadline() <= self.now:
            self.take(self.shard.on_tick(self.now, self.now_ms))

    def do_settings(self, command: Command) -> None:
        numbers = {
            key: value if key == "consumer_migration_policy" else int(value)
            for key, value in command.options.items()
        }
        self.settings = replace(self.settings, **numbers)  # type: ignore[arg-type]
        self.load()

    def do_topics(self, command: Command) -> None:
        gone = self.topics.keys() - command.options.keys()
        self.topics = {
            name: (name.encode().rjust(16, b"\0"), int(count))
            for name, count in command.options.items()
        }
        self.take(self.shard.on_metadata(FakeTopics(self.topics), gone, self.now))

    def do_advance(self, command: Command) -> None:
        end = self.now + float(command.words[0])
        while (due := self.shard.next_deadline()) <= end:
            self.now = max(due, self.now)
            before = len(self.lines)
            self.take(self.shard.on_tick(self.now, self.now_ms))
            if len(self.lines) > before:
                self.lines.insert(before, f"at {self.now - 1000:g} s")
        self.now = end

    def do_restart(self, command: Command) -> None:
        self.load()

    # The classic protocol

    def do_join(self, command: Command) -> None:
        member, options = self.member(command.words[0]), command.options
        member.instance = options.get("instance", member.instance)
        subscription = write_subscription(
            topics=options.get("topics", "t").split(","), owned=_partitions(options.get("owns", ""))
        )
        request = JoinGroupRequest(
            group_id=_GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=int(options.get("rebalance_ms", 30_000)),
            member_id="" if "new" in command.words else member.id,
            group_instance_id=member.instance,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=subscription)
                for name in options.get("protocols", "range").split(",")
            ],
        )

        def show(message: Message) -> str:
            assert isinstance(message, JoinGroupResponse)
            if message.error_code:
                if message.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                    member.id = message.member_id
                return ErrorCode(message.error_code).name
            if member.id not in ("", message.member_id):
                member.former_ids.append(member.id)
            member.id, member.epoch = message.member_id, message.generation_id
            member.protocol = message.protocol_name
            said = f"joined generation {message.generation_id}, {message.protocol_name}"
            if message.leader:
                said += f", leader {message.leader}"
            if message.members:
                said += f", members {' '.join(each.member_id for each in message.members)}"
            return said + (", skips assignment" if message.skip_assignment else "")

        version = int(options.get("version", 9))
        self.ask(
            member.name,
            lambda token: self.shard.decide_join(
                token,
                request,
                client=_CLIENT,
                version=version,
                now=self.now,
                now_ms=self.now_ms,
            ),
            show,
        )

    def do_sync(self, command: Command) -> None:
        member = self.member(command.words[0])
        request = SyncGroupRequest(
            group_id=_GROUP,
            generation_id=member.epoch,
            member_id=member.id,
            group_instance_id=member.instance,
            protocol_type="consumer",
            protocol_name=member.protocol or "range",
            assignments=[
                SyncGroupRequestAssignment(
                    member_id=self.member(name).id, assignment=write_assignment(_partitions(given))
                )
                for name, given in command.options.items()
            ],
        )

        def show(message: Message) -> str:
            assert isinstance(message, SyncGroupResponse)
            if message.error_code:
                return ErrorCode(message.error_code).name
            return f"synced, {_show_assignment(message.assignment)}"

        self.ask(
            member.name,
            lambda token: self.shard.decide_sync(
                token, request, version=5, now=self.now, now_ms=self.now_ms
            ),
            show,
        )

    def do_heartbeat(self, command: Command) -> None:
        member = self.member(command.words[0])
        request = HeartbeatRequest(
            group_id=_GROUP,
            generation_id=int(command.options.get("generation", member.epoch)),
            member_id=member.id,
            group_instance_id=member.instance,
        )

        def show(message: Message) -> str:
            assert isinstance(message, HeartbeatResponse)
            return _ok(message.error_code)

        self.ask(
            member.name,
            lambda token: self.shard.decide_heartbeat(token, request, now=self.now),
            show,
        )

    def do_leave(self, command: Command) -> None:
        member = self.member(command.words[0])
        identity = MemberIdentity(member_id=member.id, group_instance_id=member.instance)
        request = LeaveGroupRequest(group_id=_GROUP, members=[identity])

        def show(message: Message) -> str:
            assert isinstance(message, LeaveGroupResponse)
            return "left " + _ok(message.members[0].error_code)

        self.ask(
            member.name,
            lambda token: self.shard.decide_leave(
                token, request, version=5, now=self.now, now_ms=self.now_ms
            ),
            show,
        )

    # The consumer protocol (KIP-848)

    def do_beat(self, command: Command) -> None:
        member, options = self.member(command.words[0]), command.options
        member.id = member.id or member.name
        member.instance = options.get("instance", member.instance)
        epoch = int(options.get("epoch", member.epoch))
        joins = epoch == 0
        topics = options.get("topics", "" if "regex" in options else "t" if joins else None)
        owns = options.get("owns", "" if joins else None)
        request = ConsumerGroupHeartbeatRequest(
            group_id=_GROUP,
            member_id=member.id,
            member_epoch=epoch,
            instance_id=member.instance,
            rebalance_timeout_ms=30_000 if joins else -1,
            subscribed_topic_names=None
            if topics is None
            else [topic for topic in topics.split(",") if topic],
            subscribed_topic_regex=options.get("regex"),
            server_assignor=options.get("assignor"),
            topic_partitions=None if owns is None else self.owned(owns),
        )

        def show(message: Message) -> str:
            assert isinstance(message, ConsumerGroupHeartbeatResponse)
            if message.error_code:
                return ErrorCode(message.error_code).name
            member.epoch = max(message.member_epoch, 0)
            if message.assignment is None:
                return f"epoch {message.member_epoch}"
            given = {
                topic.topic_id: topic.partitions for topic in message.assignment.topic_partitions
            }
            return f"epoch {message.member_epoch}, assigned {self.show_ids(given)}"

        self.ask(
            member.name,
            lambda token: self.shard.decide_consumer_heartbeat(
                token,
                request,
                client=_CLIENT,
                version=1,
                now=self.now,
                now_ms=self.now_ms,
            ),
            show,
        )

    def owned(self, text: str) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
        by_topic: dict[str, list[int]] = {}
        for topic, number in _partitions(text):
            by_topic.setdefault(topic, []).append(number)
        return [
            ConsumerGroupHeartbeatRequestTopicPartitions(
                topic_id=self.topics[topic][0], partitions=numbers
            )
            for topic, numbers in by_topic.items()
        ]

    # Offsets

    def do_commit(self, command: Command) -> None:
        member = self.member(command.words[0])
        request = OffsetCommitRequest(
            group_id=_GROUP,
            generation_id_or_member_epoch=int(command.options.pop("epoch", member.epoch)),
            member_id=member.id,
            group_instance_id=member.instance,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=self.topics[topic][0],
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=number, committed_offset=offset, committed_metadata=""
                        )
                    ],
                )
                for topic, number, offset in _offsets(command)
            ],
        )

        def show(message: Message) -> str:
            assert isinstance(message, OffsetCommitResponse)
            return _codes(p.error_code for topic in message.topics for p in topic.partitions)

        self.ask(
            member.name,
            lambda token: self.shard.decide_commit(
                token, request, version=9, now=self.now, now_ms=self.now_ms
            ),
            show,
        )

    def do_txn_commit(self, command: Command) -> None:
        request = TxnOffsetCommitRequest(
            transactional_id="t",
            group_id=_GROUP,
            producer_id=int(command.words[0]),
            producer_epoch=0,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=number, committed_offset=offset, committed_metadata=""
                        )
                    ],
                )
                for topic, number, offset in _offsets(command)
            ],
        )

        def show(message: Message) -> str:
            assert isinstance(message, TxnOffsetCommitResponse)
            return _codes(p.error_code for topic in message.topics for p in topic.partitions)

        self.ask(
            f"producer {command.words[0]}",
            lambda token: self.shard.decide_commit_in_transaction(
                token, request, version=5, now=self.now, now_ms=self.now_ms
            ),
            show,
        )

    def do_end(self, command: Command) -> None:
        producer_id, commits = int(command.words[0]), command.words[1] == "commit"
        self.log.append(LogEntry(producer_id, commits=commits))
        self.shard.apply_marker(producer_id, commits=commits)

    def do_fetch(self, command: Command) -> None:
        words = [word for word in command.words if word != "stable"]
        request = OffsetFetchRequestGroup(
            group_id=_GROUP,
            topics=[
                OffsetFetchRequestTopics(name=topic, partition_indexes=[number])
                for topic, number in (tp for word in words for tp in _partitions(word))
            ],
        )
        found = self.shard.fetch_offsets(request, require_stable="stable" in command.words)
        if found.error_code:
            self.say(ErrorCode(found.error_code).name)
        for topic in found.topics:
            for partition in topic.partitions:
                shown = (
                    ErrorCode(partition.error_code).name
                    if partition.error_code
                    else "none"
                    if partition.committed_offset < 0
                    else partition.committed_offset
                )
                self.say(f"{topic.name}:{partition.partition_index} {shown}")

    # Showing

    def do_show(self, command: Command) -> None:
        listed = self.shard.list_groups((), ())
        if not listed:
            self.say("no group")
            return
        (group,) = listed
        self.say(f"{group.group_type} group, {group.group_state}")
        if group.group_type == "classic":
            for each in self.shard.describe([_GROUP], version=6)[0].members:
                self.say(f"  {each.member_id} {_show_assignment(each.member_assignment)}")
            return
        (described,) = self.shard.consumer_describe([_GROUP])
        self.lines[-1] += f", epoch {described.group_epoch}, target {described.assignment_epoch}"
        for member in described.members:
            held = {t.topic_id: t.partitions for t in member.assignment.topic_partitions}
            target = {t.topic_id: t.partitions for t in member.target_assignment.topic_partitions}
            kind = "classic, " if member.member_type == 0 else ""
            self.say(
                f"  {member.member_id} {kind}epoch {member.member_epoch}, "
                f"has {self.show_ids(held)}, target {self.show_ids(target)}"
            )

    def show_ids(self, partitions: dict[bytes, list[int]]) -> str:
        names = {topic_id: name for name, (topic_id, _) in self.topics.items()}
        return _show_partitions(
            TopicPartition(names.get(bytes(topic), "deleted"), number)
            for topic, numbers in partitions.items()
            for number in numbers
        )

    def show_record(self, record: Record) -> str:
        name = type(record.key).__name__.removesuffix("Key").removeprefix("ConsumerGroup")
        if isinstance(record.key, group_offsets.OffsetCommitKey):
            name += f" {record.key.topic}:{record.key.partition}"
        pattern = getattr(record.key, "regular_expression", None)
        whose = getattr(record.key, "member_id", None) or pattern
        name += f" {whose}" if whose else ""
        value = record.value
        if value is None:
            return f"{name} deleted"
        match value:
            case group_offsets.OffsetCommitValue():
                return f"{name} {value.offset}"
            case group_offsets.GroupMetadataValue():
                members = " ".join(member.member_id for member in value.members) or "nobody"
                return f"{name} generation {value.generation}, {members}"
            case group_consumer.ConsumerGroupMetadataValue():
                return f"{name} epoch {value.epoch}"
            case group_consumer.ConsumerGroupMemberMetadataValue():
                wants = value.subscribed_topic_regex or ",".join(value.subscribed_topic_names)
                return f"{name} subscribes to {wants or 'nothing'}"
            case group_consumer.ConsumerGroupTargetAssignmentMetadataValue():
                return f"{name} epoch {value.assignment_epoch}"
            case group_consumer.ConsumerGroupTargetAssignmentMemberValue():
                given = {topic.topic_id: topic.partitions for topic in value.topic_partitions}
                return f"{name} {self.show_ids(given)}"
            case group_consumer.ConsumerGroupCurrentMemberAssignmentValue():
                held = {topic.topic_id: topic.partitions for topic in value.assigned_partitions}
                going = {t.topic_id: t.partitions for t in value.partitions_pending_revocation}
                revokes = f", revokes {self.show_ids(going)}" if going else ""
                state = _MEMBER_STATES[value.state]
                return f"{name} epoch {value.member_epoch} {state}, {self.show_ids(held)}{revokes}"
            case group_consumer.ConsumerGroupRegularExpressionValue():
                return f"{name} matches {','.join(value.topics) or 'nothing'}"
            case _:
                raise AssertionError(f"unexpected record {value}")


def _ok(code: int) -> str:
    return ErrorCode(code).name if code else "ok"


def _codes(codes: Iterable[int]) -> str:
    return " ".join(_ok(code) for code in codes)


def _partitions(text: str) -> list[TopicPartition]:
    """Reads `t:0,1+u:2`."""
    found = []
    for part in text.split("+") if text else ():
        topic, numbers = part.split(":")
        found += [TopicPartition(topic, int(number)) for number in numbers.split(",")]
    return found


def _offsets(command: Command) -> list[tuple[str, int, int]]:
    return [
        (*_partitions(where)[0], int(offset))
        for where, offset in command.options.items()
        if ":" in where
    ]


def _show_partitions(partitions: Iterable[TopicPartition]) -> str:
    by_topic: dict[str, list[str]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(str(number))
    return "+".join(f"{topic}:{','.join(numbers)}" for topic, numbers in by_topic.items()) or "-"


def _show_assignment(assignment: bytes) -> str:
    try:
        return _show_partitions(assigned_partitions(read_assignment(bytes(assignment))))
    except DecodeError:
        return "-"


@pytest.mark.parametrize("path", stories(_FOLDER), ids=lambda path: path.stem)
def test_the_story_is_as_it_is_written(path: Path) -> None:
    check_story(path, GroupStory().run)
