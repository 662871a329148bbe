"""A shard of the group coordinator with its log and its clock, for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any, TypeVar

from headwater.broker.coordinators.records import value_version
from headwater.coordination import Decision, Record, Token
from headwater.errors import ErrorCode
from headwater.groups.clients import ClientInfo
from headwater.groups.settings import GroupSettings
from headwater.groups.shard import GroupShard
from headwater.protocol import Message, decode, encode
from headwater.protocol.consumer_protocol import write_subscription
from headwater.protocol.messages.delete_groups import DeleteGroupsResponse
from headwater.protocol.messages.describe_groups import DescribedGroup
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
from headwater.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from headwater.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)
from headwater.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

M = TypeVar("M", bound=Message)

START = 1000.0
START_MS = 1_700_000_000_000
SETTINGS = GroupSettings(initial_rebalance_delay_ms=0)
GROUP = "billing"


def subscription(*topics: str, version: int = 0) -> bytes:
    """Returns the metadata that a consumer sends to the leader of its group."""
    return write_subscription(topics=topics, version=version)


def protocols(*names: str, metadata: bytes = subscription("orders")) -> list[Any]:
    return [JoinGroupRequestProtocol(name=name, metadata=metadata) for name in names]


class FakeTopics:
    """The topics of a cluster: name to id and number of partitions."""

    def __init__(self, topics: Mapping[str, tuple[bytes, int]]) -> None:
        self._topics = topics

    def partitions(self, name: str) -> int | None:
        return self._topics[name][1] if name in self._topics else None

    def id(self, name: str) -> bytes | None:
        return self._topics[name][0] if name in self._topics else None

    def name(self, topic_id: bytes) -> str | None:
        return next((name for name, (known, _) in self._topics.items() if known == topic_id), None)

    def names(self) -> Iterable[str]:
        return self._topics

    def racks(self, name: str) -> list[frozenset[str]]:
        return [frozenset() for _ in range(self._topics[name][1])]


class ShardDesk:
    """A shard and the part of its driver: appends, applies, answers."""

    def __init__(self, settings: GroupSettings = SETTINGS, *, seed: int = 0) -> None:
        self.settings = settings
        self.random = Random(seed)
        self.shard = GroupShard(settings, self.random)
        self.log: list[Record | tuple[int, bool]] = []  # records, and markers of transactions
        self.producers: dict[int, int] = {}  # the producer of a record in a transaction
        self.now = START
        self.now_ms = START_MS
        self.tokens = 0
        self.asked: set[Token] = set()
        self.answers: dict[Token, Message] = {}
        self.notes: list[str] = []  # lines for the node's log that are not routine
        self.shard.on_loaded(self.now)

    # The driver's part

    def ask(self, call: Callable[[Token], Decision], *, producer_id: int = -1) -> Token:
        self.tokens += 1
        self.asked.add(self.tokens)
        self.carry_out(call(self.tokens), producer_id=producer_id)
        return self.tokens

    def carry_out(self, decision: Decision, *, producer_id: int = -1) -> None:
        self.notes += [note.text for note in decision.notes if not note.is_routine]
        for record in decision.records:
            offset = len(self.log)
            self.log.append(_copy(record))
            self.producers[offset] = producer_id
            self.shard.apply(record, offset=offset, producer_id=producer_id)
        for token, answer in decision.replies:
            assert token in self.asked, f"{token} was never asked"
            assert token not in self.answers, f"{token} is answered twice"
            self.answers[token] = answer

    def end_transaction(self, producer_id: int, *, commits: bool) -> None:
        self.log.append((producer_id, commits))
        self.shard.apply_marker(producer_id, commits=commits)

    def replayed(self) -> GroupShard:
        """Returns a shard that has read the log and nothing else."""
        shard = GroupShard(self.settings, self.random)
        for offset, entry in enumerate(self.log):
            if isinstance(entry, Record):
                shard.apply(entry, offset=offset, producer_id=self.producers[offset])
            else:
                shard.apply_marker(entry[0], commits=entry[1])
        return shard

    def restart(self) -> None:
        """Loads the shard again, as another broker does after a crash."""
        self.asked.difference_update(self.asked - self.answers.keys())
        self.shard = self.replayed()
        self.carry_out(self.shard.on_loaded(self.now))

    def advance(self, seconds: float) -> None:
        """Moves the clock, and fires the timers that come due."""
        end = self.now + seconds
        while (due := self.shard.next_deadline()) <= end:
            self.move_to(max(due, self.now))
            self.carry_out(self.shard.on_tick(self.now, self.now_ms))
        self.move_to(end)

    def move_to(self, now: float) -> None:
        self.now_ms += round((now - self.now) * 1000)
        self.now = now

    def settle(self) -> None:
        """Fires the timers that are due now."""
        self.advance(0.0)

    def answer(self, token: Token, kind: type[M]) -> M:
        answer = self.answers[token]
        assert isinstance(answer, kind)
        return answer

    def waits(self, token: Token) -> bool:
        return token in self.asked and token not in self.answers

    @property
    def records(self) -> list[Record]:
        return [entry for entry in self.log if isinstance(entry, Record)]

    # Requests

    def join(
        self,
        member_id: str = "",
        *,
        group: str = GROUP,
        instance: str | None = None,
        speaks: list[Any] | None = None,
        kind: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        version: int = 9,
        client: str = "app",
    ) -> Token:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=kind,
            protocols=protocols("range", "roundrobin") if speaks is None else speaks,
        )
        return self.ask(
            lambda token: self.shard.decide_join(
                token,
                request,
                client=ClientInfo(client, "/127.0.0.1"),
                version=version,
                now=self.now,
                now_ms=self.now_ms,
            )
        )

    def joined(self, token: Token) -> JoinGroupResponse:
        return self.answer(token, JoinGroupResponse)

    def join_code(self, token: Token) -> ErrorCode:
        return ErrorCode(self.joined(token).error_code)

    def new_id(self, **options: Any) -> str:
        """Returns the id that a dynamic member is told to join with."""
        answer = self.joined(self.join(**options))
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return answer.member_id

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        group: str = GROUP,
        instance: str | None = None,
        kind: str | None = "consumer",
        protocol: str | None = "range",
        version: int = 5,
    ) -> Token:
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=kind,
            protocol_name=protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=given, assignment=assignment)
                for given, assignment in (assignments or {}).items()
            ],
        )
        return self.ask(
            lambda token: self.shard.decide_sync(
                token, request, version=version, now=self.now, now_ms=self.now_ms
            )
        )

    def synced(self, token: Token) -> SyncGroupResponse:
        return self.answer(token, SyncGroupResponse)

    def heartbeat(
        self, member_id: str, generation: int, *, group: str = GROUP, instance: str | None = None
    ) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
        )
        token = self.ask(lambda token: self.shard.decide_heartbeat(token, request, now=self.now))
        return ErrorCode(self.answer(token, HeartbeatResponse).error_code)

    def leave(
        self, *members: tuple[str, str | None], group: str = GROUP, version: int = 5
    ) -> LeaveGroupResponse:
        request = LeaveGroupRequest(
            group_id=group,
            member_id=members[0][0] if members else "",
            members=[MemberIdentity(member_id=m, group_instance_id=i) for m, i in members],
        )
        token = self.ask(
            lambda token: self.shard.decide_leave(
                token, request, version=version, now=self.now, now_ms=self.now_ms
            )
        )
        return self.answer(token, LeaveGroupResponse)

    def leave_codes(self, *members: tuple[str, str | None], group: str = GROUP) -> list[ErrorCode]:
        return [ErrorCode(one.error_code) for one in self.leave(*members, group=group).members]

    def commit(
        self,
        offsets: Mapping[tuple[str, int], int],
        member_id: str = "",
        generation: int = -1,
        *,
        group: str = GROUP,
        instance: str | None = None,
        metadata: str | None = "",
        retention_ms: int = -1,
        ids: Mapping[str, bytes] | None = None,
        version: int = 9,
    ) -> list[ErrorCode]:
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for (name, index), offset in offsets.items():
            topic = topics.setdefault(
                name, OffsetCommitRequestTopic(name=name, topic_id=(ids or {}).get(name, bytes(16)))
            )
            topic.partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=offset, committed_metadata=metadata
                )
            )
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=list(topics.values()),
        )
        token = self.ask(
            lambda token: self.shard.decide_commit(
                token, request, version=version, now=self.now, now_ms=self.now_ms
            )
        )
        answer = self.answer(token, OffsetCommitResponse)
        return [ErrorCode(p.error_code) for topic in answer.topics for p in topic.partitions]

    def fetch(
        self,
        *partitions: tuple[str, int],
        group: str = GROUP,
        stable: bool = False,
        ids: Mapping[str, bytes] | None = None,
    ) -> OffsetFetchResponseGroup:
        """Fetches the offsets of these partitions; of all if none are given."""
        topics = [
            OffsetFetchRequestTopics(
                name=name, topic_id=(ids or {}).get(name, bytes(16)), partition_indexes=[index]
            )
            for name, index in partitions
        ]
        request = OffsetFetchRequestGroup(group_id=group, topics=topics if partitions else None)
        return self.shard.fetch_offsets(request, require_stable=stable)

    def committed(self, group: str = GROUP) -> dict[tuple[str, int], int]:
        return {
            (topic.name, found.partition_index): found.committed_offset
            for topic in self.fetch(group=group).topics
            for found in topic.partitions
        }

    def delete_offsets(self, topic: str, *partitions: int, group: str = GROUP) -> list[ErrorCode]:
        """Returns the codes of the partitions, or the one code of the response."""
        request = OffsetDeleteRequest(
            group_id=group,
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetDeleteRequestPartition(partition_index=p) for p in partitions
                    ],
                )
            ],
        )
        token = self.ask(
            lambda token: self.shard.decide_delete_offsets(token, request, now=self.now)
        )
        answer = self.answer(token, OffsetDeleteResponse)
        if answer.error_code:
            return [ErrorCode(answer.error_code)]
        return [ErrorCode(p.error_code) for one in answer.topics for p in one.partitions]

    def delete_groups(self, *groups: str) -> dict[str, ErrorCode]:
        token = self.ask(lambda token: self.shard.decide_delete_groups(token, groups, now=self.now))
        answer = self.answer(token, DeleteGroupsResponse)
        return {one.group_id: ErrorCode(one.error_code) for one in answer.results}

    def describe(self, group: str = GROUP, *, version: int = 6) -> DescribedGroup:
        return self.shard.describe([group], version=version)[0]

    def state(self, group: str = GROUP) -> str:
        return self.describe(group).group_state

    # Whole stories

    def member(self, *, group: str = GROUP, **options: Any) -> str:
        """Returns the id of a member that is alone in a stable group."""
        member_id = "" if options.get("instance") else self.new_id(group=group, **options)
        token = self.join(member_id, group=group, **options)
        self.settle()
        answer = self.joined(token)
        assert answer.error_code == ErrorCode.NONE
        self.sync(
            answer.member_id,
            answer.generation_id,
            {answer.member_id: b"all"},
            group=group,
            instance=options.get("instance"),
            kind=None,
            protocol=None,
            version=4,
        )
        return answer.member_id

    def members(self, count: int, *, group: str = GROUP, **options: Any) -> list[str]:
        """Returns the ids of the dynamic members of a stable group; the first is the leader."""
        ids = [self.new_id(group=group, **options) for _ in range(count)]
        tokens = [self.join(member_id, group=group, **options) for member_id in ids]
        self.settle()
        generation = self.joined(tokens[0]).generation_id
        for number, member_id in reversed(list(enumerate(ids))):
            parts = {one: f"part {n}".encode() for n, one in enumerate(ids)} if not number else {}
            self.sync(member_id, generation, parts, group=group)
        assert self.state(group) == "Stable"
        return ids


def _copy(record: Record) -> Record:
    """Returns the record as it comes back from the log."""
    key = decode(type(record.key), encode(record.key, 0), 0)
    if record.value is None:
        return Record(key, None)
    version = value_version(record.value)
    return Record(key, decode(type(record.value), encode(record.value, version), version))
